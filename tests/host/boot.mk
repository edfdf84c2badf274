# boot.mk: the parts of boot/ that need no machine, as host tests. Included by host.mk.

ifdef host_test
$(eval $(call host_test,boot_test,tests/host/boot_test.c boot/machine_end.c boot/pvh/free.c \
    boot/efi/map.c boot/efi/text.c,-DBOOT_EFI -Iarch/x86_64/include))
endif
