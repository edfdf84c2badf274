# efi.mk: builds BOOTX64.EFI: the UEFI door and the stripped kernel in one PE file, with GNU-EFI.

EFI_SRC := $(sort $(wildcard boot/efi/*.c)) boot/machine_end.c lib/string.c
EFI_OBJ := $(patsubst %,$(O)/efi/%.o,$(EFI_SRC)) $(O)/efi/version.c.o $(O)/efi/boot/efi/call.asm.o

# Where Debian, Ubuntu and Arch, then Fedora, put GNU-EFI. The default is Debian's: `make deps all`
# reads this before the package is there.
EFI_INC  := $(firstword $(dir $(wildcard /usr/include/efi/efi.h /usr/local/include/efi/efi.h)) \
                /usr/include/efi/)
EFI_CRT0 := $(firstword $(wildcard /usr/lib/crt0-efi-x86_64.o /usr/lib/gnuefi/crt0-efi-x86_64.o \
                /usr/lib64/gnuefi/crt0-efi-x86_64.o /usr/lib/gnuefi/x64/crt0.o \
                /usr/local/lib/crt0-efi-x86_64.o) \
                /usr/lib/crt0-efi-x86_64.o)
EFI_LIB  := $(firstword $(wildcard $(dir $(EFI_CRT0))libgnuefi.a /usr/lib/libgnuefi.a \
                /usr/lib64/libgnuefi.a) \
                $(dir $(EFI_CRT0))libgnuefi.a)

EFI_CFLAGS := $(COMMON) -fpic -fshort-wchar -fvisibility=hidden \
              $(if $(findstring clang,$(CC)),,-maccumulate-outgoing-args) \
              -DGNU_EFI_USE_MS_ABI -DBOOT_EFI $(WARNINGS) $(INCLUDES) \
              -isystem $(EFI_INC) -isystem $(EFI_INC)x86_64
EFI_LDFLAGS := -m elf_x86_64 -nostdlib -shared -Bsymbolic -z max-page-size=4096 -z noexecstack \
               -z nocombreloc --build-id=none --no-undefined --orphan-handling=error \
               $(if $(findstring lld,$(LD)),--apply-dynamic-relocs,-z nopack-relative-relocs)

$(O)/efi/%.c.o: %.c $(O)/flags | need-efi
	$(call say,CC,$< (EFI))
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(EFI_CFLAGS) $(CPPFLAGS) $(CFLAGS) -c $< -o $@

$(O)/efi/version.c.o: $(O)/version.c $(O)/flags | need-efi
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(EFI_CFLAGS) $(CPPFLAGS) $(CFLAGS) -c $< -o $@

$(O)/kernel.stripped.elf: $(O)/kernel.elf
	$(Q)$(OBJCOPY) --strip-all $< $@

$(O)/efi/boot/efi/call.asm.o: boot/efi/call.asm $(O)/kernel.stripped.elf $(O)/flags
	$(call say,NASM,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(NASM) $(KERNEL_ASFLAGS) '-DKERNEL_ELF="$(O)/kernel.stripped.elf"' $< -o $@

# Who made this, for shim's revocation by generation (SBAT).
$(O)/efi/sbat.o: boot/efi/sbat.csv $(O)/flags
	$(Q)mkdir -p $(@D)
	$(Q)printf '%s\n' '.section .sbat, "a"' '.incbin "$<"' \
	    '.ascii "metalmap,1,metalmap,metalmap,$(VERSION),-\n"' \
	    '.section .note.GNU-stack, "", @progbits' > $(@:.o=.S)
	$(Q)$(CC) -c $(@:.o=.S) -o $@

$(O)/efi/loader.so: $(EFI_OBJ) $(O)/efi/sbat.o boot/efi/efi.lds
	$(call say,LD,$@)
	$(Q)$(LD) $(EFI_LDFLAGS) -T boot/efi/efi.lds $(EFI_CRT0) $(EFI_OBJ) $(O)/efi/sbat.o \
	    $(EFI_LIB) -o $@

# GNU-EFI's start code applies R_X86_64_RELATIVE, to the addend in place, and skips the rest
# silently.
$(O)/BOOTX64.EFI: $(O)/efi/loader.so tools/pe_check
	$(call say,EFI,$@)
	$(Q)! $(READELF) -rW $< | grep 'R_X86_64_' | grep -v ' R_X86_64_RELATIVE ' || \
	    { echo '$<: relocations that would not be applied' >&2; exit 1; }
	$(Q)! $(READELF) -SW $< | grep -F '.relr' || \
	    { echo '$<: packed relocations, which would not be applied' >&2; exit 1; }
	$(Q)$(OBJCOPY) --target=efi-app-x86_64 $(foreach s,.text .sbat .rodata .reloc .dynsym .dynstr \
	    .rela .data .dynamic,-j $(s)) $< $@
	$(Q)$(PYTHON) tools/pe_check --mark $@

need-efi: | need-build
	@test -f $(EFI_INC)efi.h && test -f $(EFI_CRT0) && test -f $(EFI_LIB) || \
	    { echo "metalmap: GNU-EFI is missing: install the package gnu-efi (make deps)" >&2; exit 1; }
.PHONY: need-efi
