#!/usr/bin/env python3
"""How the small-area tests scale: rates, contended locks and flush interrupts with 1, 2, 8, 64 CPUs.

scale.py [--designs=metalmap,2024] [--tests=a,b] [--cpus=1,2,8,64] [--runs=3] [--seconds=1] [--extra="options"]

Rates are operations per second over all CPUs, from the untimed pass; medians of the runs. The first
and the last number of CPUs that --cpus has from 2 on are compared; they are booted in turns, so that
what else the host does meets both. Other numbers are booted once. Loops follow from a first, short boot, so that a
pass takes at least --seconds. Contentions and interrupts are those during the untimed passes, of all
runs together, for each million operations.

The test "private" allocates nothing and shares nothing: its ratio is what the machine itself leaves of
a rate when so many CPUs take turns on the host's cores. "of private" is a test's ratio divided by
it. A busy host favours the machine with more threads. So the ratio is also given for a second of
CPU time that QEMU got (column "by CPU time"); "cores" is how many host cores it got in the compared
runs. The verdict takes the plain ratio.

Variables: O (the build directory), QEMU, MEM, ACCEL. Results are kept in build/logs/scale.json.
Exit status: 0 all rows are within their limits, 1 one is not, or a boot failed, 2 wrong usage.
"""

import argparse
import dataclasses
import json
import os
import statistics
import sys
import time

import bench
import run

CONTROL = "private"
TESTS = (CONTROL, "fix_size_alloc_test", "full_fit_alloc_test", "random_size_alloc_test",
         "vm_map_ram_test", "lookup", "remote_free", "map_ram_1page", "alloc_touch_free", "irq_alloc")
RATIO, CONTENDED, IPIS = 0.95, 10, 0  # at least; at most, per million operations
FIRST_TOTAL = 64000  # operations of all CPUs in the boot that finds the loops
SAMPLES = 1000  # operations of each CPU in timed passes, of which nothing is read here
SPEED_RANGE = 4  # tests within this factor share a boot, and its loops
TICK = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass
class Sample:
    """One test in one boot."""

    rate: int  # operations per second over all CPUs
    ops: int
    contended: int
    ipis: int
    cores: float  # of the host that QEMU got meanwhile


def cpu_seconds(pid):
    """User and system time of a process, all threads."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


class CpuShare:
    """Follows a run with counters=each: host cores that QEMU got during each test's untimed pass."""

    def __init__(self):
        self.pid = None
        self.marks = []  # (time, CPU seconds) at each line of counters: before and after the pass
        self.cores = {}

    def start(self, pid):
        self.pid = pid

    def line(self, text):
        if text.startswith("# counter "):
            try:
                self.marks.append((time.monotonic(), cpu_seconds(self.pid)))
            except OSError:
                pass
        elif text.startswith("# rate ") and len(self.marks) > 1:
            (t0, cpu0), (t1, cpu1) = self.marks[-2:]
            self.cores[bench.records(text, "rate")[0]["test"]] = (cpu1 - cpu0) / max(t1 - t0, 1e-3)


def boot(design, tests, cpus, total, extra, variables):
    """{test: Sample} of one boot, or None if it failed, which is said."""
    config = run.Config(
        smp=str(cpus), mem=variables.get("MEM") or "2G", boot="pvh",
        accel=variables.get("ACCEL") or "auto", timeout=600, silence=120,
        args=f"design={design} tests={','.join(tests)} test_loop_count={max(total // cpus, 16)} "
             f"samples={SAMPLES} counters=each {extra}",
        build=variables.get("O") or "build", qemu=variables.get("QEMU") or "qemu-system-x86_64",
        name=f"scale-{design}-{cpus}")
    share = CpuShare()
    result = run.run(config, share.line, share.start)
    if not result.passed:
        print(f"design={design} cpus={cpus}: {result.verdict}: {result.reason}; {result.log_path}",
              flush=True)
        return None
    return {r["test"]: Sample(int(r["ops_per_s"]), int(r["ops"]), int(r["lock_contended"]),
                              int(r["tlb_ipis"]), share.cores.get(r["test"], 0))
            for r in bench.records(result.log, "rate")}


def groups_of(rates):
    """[(tests, the highest rate)]: tests of similar speed together, the fastest first."""
    out = []
    for test in sorted(rates, key=rates.get, reverse=True):
        if out and rates[test] * SPEED_RANGE > out[-1][1]:
            out[-1][0].append(test)
        else:
            out.append(([test], rates[test]))
    return out


def schedule(cpus, runs):
    """Numbers of CPUs in the order of boots: what is compared in turns, the rest once."""
    low, high = compared(cpus)
    return [n for n in cpus if n not in (low, high)] + [low, high] * runs


def compared(cpus):
    several = [n for n in cpus if n > 1] or cpus
    return several[0], several[-1]


def measure(design, args, variables):
    """{test: {cpus: [Sample]}}, and how many boots failed."""
    out = {t: {n: [] for n in args.cpus} for t in args.tests}
    first = boot(design, args.tests, compared(args.cpus)[0], FIRST_TOTAL, args.extra, variables)
    if not first:
        return out, 1
    failed = 0
    for tests, rate in groups_of({t: s.rate for t, s in first.items()}):
        for n in schedule(args.cpus, args.runs):
            print(f"... design={design} cpus={n} {','.join(tests)}", file=sys.stderr, flush=True)
            samples = boot(design, tests, n, int(rate * args.seconds), args.extra, variables)
            failed += not samples
            for test, sample in (samples or {}).items():
                out[test][n].append(sample)
    return out, failed


@dataclasses.dataclass
class Row:
    """What the table says of a test. None: not measured."""

    rates: dict  # {cpus: median}
    ratio: float
    by_cpu_time: float
    cores: tuple  # of the two compared numbers of CPUs
    contended: float
    ipis: float

    @property
    def verdict(self):
        if None in (self.ratio, self.contended):
            return "not measured"
        missed = [name for name, bad in (("ratio", self.ratio < RATIO),
                                         ("contended", self.contended > CONTENDED),
                                         ("IPIs", self.ipis > IPIS)) if bad]
        return "over: " + ", ".join(missed) if missed else "ok"


def median(values):
    values = list(values)
    return statistics.median(values) if values else None


def quotient(a, b):
    return a / b if a is not None and b else None


def row_of(by_cpus, low, high):
    """The Row of one test from {cpus: [Sample]}."""
    rates = {n: median(s.rate for s in samples) for n, samples in by_cpus.items()}
    work = {n: median(s.rate / max(s.cores, 0.01) for s in by_cpus[n]) for n in (low, high)}
    ops = sum(s.ops for s in by_cpus[high])
    return Row(rates, quotient(rates[high], rates[low]), quotient(work[high], work[low]),
               tuple(median(s.cores for s in by_cpus[n]) for n in (low, high)),
               quotient(sum(s.contended for s in by_cpus[high]) * 1e6, ops),
               quotient(sum(s.ipis for s in by_cpus[high]) * 1e6, ops))


def show(value, form):
    return "-" if value is None else format(value, form)


def print_table(design, rows, cpus):
    low, high = compared(cpus)
    machine = rows[CONTROL].ratio if CONTROL in rows else None
    print(f"\ndesign={design}: operations per second over all CPUs; per million operations at {high} CPUs")
    print(f"{'test':24}" + "".join(f"{f'{n} CPUs':>11}" for n in cpus) + f"{f'{high}/{low}':>7}"
          f"{'of private':>12}{'by CPU time':>13}{'cores':>12}{'contended':>11}{'IPIs':>9}  verdict")
    for test, r in rows.items():
        cores = "/".join(show(c, ".2f") for c in r.cores)
        verdict = r.verdict if test != CONTROL else "the machine's own"
        share = show(quotient(r.ratio, machine), ".2f")
        print(f"{test:24}" + "".join(f"{show(r.rates[n], '.0f'):>11}" for n in cpus) +
              f"{show(r.ratio, '.2f'):>7}{share:>12}{show(r.by_cpu_time, '.2f'):>13}{cores:>12}"
              f"{show(r.contended, '.1f'):>11}{show(r.ipis, '.1f'):>9}  {verdict}")
    print(f"{'limit':24}" + " " * 11 * len(cpus) + f"{RATIO:>7}{'':37}{CONTENDED:>11}{IPIS:>9}", flush=True)


def listed(one):
    """The type of an argument that is a list with commas: at least one, none twice."""
    def read(text):
        values = [one(word) for word in text.split(",")]
        if len(set(values)) < len(values):
            raise argparse.ArgumentTypeError(f"'{text}' has something twice")
        return values
    return read


def name(text):
    if not text:
        raise argparse.ArgumentTypeError("a name is missing")
    return text


def count(text):
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1 on")
    return int(text)


def duration(text):
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds")
    return value


def arguments(argv):
    p = argparse.ArgumentParser(usage=__doc__, add_help=False)
    p.add_argument("--designs", type=listed(name), default=["metalmap", "2024"])
    p.add_argument("--tests", type=listed(name), default=list(TESTS))
    p.add_argument("--cpus", type=listed(count), default=[1, 2, 8, 64])
    p.add_argument("--runs", type=count, default=3)
    p.add_argument("--seconds", type=duration, default=1)
    p.add_argument("--extra", default="")
    args = p.parse_args(argv)
    args.cpus.sort()
    return args


def main(argv):
    args = arguments(argv)
    keep, bad = {}, 0
    build = os.environ.get("O") or "build"
    for design in args.designs:
        data, failed = measure(design, args, os.environ)
        rows = {t: row_of(data[t], *compared(args.cpus)) for t in args.tests}
        print_table(design, rows, args.cpus)
        # The older design is there to be compared with; the limits are the default design's.
        bad += failed + (design == "metalmap") * sum(r.verdict != "ok" for t, r in rows.items() if t != CONTROL)
        keep[design] = {t: {n: [dataclasses.asdict(s) for s in samples] for n, samples in d.items()}
                        for t, d in data.items()}
    with open(os.path.join(build, "logs", "scale.json"), "w", encoding="utf-8") as f:
        json.dump(keep, f, indent=1)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(run.status_of(main, sys.argv[1:]))
