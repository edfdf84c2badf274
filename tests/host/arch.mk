# arch.mk: the parts of arch/x86_64 that need no machine, as host tests. Included by host.mk.

ifdef host_test
ARCH_TABLES := arch/x86_64/acpi_tables.c arch/x86_64/madt.c arch/x86_64/srat.c

$(eval $(call host_test,arch_acpi_test,tests/host/arch_acpi_test.c tests/host/acpi_bytes_lib.c \
    $(ARCH_TABLES),-Iarch/x86_64/include))
$(eval $(call host_test,arch_ptbuild_test,tests/host/arch_ptbuild_test.c \
    arch/x86_64/ptbuild.c,-Iarch/x86_64/include))
$(eval $(call host_fuzz,fuzz_acpi,tests/host/fuzz_acpi.c tests/host/acpi_bytes_lib.c \
    $(ARCH_TABLES),-Iarch/x86_64/include))
endif
