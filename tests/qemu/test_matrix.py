"""Each row of the matrix: the verdict, the log's form, the machine as asked for, and figures that can be."""

import re
import shlex

import pytest

import matrix
import metalmap_log
import run


def explain(why, result):
    """One text with all that is needed to look into it."""
    lines = result.log.splitlines()
    failed = [pair for pair in zip(lines, lines[1:]) if pair[0].startswith("not ok ")]
    shown = [line for pair in failed for line in pair] + lines[-12:]
    return "\n    ".join([why, f"run: {result.verdict}: {result.reason}, {result.seconds:.1f} s",
                          f"log: {result.log_path}", *shown, f"command: {shlex.join(result.command)}"])


def require(true, why, result):
    if not true:
        pytest.fail(explain(why, result), pytrace=False)


def mib(size):
    return int(size[:-1]) * {"M": 1, "G": 1024}[size[-1].upper()]


def check_machine(row, log, result):
    """What the kernel says it found is what QEMU was told to make."""
    machine = log.machine()
    cpus = row.cpus or run.Config(smp=row.smp).cpus
    require(int(machine["cpus_used"]) == cpus, f"{machine['cpus_used']} CPUs used, not {cpus}", result)
    require(int(machine["cpus_found"]) >= cpus, "fewer CPUs found than used", result)
    require(machine["apic"] in ((row.apic,) if row.apic else ("xapic", "x2apic", "none")),
            f"apic={machine['apic']}", result)
    require(int(machine["nodes"]) == row.nodes, f"nodes={machine['nodes']}, not {row.nodes}", result)
    require(int(machine["paging_levels"]) in ((row.levels,) if row.levels else (4, 5)),
            f"paging_levels={machine['paging_levels']}", result)
    asked, got = mib(row.mem), int(machine["mem_mib"])
    # Firmware and the frame array take their share.
    require(asked * 0.85 - 48 <= got <= asked, f"mem_mib={got} of {asked}", result)
    require(row.start_us is None or int(machine["start_us"]) <= row.start_us,
            f"start_us={machine['start_us']}, at most {row.start_us}", result)
    require(machine["tsc_warp"] == "0", f"tsc_warp={machine['tsc_warp']}", result)
    require(10**8 < int(machine["tsc_hz"]) < 10**10, f"tsc_hz={machine['tsc_hz']}", result)


def check_cpus(row, log, result):
    """The APIC IDs, each read by the CPU itself: as many as CPUs, all different."""
    ids = []
    for record in log.records.get("cpus", []):
        require(int(record["first"]) == len(ids), "the list of CPUs has a gap", result)
        ids += map(int, record["apic_ids"].split(","))
    used = int(log.machine()["cpus_used"])
    require(len(ids) == used, f"{len(ids)} APIC IDs of {used} CPUs", result)
    require(len(set(ids)) == used, f"an APIC ID twice: {ids}", result)
    require(row.apic_ids is None or tuple(ids) == row.apic_ids, f"APIC IDs {ids}", result)


def check_figures(log, result):
    """Every passed test of the family has its lines, and the counters are there."""
    benches = log.records.get("bench", [])
    passed = {r.name.split("/")[0] for r in log.results if r.status == "pass"}
    for name in passed & set(matrix.FAMILY):
        require(any(b["test"] == name and b["op"] == "pair" for b in benches),
                f"no bench line of {name}", result)
        require(any(s[0] == name for s in log.summaries), f"no Summary line of {name}", result)
    for bench in benches:
        require(any(r["test"] == bench["test"] for r in log.records.get("rate", [])),
                f"no rate line of {bench['test']}", result)
        require(bench["unit"] == "tsc" and bench["emulated"] in ("yes", "no"),
                "a figure without its unit", result)
    require("counter" in log.records, "no counter line", result)
    if passed & set(matrix.FAMILY):
        used = int(log.machine()["cpus_used"])
        require(sorted(log.workers) == list(range(len(log.workers))) and 0 < len(log.workers) <= used,
                f"lines of workers {sorted(log.workers)}", result)


def check_verdict(row, result):
    """Status and RESULT line together, unless the row says that one of them cannot be."""
    if row.by == "log":
        said = result.log.splitlines()[-1:]
        require(said and said[0].startswith(f"RESULT: {row.verdict.upper()} "), "another RESULT", result)
        require(result.status == row.status, f"status {result.status}, not {row.status}", result)
    else:
        require(result.verdict == row.verdict, f"{result.verdict}, not {row.verdict}", result)
    if row.seconds:
        require(result.seconds <= row.seconds, f"more than {row.seconds} s", result)


def check_lines(row, log, result):
    for pattern in row.lines:
        require(any(re.search(pattern, line) for line in log.lines), f"no line has /{pattern}/", result)
    for pattern in row.absent:
        require(not any(re.search(pattern, line) for line in log.lines), f"a line has /{pattern}/", result)


def check_run(row, result):
    """The Log of one run; fails the test for anything that is not as it must be. None: no log."""
    check_verdict(row, result)
    if not row.banner:
        with open(result.log_path, encoding="ascii") as f:
            check_lines(row, metalmap_log.Log(f.read().splitlines()), result)
        require(result.log == "", "a banner that was not expected", result)
        return None
    if row.by == "status":
        require(result.log == "", "a log although nobody should hear it", result)
        return None
    log, broken = None, ""
    try:
        log = metalmap_log.parse_file(result.log_path)
    except metalmap_log.BadLog as e:
        broken = str(e)
    require(log, broken, result)
    check_lines(row, log, result)
    if row.verdict == "error":
        require(not log.results and "bench" not in log.records, "something ran after an error", result)
        return log
    require(len(log.records.get("machine", [])) == 1, "not one machine line", result)
    check_machine(row, log, result)
    check_cpus(row, log, result)
    check_figures(log, result)
    return log


@pytest.mark.usefixtures("met")
def test_boot(row, boots):
    results = boots.results(row)
    logs = [check_run(row, result) for result in results]
    for name, most in row.means:
        mean = int(logs[0].bench(name)["mean"])
        print(f"{name}: mean={mean}")
        require(mean <= most, f"{name}: mean={mean}, at most {most}", results[0])
    for log, result in zip(logs[1:], results[1:]):
        require(log.records["bench"] == logs[0].records["bench"],
                f"figures differ from those of {results[0].log_path}", result)


def test_clock_sources_agree(boots):
    """Whatever a machine has to measure with, its TSC has the same frequency within 1 %."""
    rows = [row for row in matrix.rows() if row.name in matrix.SAME_TSC]
    assert len(rows) == len(matrix.SAME_TSC)
    hz = {}
    for row in rows:
        result = boots.results(row)[0]
        hz[row.name] = int(metalmap_log.parse_file(result.log_path).machine()["tsc_hz"])
    assert max(hz.values()) - min(hz.values()) < min(hz.values()) / 100, hz
