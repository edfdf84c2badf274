# qemu.mk: the boot matrix. Included by the top Makefile, whose PYTHON, O and need-run it uses.
#
# QEMU_ONLY="expression" takes some of the tests (pytest's -k); ACCEL=kvm boots with KVM instead of the
# emulator; METALMAP_QEMU10 names a newer QEMU if not the one of tools/fetch-qemu10.

QEMU_TESTS = $(PYTHON) -m pytest -q -p no:cacheprovider tests/qemu --build=$(O) $(if $(QEMU_ONLY),-k '$(QEMU_ONLY)')

# What the rows with build="debug" boot: assertions and poison that a released kernel has not.
debug-kernel:
	$(Q)$(MAKE) --no-print-directory -f $(firstword $(MAKEFILE_LIST)) O=$(O)/debug DEBUG=1 $(O)/debug/kernel.elf

test-qemu: all debug-kernel $(O)/metalmap.img | need-pytest ## boot matrix in QEMU, the quick part (QEMU_ONLY="expression")
	$(Q)$(QEMU_TESTS) --tier=quick

test-qemu-full: all debug-kernel $(O)/metalmap.img | need-pytest ## boot matrix in QEMU, all of it
	$(Q)$(QEMU_TESTS) --tier=full

test-full: test-host tsan simulate fuzz test-qemu-full ## all tests, the long ones too

need-pytest: need-run
	@$(PYTHON) -c 'import pytest' 2>/dev/null || \
	    { echo "metalmap: pytest is missing: install the package python3-pytest (make deps)" >&2; exit 1; }

.PHONY: debug-kernel test-qemu test-qemu-full test-full need-pytest
