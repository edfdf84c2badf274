#!/usr/bin/env python3
"""The findings of the discussion about vmalloc's contention, each measured here, in one table.

findings.py [--only="name name"] [--write=docs/FINDINGS.md] [--verbose] [--list]

Boots what each finding needs and prints: the finding, as reported, measured here, reproduced or not,
and why not. Everything is a ratio. Where one core suffices it is one of instructions, counted by QEMU
(-icount): exact, the same on any host. What needs several CPUs is booted in turns, several times, and
its ratios are taken turn by turn: median, and the quartiles as spread.

A claim has a least effect, stated here with it. It holds if the lower
quartile (for what must be small: the upper one) is beyond it. A finding is reproduced if all its claims
hold, in part if some do. Other figures explain; they decide nothing.

--only takes some rows (names: --list); --verbose prints each boot's command; --write writes the table,
and a paragraph for each row, to a file. Variables: O (the build directory), QEMU, FINDINGS_ONLY.
Exit status: 0 every row was measured, 1 a boot failed or a figure is missing, 2 wrong usage.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import re
import shlex
import statistics
import subprocess
import sys
import textwrap
import time

import bench
import run

FEW, MANY = 8, 64  # CPUs of what compares rates; of what counts contention
TURNS = 7


@dataclasses.dataclass(frozen=True)
class Boot:
    """One machine, as often as `turns` says. One CPU: instructions are counted."""

    name: str
    options: str
    smp: int = 1
    turns: int = 1

    @property
    def icount(self):
        return self.smp == 1

    def config(self, variables):
        return run.Config(smp=str(self.smp), mem="2G", boot="pvh", accel="tcg", icount=self.icount,
                          args=self.options, timeout=300, silence=120, build=variables.get("O") or "build",
                          qemu=variables.get("QEMU") or "qemu-system-x86_64", name=f"findings-{self.name}")

    @property
    def command(self):
        """What repeats it by hand."""
        return (f"make run BOOT=pvh ACCEL=tcg SMP={self.smp}{' ICOUNT=1' if self.icount else ''} MEM=2G "
                f"ARGS={shlex.quote(self.options)}")


@dataclasses.dataclass
class Figure:
    """A measured ratio or share, one value for each turn."""

    text: str
    values: list
    reported: str = ""
    least: float = None  # a claim: it must be at least this
    most: float = None  # or at most this
    why: str = ""  # of a claim that does not hold: what the measurement says about it
    note: str = ""  # of one that holds: what is to be known of it
    percent: bool = False

    @property
    def claim(self):
        return self.least is not None or self.most is not None

    @property
    def quartiles(self):
        """(lower, median, upper)"""
        if len(self.values) == 1:
            return (self.values[0],) * 3
        return tuple(statistics.quantiles(self.values, n=4, method="inclusive"))

    @property
    def holds(self):
        low, _, high = self.quartiles
        return (self.least is None or low >= self.least) and (self.most is None or high <= self.most)

    def show(self, value):
        if self.percent:
            return f"{value * 100:.3g} %"
        return f"{value:.0f}" if value >= 100 else f"{value:.3f}" if 0.9 < value < 1.1 else f"{value:.3g}"

    @property
    def shown(self):
        low, mid, high = self.quartiles
        spread = f" ({self.show(low)} to {self.show(high)})" if len(self.values) > 1 else ""
        return self.show(mid) + spread

    @property
    def criterion(self):
        if not self.claim:
            return ""
        return f"at least {self.show(self.least)}" if self.least is not None else f"at most {self.show(self.most)}"


@dataclasses.dataclass(frozen=True)
class Finding:
    """A row of the table."""

    name: str
    title: str
    reported: str
    theory: str
    boots: tuple
    measure: object  # {boot's name: [log of each turn]} -> [Figure]
    limits: str  # what an emulator cannot show of it, and what would


def verdict(figures):
    held = [f.holds for f in figures if f.claim]
    return "yes" if all(held) else "in part" if any(held) else "no"


def reasons(figures):
    """Why it is not (wholly) reproduced, from what was measured."""
    return [f"{f.text}: {f.shown}, not {f.criterion}" + (f"; {f.why}" if f.why else "")
            for f in figures if f.claim and not f.holds]


def notes(figures):
    return [f"{f.text}: {f.note}" for f in figures if f.note and f.holds]


# ---- reading -------------------------------------------------------------------------------------


def one(found, what):
    if len(found) != 1:
        raise bench.BadFigures(f"{len(found)} lines of {what}, not one")
    return found[0]


def mean(log, test, op="pair"):
    """Ticks of an operation: instructions where they are counted."""
    return int(one([b for b in bench.records(log, "bench") if b["test"] == test and b["op"] == op],
                   f"# bench test={test} op={op}")["mean"])


def rate(log, test, design=None):
    """The values of a rate line, as numbers."""
    found = one([r for r in bench.records(log, "rate")
                 if r["test"] == test and design in (None, r["design"])], f"# rate test={test} design={design}")
    return {k: int(v) for k, v in found.items() if v.isdigit()}


def speed(log, test):
    return rate(log, test)["ops_per_s"]


def lock(log, name, test):
    """The values of a lock class in one test, as numbers. Readers and writers of one lock together."""
    found = [x for x in bench.records(log, "lock")
             if x["class"] in (name, f"{name}-R", f"{name}-W") and x["test"] == test]
    if not found:
        raise bench.BadFigures(f"no line of # lock class={name} test={test}")
    return {k: sum(int(x[k]) for x in found) for k in ("acquisitions", "contentions", "hold_total")}


def contended(log, name, test):
    """What part of a lock's acquisitions had to wait."""
    found = lock(log, name, test)
    return found["contentions"] / found["acquisitions"]


def worker_cycles(log):
    """Mean over the workers of Linux's line "All test took"."""
    found = [int(x) for x in re.findall(r"^# All test took worker\d+=(\d+) cycles", log, re.MULTILINE)]
    if not found:
        raise bench.BadFigures("no line of # All test took")
    return statistics.mean(found)


def ratios(over, under):
    """Turn by turn."""
    return [a / b for a, b in zip(over, under)]


# ---- the findings --------------------------------------------------------------------------------

COUNTED = "test_loop_count=8000 samples=16"


def lazy_boots():
    out = [Boot(f"lazy-{search}-{purge}", f"design=2010 search={search} purge={purge} tests=alloc_touch_free {COUNTED}")
           for search in ("walk", "tree") for purge in ("lazy", "eager")]
    # The limit that 8 CPUs have: 32 MiB x fls(8).
    out.append(Boot("lazy-walk-8", "design=2010 search=walk lazy=32768 tests=alloc_touch_free "
                    "test_loop_count=16000 samples=16"))
    out.append(Boot("lazy-metalmap", f"design=metalmap tests=alloc_touch_free {COUNTED}"))
    return tuple(out)


def lazy_measure(logs):
    cost = {name: mean(turns[0], "alloc_touch_free") for name, turns in logs.items()}
    eager = cost["lazy-walk-eager"]
    return [
        Figure("walk: lazy / eager, instructions", [cost["lazy-walk-lazy"] / eager], "4.3 (2 cores)", least=2),
        Figure("walk, the lazy limit of 8 CPUs: lazy / eager", [cost["lazy-walk-8"] / eager],
               "9.9 (8 cores)", least=4),
        Figure("tree: lazy / eager", [cost["lazy-tree-lazy"] / cost["lazy-tree-eager"]], most=1,
               why="a purge that is put off must be cheaper where nothing is walked"),
        Figure("metalmap / 2010 eager", [cost["lazy-metalmap"] / eager]),
    ]


def insert_boots():
    out = []
    for insert in ("once", "twice"):
        o = f"design=2023 insert={insert} tests=stack_churn"
        out += [Boot(f"insert-{insert}", f"{o} {COUNTED}"),
                Boot(f"insert-{insert}-locks", f"{o} lockstat=on counters=each {COUNTED}"),
                Boot(f"insert-{insert}-{FEW}", f"{o} test_loop_count=12000 samples=16", FEW, TURNS)]
    out.append(Boot(f"insert-metalmap-{FEW}", "design=metalmap tests=stack_churn test_loop_count=12000 samples=16",
                    FEW, TURNS))
    return tuple(out)


def insert_measure(logs):
    cost = {i: mean(logs[f"insert-{i}"][0], "stack_churn") for i in ("once", "twice")}
    busy = {i: lock(logs[f"insert-{i}-locks"][0], "vmap_node.busy", "stack_churn") for i in ("once", "twice")}
    many = {i: [rate(log, "stack_churn") for log in logs[f"insert-{i}-{FEW}"]] for i in ("once", "twice")}
    speeds = {i: [r["ops_per_s"] for r in many[i]] for i in many}
    wait = {i: statistics.median(r["lock_contended"] / r["ops"] for r in many[i]) for i in many}
    apart = max(speeds["once"]) / min(speeds["once"])
    return [
        Figure("instructions of one stack: twice / once", [cost["twice"] / cost["once"]], least=1.005),
        Figure(f"stacks per second, {FEW} CPUs: once / twice", ratios(speeds["once"], speeds["twice"]),
               "1.06 to 1.07 (160 CPUs)", least=1.02,
               why=f"the fastest of {TURNS} equal boots has {apart:.2f} times the rate of the slowest, and what an "
                   "acquisition costs on cores, to fetch the lock's cache line from another one, an emulator "
                   f"does not have; acquisitions that had to wait, per stack: twice {wait['twice']:.3f}, "
                   f"once {wait['once']:.3f}"),
        Figure("acquisitions of the lock: twice / once", [busy["twice"]["acquisitions"] / busy["once"]["acquisitions"]]),
        Figure("instructions with the lock held: twice / once", [busy["twice"]["hold_total"] / busy["once"]["hold_total"]]),
        Figure(f"stacks per second, {FEW} CPUs: metalmap / once",
               ratios([speed(log, "stack_churn") for log in logs[f"insert-metalmap-{FEW}"]], speeds["once"])),
    ]


MASK_31 = "design=2023 run_test_mask=31 samples=16"
WORKERS = 10


def rwsem_boots():
    return tuple(
        [Boot(f"rwsem-{lock}", f"{MASK_31} lock={lock} test_loop_count=1000") for lock in ("tas", "mcs", "rw")] +
        [Boot(f"rwsem-{lock}-{WORKERS}", f"{MASK_31} lock={lock} nr_threads={WORKERS} test_loop_count=400",
              WORKERS, TURNS) for lock in ("tas", "rw")] +
        [Boot("rwsem-metalmap", "design=metalmap run_test_mask=31 samples=16 test_loop_count=1000")])


def rwsem_measure(logs):
    cost = {k: worker_cycles(logs[f"rwsem-{k}"][0]) for k in ("tas", "mcs", "rw", "metalmap")}
    cycles = {k: [worker_cycles(log) for log in logs[f"rwsem-{k}-{WORKERS}"]] for k in ("tas", "rw")}
    waits = [sum(int(r["lock_contended"]) for r in bench.records(log, "rate")) for log in logs[f"rwsem-rw-{WORKERS}"]]
    ops = sum(int(r["ops"]) for r in bench.records(logs[f"rwsem-rw-{WORKERS}"][0], "rate"))
    many = Figure(f"cycles of a worker, {WORKERS} workers: rw / tas", ratios(cycles["rw"], cycles["tas"]),
                  "1.01 to 1.20", least=1.02)
    held_up = f"waits in {ops} operations: {', '.join(map(str, sorted(waits)))}, each turn"
    many.why = f"a waiter sleeps and so leaves its host core to who has the lock; {held_up}"
    if many.quartiles[2] > 2:
        many.note = ("far above the report: whoever sleeps is woken by an interrupt and the host's scheduler; "
                     f"{held_up}")
    return [
        Figure("instructions of the tests of mask 31, nobody waits: rw / tas", [cost["rw"] / cost["tas"]], least=1.02),
        many,
        Figure("instructions, nobody waits: mcs / tas", [cost["mcs"] / cost["tas"]]),
        Figure("instructions: metalmap / 2023 with tas", [cost["metalmap"] / cost["tas"]]),
    ]


def map_ram_boots():
    o = "lockstat=on counters=each tests=map_ram_1page test_loop_count=4000 samples=16"
    return (Boot("map-global", f"design=2023 vbindex=global {o}", MANY, 5),
            Boot("map-percpu", f"design=2023 vbindex=percpu {o}", MANY, 5),
            Boot("map-metalmap", "design=metalmap tests=map_ram_1page test_loop_count=20000", MANY))


def map_ram_measure(logs):
    test = "map_ram_1page"
    index = {k: [contended(log, "vmap_index", test) for log in logs[f"map-{k}"]] for k in ("global", "percpu")}
    least = [1 / lock(log, "vmap_index", test)["acquisitions"] for log in logs["map-percpu"]]  # one, if there was none
    area = [contended(log, "vmap_node.busy", test) for log in logs["map-global"]]
    rates = [rate(log, test) for log in logs["map-global"]]
    often = statistics.median(lock(log, "vmap_node.busy", test)["acquisitions"] / r["ops"]
                              for log, r in zip(logs["map-global"], rates))
    own = rate(logs["map-metalmap"][0], test)
    return [
        Figure("one index: acquisitions that wait", index["global"], "29 %", least=0.01, percent=True,
               why="vCPUs that share two cores meet only where one is preempted with the lock"),
        Figure("wait for the index: global / percpu", [a / max(b, c) for a, b, c in zip(index["global"], index["percpu"], least)],
               "86", least=5),
        Figure("area lock: acquisitions that wait", area, "85 %", least=0.1, percent=True,
               why=f"it is taken {often:.4f} times for each mapping, since a block serves 512; so it is seldom "
                   "wanted by two at once"),
        Figure("metalmap: acquisitions that wait, per mapping", [own["lock_contended"] / own["ops"]], percent=True),
    ]


LOOKUPS = {"one": "design=2024 nodes=1 pools=off", "rwspin": "design=2024 nodes=1 pools=off lock=rwspin",
           "nodes": "design=2024", "table": "design=2024 pools=off index=table flush=gen", "metalmap": "design=metalmap"}


def lookup_boots():
    few = "tests=lookup_copy,copy_unchecked test_loop_count=30000 samples=16"
    return tuple(
        [Boot(f"lookup-{k}", f"{o} tests=lookup_copy,copy_unchecked {COUNTED}") for k, o in LOOKUPS.items()] +
        [Boot(f"lookup-{k}-locks", f"{LOOKUPS[k]} lockstat=on counters=each tests=lookup_copy test_loop_count=3000 samples=16",
              MANY, 3) for k in ("one", "nodes")] +
        [Boot(f"lookup-{k}-{FEW}", f"{o} {few}", FEW, TURNS) for k, o in LOOKUPS.items()] +
        [Boot(f"lookup-rw-{FEW}", f"{LOOKUPS['one']} lock=rw tests=lookup_copy test_loop_count=1000 samples=16", FEW, 3)])


def lookup_measure(logs):
    own = {k: mean(logs[f"lookup-{k}"][0], "lookup_copy", "lookup") - mean(logs[f"lookup-{k}"][0], "copy_unchecked", "lookup")
           for k in LOOKUPS}
    speeds = {k: [speed(log, "lookup_copy") for log in logs[f"lookup-{k}-{FEW}"]] for k in (*LOOKUPS, "rw")}
    free = [speed(log, "copy_unchecked") for log in logs[f"lookup-nodes-{FEW}"]]
    waits = {k: [contended(log, "vmap_node.busy", "lookup_copy") for log in logs[f"lookup-{k}-locks"]] for k in ("one", "nodes")}
    emulated = ("an emulated lock that is free costs as much whoever had it before, so readers pay little for sharing "
                f"one; lookups cost {own['one']} instructions with one tree, {own['rwspin']} with rwspin, {own['table']} "
                "by the table")
    return [
        Figure(f"copies per second, {FEW} CPUs: tree per node / one tree", ratios(speeds["nodes"], speeds["one"]), "5.1",
               least=1.05, why=emulated),
        Figure("one tree: rwspin / tas", ratios(speeds["rwspin"], speeds["one"]), "4.0", least=1.05, why=emulated),
        Figure("no lookup / tree per node", ratios(free, speeds["nodes"]), "1.4", least=1.05, why=emulated),
        Figure(f"acquisitions that wait, {MANY} CPUs: one tree / tree per node", ratios(waits["one"], waits["nodes"]), least=2,
               why="nodes do not keep CPUs apart"),
        Figure(f"one tree, {MANY} CPUs: acquisitions that wait", waits["one"], percent=True),
        Figure(f"tree per node, {MANY} CPUs: acquisitions that wait", waits["nodes"], percent=True),
        Figure("one tree: rw (sleeping) / tas", ratios(speeds["rw"], speeds["one"])),
        Figure("table / one tree", ratios(speeds["table"], speeds["one"])),
        Figure("metalmap / one tree", ratios(speeds["metalmap"], speeds["one"])),
        Figure("instructions of a lookup: table / tree", [own["table"] / own["nodes"]]),
        Figure("instructions of a lookup: metalmap / tree", [own["metalmap"] / own["nodes"]]),
    ]


BUFFERS = ("buf_64k", "buf_64k_vmalloc", "buf_64k_direct", "buf_64k_kept")


def buffer_boots():
    return tuple(Boot(f"buffer-{d}", f"design={d} tests={','.join(BUFFERS)} {COUNTED}")
                 for d in ("2023", "2024", "metalmap"))


def buffer_measure(logs):
    def own(design, test):
        """Without the copy."""
        return mean(logs[f"buffer-{design}"][0], test) - mean(logs[f"buffer-{design}"][0], "buf_64k_kept")

    direct = own("2023", "buf_64k_direct")
    return [
        Figure("own instructions of a buffer: vmalloc / contiguous frames", [own("2023", "buf_64k_vmalloc") / direct],
               "5", least=2),
        Figure("vmalloc's part of a buffer that is filled once",
               [own("2023", "buf_64k_vmalloc") / mean(logs["buffer-2023"][0], "buf_64k_vmalloc")], percent=True),
        Figure("2024: vmalloc / contiguous frames", [own("2024", "buf_64k_vmalloc") / direct]),
        Figure("2023: vm_map_ram / contiguous frames", [own("2023", "buf_64k") / direct]),
        Figure("metalmap: vmalloc / contiguous frames", [own("metalmap", "buf_64k_vmalloc") / direct]),
    ]


SMALL = ("fix_size_alloc_test", "alloc_touch_free", "map_ram_1page", "stack_churn", "lookup_copy")
LARGE = ("buf_64k", "buf_64k_vmalloc")
LIMIT = 10  # contended acquisitions per million operations


def independent_boots():
    counted = "lockstat=on counters=each"
    return (Boot("independent-old", f"designs=2023,2024 tests={','.join(SMALL + LARGE)} test_loop_count=400 samples=100", MANY, 2),
            Boot("independent-small", f"design=metalmap tests={','.join(SMALL)} {counted} test_loop_count=20000", MANY, 3),
            Boot("independent-large", f"design=metalmap tests={','.join(LARGE)} {counted} test_loop_count=3000", MANY, 2))


def waits_of(logs, test, design):
    """Per million operations, of all turns together."""
    found = [rate(log, test, design) for log in logs]
    return sum(r["lock_contended"] for r in found) * 1e6 / sum(r["ops"] for r in found)


def own_waits(logs, tests, what):
    """The claim about the worst of some tests on the default design, and where those wait that do."""
    waits = {t: waits_of(logs, t, "metalmap") for t in tests}
    worst = max(waits, key=waits.get)
    locks = {}
    for log in logs:
        for x in bench.records(log, "lock"):
            if int(x["contentions"]):
                locks[x["class"]] = locks.get(x["class"], 0) + int(x["contentions"])
    where = ", ".join(f"{name} {n}" for name, n in sorted(locks.items(), key=lambda x: -x[1]))
    return Figure(f"metalmap, {MANY} CPUs, {what}: waits per million operations, worst of {len(waits)} ({worst})",
                  [waits[worst]], most=LIMIT,
                  why=f"beyond it: {', '.join(t for t in tests if waits[t] > LIMIT)}; waits by lock, warming up included: {where}")


def independent_measure(logs):
    old = {d: [waits_of(logs["independent-old"], t, d) for t in SMALL + LARGE] for d in ("2023", "2024")}
    return [
        own_waits(logs["independent-small"], SMALL, "up to 4 pages"),
        own_waits(logs["independent-large"], LARGE, "64 KiB"),
        Figure("2024: waits per million operations, the median workload", [statistics.median(old["2024"])]),
        Figure("2024, the worst", [max(old["2024"])]),
        Figure("2023, the median workload", [statistics.median(old["2023"])]),
        Figure("2023, the worst", [max(old["2023"])]),
    ]


FINDINGS = (
    Finding(
        "lazy", "Delaying the purge made allocate, touch, free slower: each allocation walked past the freed areas",
        "1 million loops: 149 s lazy, 15 s with a purge at each free (8 cores); 50 s against 11.6 s (2 cores)",
        "A purge that is put off saves flushes. But in the kernels before 2.6.39 a freed area stayed in the tree until "
        "the purge, and an allocation walked from the lowest area past all of them; up to 32 MiB times fls(CPUs) of "
        "addresses may wait, so the walk costs more than the flushes that it saves, and the more CPUs, the more. With a "
        "tree of free ranges nothing is walked, and the lazy purge is the cheaper one, as it was meant.",
        lazy_boots(), lazy_measure,
        "One core counts instructions: the walk, which is what made it slow, is all there. Not in the figures: the "
        "cache misses of the walk and the flush interrupts of an eager purge, which pull the ratio in opposite "
        "directions; seconds on a machine of the time would have both."),
    Finding(
        "insert", "Two acquisitions of one lock for each allocation",
        "6 % in a test of thread creation at 160 CPUs; 7 % less in the spinlock",
        "With insert=twice an area is put into the busy tree when it has addresses, and described under a second "
        "acquisition of the same lock. Each acquisition of a lock that another core had last moves its cache line, and "
        "queues when it is taken; one acquisition less is one of three (the third is the free's).",
        insert_boots(), insert_measure,
        "The cost that was reported is that of a lock's cache line among many cores, and of their queue. TCG has "
        "neither: a locked instruction costs the same whoever had the line, and with more vCPUs than cores a lock is "
        "waited for because its holder was preempted. Instructions and acquisitions are exact; the percents need a "
        "machine with dozens of cores: the same command there, with ACCEL=kvm or from a USB stick."),
    Finding(
        "rwsem", "A sleeping reader-writer lock in place of the spinlock",
        "about 6 % with 10 workers, mask 31: 5.23 to 5.32 e11 against 4.42 to 5.16 e11 cycles of a worker",
        "All that the tests of mask 31 do with the area lock is short and writes, so readers together gain nothing; a "
        "sleeping lock takes longer to take and to leave, and a waiter pays for going to sleep and being woken.",
        rwsem_boots(), rwsem_measure,
        "One core counts what the lock itself costs. With several, a halted vCPU is woken through the host's scheduler, "
        "which costs far more than a context switch, and a holder that is preempted makes all others sleep; so the size "
        "of that ratio says nothing about cores. mcs is measured on one core only: a fair "
        "queue of more vCPUs than host cores stops whenever the next in line is not running."),
    Finding(
        "map_ram", "64 threads map and unmap one page by vm_map_ram: the area lock and the block index's lock",
        "waited for: 2.55 of 3.0 million acquisitions of the area lock; of the index 0.86 of 3.0 million, hashed per CPU 0.010 million",
        "Blocks of a CPU keep most of vm_map_ram local; what CPUs share is the index that finds a block by its address, "
        "and the lock of the areas that blocks are made of. Hashed over the CPUs by the block's number, each CPU finds "
        "its own blocks under a lock of its own. (In Linux a lookup in the index goes by RCU; here it takes the lock, so "
        "the index is wanted for each free, not for each new block only.)",
        map_ram_boots(), map_ram_measure,
        "Counted are acquisitions that had to wait, not what a wait costs. On two host cores a wait means as a rule that "
        "the holder was preempted; on 64 cores they collide by running. The ratio between the two ways is the finding; "
        "the shares themselves need 64 cores."),
    Finding(
        "lookup", "One busy tree against one for each node: a lookup before each copy",
        "48 CPUs: 114 k requests/s with one tree, 584 k with one per node; 460 k with a reader-writer lock; 832 k without lookups",
        "Every lookup takes the tree's lock, and all CPUs meet there. Trees of their own spread them; a reader-writer lock "
        "lets readers in together, though they all write its count; a table without a lock leaves only its reading. "
        "rwspin is the plain spinning lock of the report; rw, the sleeping one of another finding, is measured beside it.",
        lookup_boots(), lookup_measure,
        "How much one lock costs readers on many cores is the transfer of its cache line, which TCG does not have: there "
        "the factors are small beside the reported ones, and come from holders that are preempted and from the "
        "instructions. The factors of the report need about 48 cores."),
    Finding(
        "buffer", "64 KiB buffers in a file system's log: vmalloc's share",
        "five times less CPU after working around it",
        "For a buffer that is filled once and dropped, addresses, 16 page-table entries and their flush are a large part "
        "of the cost. Working around it means contiguous frames by the direct map where there are some. Compared is what "
        "the buffer itself costs, that is, without the copy (which buf_64k_kept measures alone).",
        buffer_boots(), buffer_measure,
        "Instructions of one core: without the shootdowns of many CPUs, the TLB misses after them, and the waits for the "
        "area lock, all of which were in the reported profile and make vmalloc dearer."),
    Finding(
        "independent", "Wanted: no contention between independent operations, whatever the structure",
        "no figure: what the discussion asks for",
        "In the default design each CPU allocates from blocks of its own, lookups take no lock, and nobody interrupts "
        f"others to flush. So in the workloads of all rows hardly any lock may be waited for: at most {LIMIT} in a million "
        "operations.",
        independent_boots(), independent_measure,
        "Waits for locks are counted. Lines that CPUs share without a lock are no waits and are not seen here; make scale "
        "and a machine with real cores show those."),
)


# ---- measuring -----------------------------------------------------------------------------------


def take(boot, variables, verbose):
    """The log of one boot."""
    result = run.run(boot.config(variables))
    if verbose:
        print(f"{result.seconds:6.1f} s  {boot.command}", file=sys.stderr, flush=True)
    if not result.passed:
        raise bench.BadFigures(f"{boot.name}: {result.verdict}: {result.reason}, {result.log_path}")
    return result.log


def measure(finding, variables, verbose=False):
    """{boot's name: [log of each turn]}. Counted ones two at a time; the others alone, in turns."""
    logs = {b.name: [] for b in finding.boots}
    counted = [b for b in finding.boots if b.icount]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for boot, log in zip(counted, pool.map(lambda b: take(b, variables, verbose), counted)):
            logs[boot.name].append(log)
    for turn in range(max(b.turns for b in finding.boots)):
        for boot in finding.boots:
            if not boot.icount and turn < boot.turns:
                logs[boot.name].append(take(boot, variables, verbose))
    return logs


def qemu_version(variables):
    done = subprocess.run([variables.get("QEMU") or "qemu-system-x86_64", "--version"], capture_output=True, text=True,
                          check=False)
    return re.sub(r" \(.*", "", done.stdout.splitlines()[0]) if done.stdout else "unknown"


def host_cores():
    return len(os.sched_getaffinity(0))


# ---- printing ------------------------------------------------------------------------------------

COLUMNS = (("finding", 26), ("as reported", 26), ("measured here (ratio)", 46), ("reproduced", 10), ("why not", 44))


def measured_lines(figures):
    return [f"{f.text}: {f.shown}" + (f" [reported {f.reported}]" if f.reported else "") for f in figures if f.claim]


def cells_of(finding, figures):
    return ([f"{finding.name}: {finding.title}"], [finding.reported], measured_lines(figures), [verdict(figures)],
            reasons(figures) + notes(figures))


def print_table(rows):
    def line(cells):
        print(" | ".join(f"{c:{width}}" for c, (_, width) in zip(cells, COLUMNS)).rstrip())

    rule = "-+-".join("-" * width for _, width in COLUMNS)
    line([name for name, _ in COLUMNS])
    for finding, figures in rows:
        print(rule)
        wrapped = [[part for text in cell for part in textwrap.wrap(text, width)]
                   for cell, (_, width) in zip(cells_of(finding, figures), COLUMNS)]
        for i in range(max(map(len, wrapped))):
            line([w[i] if i < len(w) else "" for w in wrapped])
    print(rule)


def print_rest(rows):
    print("\nBeside the claims, what explains or compares:")
    for finding, figures in rows:
        for f in figures:
            if not f.claim:
                print(f"  {finding.name:12} {f.text}: {f.shown}")


def paragraph(text):
    return textwrap.fill(text, 118) + "\n"


def document(rows, variables, seconds):
    """docs/FINDINGS.md"""
    out = ["# The findings, measured\n", paragraph(
        "Between 2010 and 2024 vmalloc's contention was discussed with figures from many kernels and machines. `make "
        "findings` measures each finding on one machine, in the designs that this kernel has of those times, and writes "
        "this page. All figures are ratios or shares. \"Instructions\" are counted by QEMU's -icount on one CPU and are "
        "exact; what needs several CPUs is booted in turns, and has a median, and the quartiles in brackets.")]
    out.append(paragraph(
        "A claim holds if its lower quartile reaches the least effect that is stated with it (for what must be small: "
        "the upper one the most). Reproduced is a finding all of whose claims hold, \"in part\" one of whose some do. "
        "The program computes this (tools/findings.py)."))
    out.append(paragraph(
        f"Machine: {qemu_version(variables)}, TCG without KVM, {host_cores()} host cores, -cpu max, 2 GiB; compiler: "
        f"{bench.compiler_of(variables.get('O') or 'build')}. Command: `make findings` "
        f"({', '.join(f.name for f, _ in rows)}; {seconds / 60:.0f} minutes)."))
    out.append("| finding | as reported | measured here | reproduced | why not |\n|---|---|---|---|---|")
    for finding, figures in rows:
        out.append("| " + " | ".join("<br>".join(cell) for cell in cells_of(finding, figures)) + " |")
    for finding, figures in rows:
        out.append(f"\n## {finding.name}\n\n{paragraph(finding.theory)}")
        out.append("| measured | ratio | reported | claim | holds |\n|---|---|---|---|---|")
        for f in figures:
            out.append(f"| {f.text} | {f.shown} | {f.reported} | {f.criterion} | "
                       f"{('yes' if f.holds else 'no') if f.claim else ''} |")
        out.append("\n" + paragraph(f"Reproduced: {verdict(figures)}. " + "".join(f"{w}. " for w in reasons(figures)) +
                                    "".join(f"{n}. " for n in notes(figures))))
        out.append(paragraph(f"What this shows, and what it cannot: {finding.limits}"))
        out.append(f"`FINDINGS_ONLY={finding.name} make findings`, or one by one:\n\n```")
        out += [b.command + (f"  # {b.turns} times, in turns" if b.turns > 1 else "") for b in finding.boots]
        out.append("```")
    return "\n".join(out) + "\n"


def arguments(argv):
    p = argparse.ArgumentParser(usage=__doc__, add_help=False)
    p.add_argument("--only", default=os.environ.get("FINDINGS_ONLY", ""))
    p.add_argument("--write", default="")
    p.add_argument("--verbose", action="store_true")
    p.add_argument("--list", action="store_true")
    args = p.parse_args(argv)
    names = [f.name for f in FINDINGS]
    only = args.only.replace(",", " ").split()
    unknown = [n for n in only if n not in names]
    if unknown:
        p.error(f"no finding {', '.join(unknown)}: {', '.join(names)}")
    args.findings = [f for f in FINDINGS if not only or f.name in only]
    return args


def main(argv):
    args = arguments(argv)
    if args.list:
        for f in args.findings:
            print(f"{f.name:12} {f.title}")
        return 0
    rows, failed, begin = [], 0, time.monotonic()
    try:
        bench.compiler_of(os.environ.get("O") or "build")  # no debug build
    except bench.BadFigures as e:
        print(f"metalmap: {e}", file=sys.stderr)
        return 2
    for finding in args.findings:
        try:
            rows.append((finding, finding.measure(measure(finding, os.environ, args.verbose))))
        except (bench.BadFigures, ZeroDivisionError) as e:
            print(f"metalmap: {finding.name}: {e}", file=sys.stderr)
            failed += 1
    seconds = time.monotonic() - begin
    if rows:
        print_table(rows)
        print_rest(rows)
    print(f"\n{len(rows)} of {len(args.findings)} findings measured in {seconds:.0f} s: {qemu_version(os.environ)}, "
          f"TCG, {host_cores()} host cores")
    if args.write and not failed:
        with open(args.write, "w", encoding="utf-8") as f:
            f.write(document(rows, os.environ, seconds))
        print(f"written: {args.write}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run.status_of(main, sys.argv[1:]))
