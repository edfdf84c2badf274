"""The reader of logs: what it takes, and that it rejects every kind of broken log."""

import pytest

import metalmap_log
from metalmap_log import BadLog, parse

GOOD = """\
metalmap 0.1.0 build=1a2b3c4
KTAP version 1
# boot door=pvh secure_boot=off
# cpu vendor=GenuineIntel brand="A name with blanks"
# machine cpus_found=2 cpus_used=2 apic=xapic tsc_hz=2596144035 tsc_source=pmtimer tsc_warp=0 emulated=yes \
hypervisor=TCGTCGTCGTCG mem_mib=2030 nodes=1 paging_levels=4
# cpus first=0 apic_ids=0,1
1..3
# run seed=1 profile=smoke tests=3 designs=1 repeat=1 cpus=2
# alive t=5s test=vm_map_ram_test done=40%
# Summary: vm_map_ram_test passed: 2 failed: 0 xfailed: 0 repeat: 1 loops: 512 avg: 481 usec
# bench test=vm_map_ram_test design=2024 cpus=2 op=pair n=2048 min=1508 p50=1855 p90=2175 p99=3967 \
p999=77823 max=564772 mean=2393 unit=tsc emulated=yes dropped=0
# rate test=vm_map_ram_test design=2024 cpus=2 ops_per_s=2670047
ok 1 vm_map_ram_test
# All test took worker0=707226471 cycles
ok 2 guard # SKIP one CPU
#
# counter free_pages=1 pt_pages=81 va_used=1 lazy_pages=0 lazy_limit=24576 purges=75 tlb_full=100 \
tlb_range=27 tlb_ipis=381 vmap_areas=7 vmap_blocks=0 alloc_fail=0 bad_free=0 lock_contended=2930
ok 3 other
# a line for people = anything
RESULT: PASS tests=3 fail=0 skip=1 error=0
"""
BAILED = """\
metalmap 0.1.0 build=1a2b3c4
KTAP version 1
# error: unknown option 'desing': did you mean 'design'?
RESULT: ERROR tests=0 fail=0 skip=0 error=1
"""
FAILED = """\
metalmap 0.1.0 build=1a2b3c4
KTAP version 1
1..2
ok 1 a
not ok 2 b
# b.c:12: cpu 0: x = 1, y = 2
RESULT: FAIL tests=2 fail=1 skip=0 error=0
"""
PANICKED = """\
metalmap 0.1.0 build=1a2b3c4
KTAP version 1
1..2
ok 1 a
# panic: page fault

# panic: again, while this was being reported: page fault
RESULT: PANIC
"""


def raw(text):
    return text.replace("\n", "\r\n").encode("ascii")


def replaced(old, new, text=GOOD, count=1):
    assert old in text
    return raw(text.replace(old, new, count))


def test_good_log_is_read():
    log = parse(raw(GOOD))
    assert log.verdict == "pass" and log.plan == 3
    assert [r.status for r in log.results] == ["pass", "skip", "pass"]
    assert log.result("guard").why == "one CPU"
    assert log.machine()["cpus_used"] == "2"
    assert log.bench("vm_map_ram_test")["p50"] == "1855"
    assert log.workers == {0: 707226471}
    assert log.summaries == [("vm_map_ram_test", 2, 0, 0, 1, 512, 481)]
    assert log.totals == {"tests": 3, "fail": 0, "skip": 1, "error": 0}


def test_other_verdicts_are_read():
    assert parse(raw(BAILED)).verdict == "error"
    assert parse(raw(BAILED)).plan is None
    assert parse(raw(FAILED)).verdict == "fail"
    assert parse(raw(PANICKED)).verdict == "panic"
    skipped = FAILED.replace("ok 1 a", "ok 1 a # SKIP x").replace("not ok 2 b", "ok 2 b # SKIP")
    skipped = skipped.replace("FAIL tests=2 fail=1 skip=0", "SKIP tests=2 fail=0 skip=2")
    assert parse(raw(skipped)).verdict == "skip"
    error = FAILED.replace("not ok 2 b", "not ok 2 b # error no memory")
    assert parse(raw(error.replace("FAIL tests=2 fail=1 skip=0 error=0",
                                   "ERROR tests=2 fail=0 skip=0 error=1"))).verdict == "error"


def test_firmware_may_speak_first(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"\x1b[2J\x1b[01;01HBdsDxe: starting Boot0001\r\n" + raw(GOOD))
    assert metalmap_log.parse_file(path).verdict == "pass"
    path.write_bytes(b"BdsDxe: failed to start Boot0001\r\n")
    with pytest.raises(BadLog, match="no banner"):
        metalmap_log.parse_file(path)


BENCH = "n=2048 min=1508 p50=1855 p90=2175 p99=3967 p999=77823 max=564772 mean=2393"
BROKEN = {
    # bytes and lines
    "empty": b"",
    "LF only": GOOD.encode(),
    "one line without CR": raw(GOOD).replace(b"ok 1 vm_map_ram_test\r\n", b"ok 1 vm_map_ram_test\n"),
    "no end of the last line": raw(GOOD)[:-2],
    "half of the last line end": raw(GOOD)[:-1],
    "cut in a line": raw(GOOD)[:-20],
    "not ASCII": raw(GOOD).replace(b"A name", b"A n\xe4me"),
    "escape": replaced("# a line", "# \x1b[1ma line"),
    "tab": replaced("# a line", "# a\tline"),
    "NUL": replaced("# a line", "# a\0line"),
    "long line": replaced("# a line", "# " + "x" * metalmap_log.LINE_MAX),
    "empty line": replaced("1..3\n", "\n1..3\n"),
    "no hash": replaced("# a line", "a line"),
    "no blank after hash": replaced("# a line", "#a line"),
    "two lines in one": replaced("ok 1 vm_map_ram_test\n", "ok 1 vm_map_ram_test# alive t=5s\n"),
    # the frame
    "no banner": raw(GOOD[GOOD.index("KTAP"):]),
    "banner without build": replaced(" build=1a2b3c4", ""),
    "no version": replaced("KTAP version 1\n", ""),
    "other version": replaced("KTAP version 1", "TAP version 13"),
    "version twice": replaced("KTAP version 1\n", "KTAP version 1\nKTAP version 1\n"),
    "no RESULT": raw(GOOD[:GOOD.index("RESULT")]),
    "RESULT twice": raw(GOOD + "RESULT: PASS tests=3 fail=0 skip=1 error=0\n"),
    "text after RESULT": raw(GOOD + "# bye\n"),
    "unknown RESULT": replaced("RESULT: PASS", "RESULT: GOOD"),
    "RESULT without totals": raw(GOOD[:GOOD.index("RESULT")] + "RESULT: PASS\n"),
    # plan and results
    "no plan": replaced("1..3\n", ""),
    "two plans": replaced("1..3\n", "1..3\n1..3\n"),
    "plan after a result": replaced("1..3\n", "").replace(b"ok 2 guard", b"1..3\r\nok 2 guard"),
    "plan larger": replaced("1..3", "1..4"),
    "plan smaller": replaced("1..3", "1..2"),
    "plan from 0": replaced("1..3", "0..3"),
    "number missing": replaced("ok 3 other", "ok 4 other"),
    "number twice": replaced("ok 3 other", "ok 2 other"),
    "numbers swapped": replaced("ok 1 vm_map_ram_test", "ok 2 vm_map_ram_test",
                                GOOD.replace("ok 2 guard", "ok 1 guard")),
    "result without number": replaced("ok 3 other", "ok other"),
    "result without name": replaced("ok 3 other", "ok 3"),
    "result with two names": replaced("ok 3 other", "ok 3 other one"),
    "indented": replaced("ok 3 other", "    ok 3 other"),
    "unknown directive": replaced("# SKIP one CPU", "# TODO one CPU"),
    "passed with an error": replaced("ok 3 other", "ok 3 other # error why"),
    "failed and skipped": replaced("ok 3 other", "not ok 3 other # SKIP why"),
    # totals and verdict
    "tests miscounted": replaced("PASS tests=3", "PASS tests=2"),
    "skips miscounted": replaced("skip=1 error", "skip=0 error"),
    "failure counted that was none": replaced("3 fail=0", "3 fail=1"),
    "failure not counted": replaced("ok 3 other", "not ok 3 other"),
    "failed but PASS": raw(FAILED.replace("RESULT: FAIL", "RESULT: PASS")),
    "FAIL but passed": replaced("RESULT: PASS", "RESULT: FAIL"),
    "PASS with nothing run": raw(BAILED.replace("ERROR tests=0 fail=0 skip=0 error=1",
                                                "PASS tests=0 fail=0 skip=0 error=0")),
    "ERROR without an error": raw(BAILED.replace("error=1", "error=0")),
    "PASS with an empty plan": raw("metalmap 0.1.0 build=x\nKTAP version 1\n1..0\n"
                                   "RESULT: PASS tests=0 fail=0 skip=0 error=0\n"),
    "PANIC without a panic": raw(FAILED[:FAILED.index("RESULT")] + "RESULT: PANIC\n"),
    # records
    "no n": replaced(BENCH, BENCH.replace("n=2048 ", "")),
    "n=0": replaced("n=2048", "n=0"),
    "negative": replaced("min=1508", "min=-1"),
    "not a number": replaced("min=1508", "min=many"),
    "p50 below min": replaced("p50=1855", "p50=1507"),
    "p90 below p50": replaced("p90=2175", "p90=1854"),
    "p99 below p90": replaced("p99=3967", "p99=2174"),
    "p999 below p99": replaced("p999=77823", "p999=3966"),
    "max below p999": replaced("max=564772", "max=77822"),
    "mean=0": replaced("mean=2393", "mean=0"),
    "key twice": replaced("op=pair", "op=pair op=free"),
    "key without value": replaced("op=pair", "op="),
    "word in a record": replaced("op=pair", "pair"),
    "two blanks in a record": replaced(" op=pair", "  op=pair"),
    "machine without cpus_used": replaced("cpus_used=2 ", ""),
    "value with a blank": replaced("hypervisor=TCGTCGTCGTCG", "hypervisor=Some Hv"),
    "counter without purges": replaced("purges=75 ", ""),
    "counter that is none": replaced("purges=75", "purges=75%"),
    "rate without design": replaced("# rate test=vm_map_ram_test design=2024", "# rate test=vm_map_ram_test"),
    "Summary of another wording": replaced("xfailed: 0 ", ""),
    "worker of another wording": replaced("worker0=707226471 cycles", "worker0=707226471"),
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_broken_log_is_rejected(text):
    with pytest.raises(BadLog):
        parse(text)


def test_one_machine_and_one_bench_line():
    twice = GOOD.replace("# machine ", "# machine cpus_found=1 cpus_used=1 apic=xapic tsc_hz=1 tsc_source=x tsc_warp=0 "
                         "emulated=yes hypervisor=x mem_mib=1 nodes=1 paging_levels=4\n# machine ")
    with pytest.raises(BadLog, match="2 lines of '# machine'"):
        parse(raw(twice)).machine()
    with pytest.raises(BadLog, match="0 lines of '# bench"):
        parse(raw(GOOD)).bench("fix_size_alloc_test")


def test_every_prefix_is_rejected():
    """A log that was cut anywhere is never taken for a whole one."""
    whole = raw(GOOD)
    for n in range(len(whole)):
        with pytest.raises(BadLog):
            parse(whole[:n])
