"""What is written to the local APICs, as QEMU traces it: the emulator ignores bits that hardware does not."""

import re

import run

ICR_LOW, ICR_HIGH = 0x300, 0x310
ASSERT = 1 << 14
# SDM 3A, figure 11-12: vector, delivery mode, destination mode, level, trigger, shorthand; bit 12 is read-only.
DEFINED = 0xFF | 7 << 8 | 1 << 11 | ASSERT | 1 << 15 | 3 << 18
WRITE = re.compile(r"apic_mem_writel (0x[0-9a-f]+) = (0x[0-9a-f]+)")


def test_commands_are_as_the_manual_has_them(request, tmp_path):
    """Case E8: every command but an INIT's de-assertion has the level bit; reserved bits are 0."""
    trace = tmp_path / "apic"
    result = run.run(run.Config(smp="4", mem="512M", boot="pvh", accel="tcg", args="profile=smoke tests=flush_*,fix_size_alloc_test",
                                build=request.config.getoption("--build"), name="apic-commands",
                                qemu_args=["-trace", "apic_mem_writel", "-D", str(trace)]))
    assert result.verdict == "pass", result.reason
    writes = [tuple(int(n, 16) for n in m.groups()) for m in map(WRITE.search, trace.read_text().splitlines()) if m]
    commands = [value for offset, value in writes if offset & 0xFFF == ICR_LOW]
    modes = {value >> 8 & 7 for value in commands}
    assert {0, 5, 6} <= modes, f"no fixed interrupt, INIT or SIPI among {len(commands)} commands"
    assert all(value & ~DEFINED == 0 for value in commands)
    assert all(value & ASSERT for value in commands)
    assert all(value & 0xFFFFFF == 0 for offset, value in writes if offset & 0xFFF == ICR_HIGH)
