# metalmap: builds build/kernel.elf (PVH) and build/BOOTX64.EFI (UEFI, the kernel inside), runs and
# tests them. `make help` lists the targets.
#
# Variables: CC=gcc|clang  O=build  V=1 (show commands)  WERROR=1  DEBUG=1|2  and for run and gdb:
# SMP MEM CPU MACHINE BOOT=uefi|pvh|usb ACCEL=auto|kvm|tcg ICOUNT=1 ARGS="options" QEMU QEMU_ARGS
# TIMEOUT DRY=1 (only print the command). CFLAGS and LDFLAGS are the user's and come after ours.

MAKEFLAGS += -rR
.DELETE_ON_ERROR:
.SUFFIXES:
.DEFAULT_GOAL := all

O := build
ifneq ($(filter default undefined,$(origin CC)),)
CC := gcc
endif
ifneq ($(filter default undefined,$(origin LD)),)
LD := ld
endif
NASM    := nasm
NM      := nm
OBJCOPY := objcopy
OBJDUMP := objdump
READELF := readelf
AWK     := awk
WERROR  := $(if $(CI),1,0)
DEBUG   := 0
V       :=
Q       := $(if $(filter 1,$(V)),,@)
say      = $(if $(filter 1,$(V)),,@printf '  %-7s %s\n' '$(1)' '$(2)')
VERSION := 0.1.0

# A Python that has pytest: the distribution's first, another one only if that has not got it.
PYTHON = $(eval PYTHON := $(shell for p in /usr/bin/python3 python3; do \
    "$$p" -c 'import pytest' 2>/dev/null && { echo "$$p"; exit; }; done; \
    command -v /usr/bin/python3 || echo python3))$(PYTHON)

# ---- the kernel ----

KERNEL_DIRS := arch/x86_64 mm lib boot boot/pvh tests/kernel
KERNEL_SRC  := $(foreach d,$(KERNEL_DIRS),$(sort $(wildcard $(d)/*.c) $(wildcard $(d)/*.asm)))
KERNEL_OBJ  := $(patsubst %,$(O)/obj/%.o,$(KERNEL_SRC)) $(O)/obj/version.c.o

INCLUDES := -I. -Iarch/x86_64/include
WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
            -Werror=implicit-function-declaration \
            -Wframe-larger-than=2048 $(if $(filter 1,$(WERROR)),-Werror)
DEFINES  := $(if $(filter 1 2,$(DEBUG)),-DCONFIG_DEBUG) \
            $(if $(filter 2,$(DEBUG)),-DCONFIG_DEBUG_FULL)
COMMON   := -std=gnu11 -O2 -g -ffreestanding -fno-common -fno-strict-aliasing -fno-stack-protector \
            -fcf-protection=none -fno-asynchronous-unwind-tables -fno-unwind-tables -mno-red-zone \
            -mgeneral-regs-only -fno-omit-frame-pointer -ffile-prefix-map=$(CURDIR)=. -MMD -MP
KERNEL_CFLAGS  := $(COMMON) -mcmodel=kernel -fno-pic -fno-pie $(WARNINGS) $(INCLUDES) $(DEFINES)
KERNEL_ASFLAGS := -f elf64 -g -F dwarf -I./ -Iarch/x86_64/include/ $(DEFINES) \
                  $(if $(filter 1,$(WERROR)),-Werror)
KERNEL_LDFLAGS := -m elf_x86_64 -nostdlib -static -z max-page-size=4096 -z noexecstack \
                  --build-id=none --orphan-handling=warn

all: $(O)/kernel.elf $(O)/BOOTX64.EFI ## build the kernel and the UEFI program

# Rewritten only when the commands change, so that changing CC or DEBUG builds everything again;
# -Werror changes no output.
$(O)/flags: FORCE
	$(Q)mkdir -p $(O)
	$(Q)printf '%s\n' '$(CC) $(shell $(CC) -dumpfullversion -dumpversion 2>/dev/null)' \
	    '$(filter-out -Werror,$(KERNEL_CFLAGS)) $(CPPFLAGS) $(CFLAGS)' \
	    '$(filter-out -Werror,$(KERNEL_ASFLAGS))' \
	    '$(LD) $(KERNEL_LDFLAGS) $(LDFLAGS)' '$(filter-out -Werror,$(EFI_CFLAGS))' \
	    '$(EFI_LDFLAGS)' > $@.new
	$(Q)cmp -s $@.new $@ && rm $@.new || mv $@.new $@

$(O)/obj/%.c.o: %.c $(O)/flags | need-build
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(KERNEL_CFLAGS) $(CPPFLAGS) $(CFLAGS) -c $< -o $@

$(O)/obj/%.asm.o: %.asm $(O)/flags | need-build
	$(call say,NASM,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(NASM) $(KERNEL_ASFLAGS) -MD $(@:.o=.d) -MT $@ -MP $< -o $@

$(O)/version.c: FORCE
	$(Q)mkdir -p $(O)
	$(Q)b=$$(git describe --always --dirty --exclude '*' 2>/dev/null || echo unknown); \
	    printf '%s\n' '#include "boot/version.h"' 'const char metalmap_version[] = "$(VERSION)";' \
	    "const char metalmap_build[] = \"$$b\";" > $@.new
	$(Q)cmp -s $@.new $@ && rm $@.new || mv $@.new $@

$(O)/obj/version.c.o: $(O)/version.c $(O)/flags | need-build
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(KERNEL_CFLAGS) $(CPPFLAGS) $(CFLAGS) -c $< -o $@

# Linked twice: the symbol table of the first link goes into the second one, behind all code, so
# that code keeps its addresses; that this held is checked.
link-kernel = $(LD) $(KERNEL_LDFLAGS) $(LDFLAGS) -T linker.ld $(KERNEL_OBJ) $(1) -o $@
symbols-of  = $(NM) -n $(1) | $(AWK) -f tools/ksyms.awk

$(O)/ksyms0.S: tools/ksyms.awk $(O)/flags
	$(Q)$(AWK) -f $< /dev/null > $@

$(O)/ksyms%.o: $(O)/ksyms%.S
	$(Q)$(CC) -c $< -o $@

$(O)/kernel.stage1.elf: $(KERNEL_OBJ) $(O)/ksyms0.o linker.ld
	$(call say,LD,$@)
	$(Q)$(call link-kernel,$(O)/ksyms0.o)

$(O)/ksyms1.S: $(O)/kernel.stage1.elf tools/ksyms.awk
	$(Q)$(call symbols-of,$<) > $@

$(O)/kernel.elf: $(O)/ksyms1.o $(O)/kernel.stage1.elf
	$(call say,LD,$@)
	$(Q)$(call link-kernel,$(O)/ksyms1.o)
	$(Q)$(call symbols-of,$@) | cmp -s - $(O)/ksyms1.S || \
	    { echo "$@: code moved between the two links: the symbol table is wrong" >&2; exit 1; }

# ---- the UEFI program ----

include boot/efi/efi.mk

# ---- run ----

SMP       := 64
MEM       := 2G
CPU       := max
MACHINE   := q35
BOOT      := uefi
ACCEL     := auto
ICOUNT    := 0
QEMU      := qemu-system-x86_64
QEMU_ARGS :=
ARGS      :=
TIMEOUT   :=
DRY       := 0
FINDINGS_FILE := docs/FINDINGS.md
export SMP MEM CPU MACHINE BOOT ACCEL ICOUNT QEMU QEMU_ARGS ARGS TIMEOUT DRY O

RUN_NEEDS := $(O)/kernel.elf $(if $(filter uefi,$(BOOT)),$(O)/BOOTX64.EFI) \
             $(if $(filter usb,$(BOOT)),$(O)/metalmap.img)

run: $(RUN_NEEDS) | need-run ## boot in QEMU: SMP=64 BOOT=uefi|pvh|usb ARGS="options" ...
	$(Q)$(PYTHON) tools/run.py

gdb: $(RUN_NEEDS) | need-run ## boot in QEMU, stopped, waiting for gdb on port 1234
	$(Q)$(PYTHON) tools/run.py --gdb

usb: $(O)/metalmap.img ## build/metalmap.img: a USB stick's image, to be copied with dd

$(O)/metalmap.img: $(O)/BOOTX64.EFI tools/mkimage $(wildcard metalmap.cfg) | need-image
	$(call say,IMAGE,$@)
	$(Q)$(PYTHON) tools/mkimage --efi $(O)/BOOTX64.EFI \
	    $(addprefix --config ,$(wildcard metalmap.cfg)) $@

bench: $(O)/kernel.elf | need-run ## exact instruction counts, against tests/qemu/baseline.json
	$(Q)$(PYTHON) tools/bench.py

bench-renew: $(O)/kernel.elf | need-run ## as bench, and the counts become the baseline
	$(Q)$(PYTHON) tools/bench.py --renew

scale: $(O)/kernel.elf | need-run ## 1, 2, 8, 64 CPUs: rates, contended locks, flush interrupts
	$(Q)$(PYTHON) tools/scale.py

findings: $(O)/kernel.elf | need-run ## what was found about vmalloc from 2010 to 2024, measured here (FINDINGS_ONLY="names")
	$(Q)$(PYTHON) tools/findings.py --verbose $(if $(FINDINGS_ONLY),,--write=$(FINDINGS_FILE))

# ---- tests ----

test: check test-host tsan-once model test-qemu ## all tests that a change must pass

# test-host, tsan and fuzz come from tests/host/host.mk, test-qemu and test-full from
# tests/qemu/qemu.mk; tests/model/model.mk adds its own to test and test-full.
BUILD = $(O)
-include tests/host/host.mk
-include tests/qemu/qemu.mk
-include tests/model/model.mk

ifeq ($(wildcard tests/host/host.mk),)
test-host:
	@echo 'metalmap: tests/host/host.mk is not there' >&2; exit 1
endif
ifeq ($(wildcard tests/qemu/qemu.mk),)
test-qemu: all | need-run ## boot matrix in QEMU (pytest)
	$(Q)$(PYTHON) -m pytest -q tests/qemu
endif

check: $(O)/kernel.elf $(O)/BOOTX64.EFI ## formatting, and what the built files must look like
	$(Q)sh tools/check $(O)

# ---- set-up ----

# `make deps run` in one go: nothing may start before the packages are there, and nothing in these
# Makefiles may ask the compiler or look for files as it is read.
ifneq ($(filter deps,$(MAKECMDGOALS)),)
.NOTPARALLEL:
endif

deps: ## install what is missing (Debian, Ubuntu), or say what to install
	$(Q)sh tools/deps

clean: ## remove build/
	rm -rf $(O)

help: ## this list
	@$(AWK) -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo 'Variables: see the head of the Makefile; ARGS takes the options of docs/OPTIONS.md.'

# $(call need,command,package): stop with the package's name if a command is not there.
need = command -v $(1) >/dev/null || { \
    echo "metalmap: '$(1)' is missing: install the package $(2) (make deps)" >&2; exit 1; }

need-build:
	@$(call need,$(CC),$(notdir $(firstword $(CC))))
	@$(call need,$(LD),binutils)
	@$(call need,$(NASM),nasm)
	@$(call need,$(AWK),mawk or gawk)

need-image:
	@$(call need,mformat,mtools)
	@$(call need,mcopy,mtools)
	@$(call need,$(PYTHON),python3)

need-run: need-image
	@$(call need,$(QEMU),qemu-system-x86)

FORCE:
.PHONY: all run gdb usb bench bench-renew scale findings test check deps clean help need-build need-image need-run FORCE

-include $(KERNEL_OBJ:.o=.d) $(EFI_OBJ:.o=.d)
