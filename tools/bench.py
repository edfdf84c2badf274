#!/usr/bin/env python3
"""Exact costs of operations in instructions, against the figures kept in the tree and the goals.

bench.py [--renew]

Boots one CPU by PVH with QEMU's -icount, where the time stamp counter counts instructions: the same
kernel gives the same figures each time, on any host. Prints a table of costs (means, and the worst
single operation) and compares them with tests/qemu/baseline.json, which has an entry for each
compiler; --renew writes that of the present one. Variables: O (the build directory), QEMU.

Exit status: 0 all right, 1 a figure has grown by more than 2 % or is over its limit, 2 wrong usage or
nothing to measure, else that of tools/run.py. Tests import BOOTS, FIGURES, read_figures() and
compare().
"""

import concurrent.futures
import dataclasses
import json
import os
import re
import sys

import run

BASELINE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "qemu",
                        "baseline.json")
GROWTH = 1.02  # what a mean may grow by
WORST = 20000  # instructions of any single operation
SPREAD = 4  # p99.9 / p50

FAMILY = ("fix_size_alloc_test", "full_fit_alloc_test", "long_busy_list_alloc_test",
          "random_size_alloc_test", "vm_map_ram_test")
WORKLOADS = ("lookup", "remote_free", "map_ram_1page", "alloc_touch_free", "irq_alloc", "tail")
COMMON = "nr_threads=1 test_loop_count=20000"
# Name of a boot: its options. Tests that differ in options only by nothing share one.
BOOTS = {
    "1": f"design=metalmap {COMMON} nr_pages=1 tests=" + ",".join(FAMILY + WORKLOADS),
    "16": f"design=metalmap {COMMON} nr_pages=16 tests=fix_size_alloc_test",
    "64": f"design=metalmap {COMMON} nr_pages=64 tests=fix_size_alloc_test,vm_map_ram_test",
    "129": f"design=metalmap {COMMON} nr_pages=129 tests=fix_size_alloc_test",
    "256": f"design=metalmap {COMMON} nr_pages=256 tests=fix_size_alloc_test",
    # The blocks that the setup has half freed come back during the first 20000 operations, and 20 of them
    # would be p99.9: what is looked for is the tail of a steady load.
    "long": "design=metalmap nr_threads=1 test_loop_count=200000 nr_pages=1 tests=full_fit_alloc_test",
    "2024": f"design=2024 {COMMON} nr_pages=1 tests=fix_size_alloc_test,vm_map_ram_test",
}


class BadFigures(Exception):
    """A log or the baseline has not what it must have."""


@dataclasses.dataclass(frozen=True)
class Figure:
    """One line of the table."""

    name: str
    boot: str  # a key of BOOTS
    test: str
    kind: str = "mean"  # mean, worst (the maximum), spread (p99.9 / p50)
    limit: object = None  # the goal: a number, or the name of another figure; None: none
    linux: int = None  # Linux 6.12 on the same machine


def cost(name, boot, test, limit=None, linux=None):
    return Figure(name, boot, test, "mean", limit, linux)


COSTS = [
    cost("fix_size 1 page", "1", "fix_size_alloc_test", 150, 3250),
    cost("fix_size 16 pages", "16", "fix_size_alloc_test", 350, 8723),
    cost("fix_size 64 pages", "64", "fix_size_alloc_test", 1000, 26984),
    cost("fix_size 129 pages", "129", "fix_size_alloc_test", 3000),
    cost("fix_size 256 pages", "256", "fix_size_alloc_test", 4000),
    cost("full_fit", "1", "full_fit_alloc_test", "fix_size 1 page", 3741),
    cost("random_size", "1", "random_size_alloc_test", 1000, 21823),
    cost("long_busy_list 100 + 1 pages", "1", "long_busy_list_alloc_test", 2000, 44873),
    cost("vm_map_ram 1 page", "1", "vm_map_ram_test", 100, 750),
    cost("vm_map_ram 64 pages", "64", "vm_map_ram_test", 600, 4950),
    cost("lookup", "1", "lookup", 25),
    cost("map_ram_1page", "1", "map_ram_1page"),
    cost("alloc_touch_free", "1", "alloc_touch_free"),
    cost("remote_free, own CPU", "1", "remote_free"),
    cost("irq_alloc, own CPU", "1", "irq_alloc"),
    cost("tail 1 to 4 pages", "1", "tail"),
    cost("2024: fix_size 1 page", "2024", "fix_size_alloc_test", 1600, 3250),
    cost("2024: vm_map_ram 1 page", "2024", "vm_map_ram_test", 500, 750),
]
TAIL_BOOTS = {"full_fit": "long"}
TAILS = [Figure(f"{c.name}: {kind}", TAIL_BOOTS.get(c.name, c.boot), c.test, kind, limit)
         for c in COSTS if c.boot != "2024" for kind, limit in (("worst", WORST), ("spread", SPREAD))]
FIGURES = COSTS + TAILS


@dataclasses.dataclass
class Line:
    """A figure beside what it is compared with."""

    figure: Figure
    now: float
    baseline: float  # None: there is none
    limit: float  # None: there is none

    @property
    def over(self):
        return self.limit is not None and self.now > self.limit

    @property
    def grown(self):
        """Means by more than GROWTH; of the tail, what was within its limit and no longer is."""
        if self.baseline is None:
            return False
        if self.figure.kind == "mean":
            return self.now > self.baseline * GROWTH
        return self.over and self.baseline <= self.limit

    @property
    def verdict(self):
        words = [w for w, true in (("GROWN", self.grown), ("over", self.over)) if true]
        return " ".join(words) or "ok"


# ---- reading -------------------------------------------------------------------------------------


def records(log, kind):
    """The "# kind key=value ..." lines of a log as dicts, in their order."""
    lines = re.findall(rf"^# {kind} (.*)$", log, re.MULTILINE)
    return [dict(re.findall(r'(\w+)=("[^"]*"|\S+)', line)) for line in lines]


def figure_from(figure, log):
    found = [b for b in records(log, "bench")
             if b.get("test") == figure.test and b.get("op") in ("pair", "lookup")]
    if len(found) != 1:
        raise BadFigures(f"boot {figure.boot}: {len(found)} bench lines of {figure.test}, not one")
    bench = found[0]
    if figure.kind == "worst":
        return int(bench["max"])
    if figure.kind == "spread":
        return round(int(bench["p999"]) / max(int(bench["p50"]), 1), 1)
    return int(bench["mean"])


def read_figures(logs):
    """{name: value} of all FIGURES from {boot: log}."""
    return {f.name: figure_from(f, logs[f.boot]) for f in FIGURES}


def compiler_of(build):
    """Name and version of the compiler of a build, as the Makefile wrote it down."""
    path = os.path.join(build, "flags")
    try:
        with open(path, encoding="utf-8") as f:
            first, flags = f.readline().strip(), f.readline()
    except OSError as e:
        raise BadFigures(f"{path}: {e.strerror}: make all") from None
    if "-DCONFIG_DEBUG" in flags:
        raise BadFigures(f"{build} is a debug build: its counts say nothing")
    return first


def load_baseline(compiler, path=BASELINE):
    """{name: value}; None if nobody has measured with this compiler."""
    try:
        with open(path, encoding="utf-8") as f:
            return json.load(f).get(compiler)
    except FileNotFoundError:
        return None


def save_baseline(compiler, figures, path=BASELINE):
    every = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            every = json.load(f)
    every[compiler] = figures
    with open(path + ".new", "w", encoding="utf-8") as f:
        json.dump(every, f, indent=2, sort_keys=True)
        f.write("\n")
    os.replace(path + ".new", path)


def compare(now, baseline):
    """The Lines of all figures. baseline: {name: value} or None."""
    out = []
    for f in FIGURES:
        limit = now[f.limit] if isinstance(f.limit, str) else f.limit
        out.append(Line(f, now[f.name], (baseline or {}).get(f.name), limit))
    return out


# ---- measuring and printing ----------------------------------------------------------------------


def config_of(boot, variables):
    return run.Config(smp="1", mem="2G", boot="pvh", accel="tcg", icount=True, args=BOOTS[boot],
                      timeout=300, silence=120, build=variables.get("O") or "build",
                      qemu=variables.get("QEMU") or "qemu-system-x86_64", name=f"bench-{boot}")


def measure(variables):
    """{boot: run.Result} of all BOOTS, two at a time: the counts do not depend on the host's load."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        futures = {b: pool.submit(run.run, config_of(b, variables)) for b in BOOTS}
        return {b: f.result() for b, f in futures.items()}


def text(value):
    return "-" if value is None else f"{value:g}"


def print_table(lines):
    print("Instructions of one operation, QEMU -icount, 1 CPU\n")
    print(f"{'mean':34} {'now':>7} {'baseline':>9} {'limit':>7} {'Linux':>7}  verdict")
    for line in (x for x in lines if x.figure.kind == "mean"):
        print(f"{line.figure.name:34} {text(line.now):>7} {text(line.baseline):>9} "
              f"{text(line.limit):>7} {text(line.figure.linux):>7}  {line.verdict}")
    print(f"\n{'tail':34} {'worst':>7} {'limit':>7} {'p99.9/p50':>11} {'limit':>7}  verdict")
    tails = {x.figure.name: x for x in lines}
    for c in COSTS:
        worst, spread = tails.get(f"{c.name}: worst"), tails.get(f"{c.name}: spread")
        if worst:
            verdict = " ".join(dict.fromkeys((worst.verdict + " " + spread.verdict).split()))
            verdict = verdict.replace("ok ", "").replace(" ok", "")
            print(f"{c.name:34} {text(worst.now):>7} {text(worst.limit):>7} "
                  f"{text(spread.now):>11} {text(spread.limit):>7}  {verdict}")


def main(argv):
    if [a for a in argv if a != "--renew"]:
        sys.exit(__doc__)
    build = os.environ.get("O") or "build"
    try:
        compiler = compiler_of(build)
        results = measure(os.environ)
        for boot, result in results.items():
            if not result.passed:
                print(f"metalmap: boot {boot}: {result.verdict}: {result.reason}, {result.log_path}",
                      file=sys.stderr)
                return run.EXIT_CODE[result.verdict]
        now = read_figures({b: r.log for b, r in results.items()})
        baseline = load_baseline(compiler)
    except (BadFigures, run.UsageError) as e:
        print(f"metalmap: {e}", file=sys.stderr)
        return 2
    lines = compare(now, baseline)
    print_table(lines)
    grown, over = [x for x in lines if x.grown], [x for x in lines if x.over]
    print(f"\n{len(grown)} grown, {len(over)} over their limit"
          + ("" if baseline else f"; no baseline for {compiler}: make bench-renew"))
    if "--renew" in argv:
        save_baseline(compiler, now)
        print(f"written: {os.path.relpath(BASELINE)}, {compiler}")
        return 0
    return 1 if grown or over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
