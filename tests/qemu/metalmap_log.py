"""Reads a serial log of metalmap strictly: what the format (docs/OUTPUT.md) does not allow raises BadLog.

The text is a KTAP version 1 stream: the banner, the version line, a plan, numbered results in order,
diagnostics that begin with '#', and one RESULT line at the end. Lines are ASCII and end in CRLF.
"""

import dataclasses
import re

LINE_MAX = 1024  # what one kprintf may give
STATUSES = ("pass", "fail", "skip", "error", "panic")
BANNER = re.compile(r"metalmap \d+\.\d+\.\d+ build=\S+")
PLAN = re.compile(r"1\.\.(\d+)")
TEST_LINE = re.compile(r"(ok|not ok) (\d+) (\S+)(?: # (SKIP|error)(?: (.*))?)?")
RESULT = re.compile(r"RESULT: (PASS|FAIL|SKIP|ERROR) tests=(\d+) fail=(\d+) skip=(\d+) error=(\d+)")
PANIC = "RESULT: PANIC"
PAIR = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(\"[^\"]*\"|[^\s\"]+)")
BENCH_ORDER = ("min", "p50", "p90", "p99", "p999", "max")
SUMMARY = re.compile(r"# Summary: (\S+) passed: (\d+) failed: (\d+) xfailed: (\d+) repeat: (\d+) "
                     r"loops: (\d+) avg: (\d+) usec")
WORKER = re.compile(r"# All test took worker(\d+)=(\d+) cycles")


class BadLog(Exception):
    """The log breaks the format: the line and why."""

    def __init__(self, number, line, why):
        super().__init__(f"line {number}: {why}: {line!r}")


@dataclasses.dataclass
class TestResult:
    """One "ok" or "not ok" line."""

    __test__ = False  # no test class of pytest
    name: str
    status: str  # pass, fail, skip, error
    why: str


@dataclasses.dataclass
class Log:
    """A log that keeps to the format."""

    lines: list  # of str, without line ends
    plan: int = None  # None: the run ended before there was a plan
    results: list = dataclasses.field(default_factory=list)
    verdict: str = ""  # one of STATUSES
    totals: dict = dataclasses.field(default_factory=dict)  # tests, fail, skip, error
    records: dict = dataclasses.field(default_factory=dict)  # "bench" -> list of dicts, and so on
    summaries: list = dataclasses.field(default_factory=list)  # (name, passed, failed, xfailed, …)
    workers: dict = dataclasses.field(default_factory=dict)  # worker -> cycles

    def machine(self):
        """The values of the "# machine" line."""
        found = self.records.get("machine", [])
        if len(found) != 1:
            raise BadLog(0, "", f"{len(found)} lines of '# machine', not one")
        return found[0]

    def bench(self, test, op="pair"):
        """The values of a test's "# bench" line."""
        found = [b for b in self.records.get("bench", []) if b["test"] == test and b["op"] == op]
        if len(found) != 1:
            raise BadLog(0, "", f"{len(found)} lines of '# bench test={test} op={op}', not one")
        return found[0]

    def result(self, name):
        return next(r for r in self.results if r.name == name)


# Diagnostics of this form are records: "# name key=value key=value …".
RECORDS = ("boot", "cpus", "machine", "run", "design", "alive", "bench", "rate", "counter", "lock")
# Keys that a record must have; all others are free.
REQUIRED = {
    "machine": ("cpus_found", "cpus_used", "apic", "tsc_hz", "tsc_source", "tsc_warp", "emulated", "hypervisor",
                "mem_mib", "nodes", "paging_levels"),
    "cpus": ("first", "apic_ids"),
    "run": ("seed", "profile", "tests", "designs", "repeat", "cpus"),
    "design": ("design", "blocks", "index", "nodes", "pools", "search", "lock", "insert", "vbindex", "purge",
               "lazy", "flush", "frames"),
    "alive": ("t", "test", "done"),
    "bench": ("test", "design", "cpus", "op", "n", *BENCH_ORDER, "mean", "unit", "emulated"),
    "rate": ("test", "design", "cpus", "ops_per_s"),
    "counter": ("free_pages", "pt_pages", "va_used", "lazy_pages", "lazy_limit", "purges", "tlb_full",
                "tlb_range", "tlb_ipis", "vmap_areas", "vmap_blocks", "alloc_fail", "bad_free",
                "lock_contended"),
    "lock": ("class", "design", "test", "acquisitions", "contentions", "bounces", "wait_min", "wait_max",
             "wait_total", "hold_max", "hold_total"),
}


def split_lines(raw):
    """The text as lines. Checks the bytes: printable ASCII, CRLF, bounded length, a complete end."""
    if not raw.endswith(b"\r\n"):
        raise BadLog(raw.count(b"\n") + 1, raw[-80:], "the log does not end with CRLF")
    out = []
    for number, line in enumerate(raw[:-2].split(b"\r\n"), 1):
        if len(line) > LINE_MAX:
            raise BadLog(number, line[:80], f"longer than {LINE_MAX} characters")
        if any(c < 0x20 or c > 0x7E for c in line):
            raise BadLog(number, line, "a byte that is not printable ASCII")
        out.append(line.decode("ascii"))
    return out


def pairs(text, number, line):
    """{key: value} of "key=value key="quoted value" …"."""
    out, rest = {}, text
    while rest:
        found = PAIR.match(rest)
        if not found:
            raise BadLog(number, line, f"not key=value: '{rest[:40]}'")
        if found[1] in out:
            raise BadLog(number, line, f"'{found[1]}' twice")
        out[found[1]] = found[2].strip('"')
        rest = rest[found.end():]
        if rest and not rest.startswith(" "):
            raise BadLog(number, line, f"no blank after '{found[0]}'")
        rest = rest[1:]
    return out


def check_bench(values, number, line):
    """Figures that can be: counted, and each percentile at least as large as the one before."""
    if not all(values[k].isdigit() for k in (*BENCH_ORDER, "n", "mean")):
        raise BadLog(number, line, "a figure that is no number")
    figures = [int(values[k]) for k in BENCH_ORDER]
    n, mean = int(values["n"]), int(values["mean"])
    if n <= 0:
        raise BadLog(number, line, "no operation was timed")
    if figures != sorted(figures):
        raise BadLog(number, line, "min, p50, p90, p99, p999, max do not rise")
    if mean <= 0:
        raise BadLog(number, line, "a mean of nothing")


class Reader:
    """Takes the lines one after another; the order they may come in is its state."""

    def __init__(self, lines):
        self.log = Log(lines)
        self.number = 0
        self.line = ""
        self.panicked = False

    def bad(self, why):
        return BadLog(self.number, self.line, why)

    def record(self, name, rest):
        values = pairs(rest, self.number, self.line)
        for key in REQUIRED.get(name, ()):
            if key not in values:
                raise self.bad(f"'# {name}' without {key}=")
        if name == "bench":
            check_bench(values, self.number, self.line)
        if name == "counter" and not all(v.isdigit() for v in values.values()):
            raise self.bad("a counter that is no number")
        self.log.records.setdefault(name, []).append(values)

    def diagnostic(self):
        if self.line.startswith("# panic:"):
            self.panicked = True
        word, _, rest = self.line[2:].partition(" ")
        summary, worker = SUMMARY.fullmatch(self.line), WORKER.fullmatch(self.line)
        if word in RECORDS:
            self.record(word, rest)
        elif summary:
            self.log.summaries.append((summary[1], *map(int, summary.groups()[1:])))
        elif worker:
            self.log.workers[int(worker[1])] = int(worker[2])
        elif word == "Summary:" or self.line.startswith("# All test took"):
            raise self.bad("not the wording of Linux's test_vmalloc")

    def test_line(self, found):
        if self.log.plan is None:
            raise self.bad("a result before the plan")
        number = len(self.log.results) + 1
        if int(found[2]) != number:
            raise self.bad(f"result number {found[2]}, {number} is next")
        if number > self.log.plan:
            raise self.bad(f"more results than the plan of {self.log.plan}")
        status = {("ok", None): "pass", ("ok", "SKIP"): "skip", ("not ok", None): "fail",
                  ("not ok", "error"): "error"}.get((found[1], found[4]))
        if status is None:
            raise self.bad("this word cannot follow this result")
        self.log.results.append(TestResult(found[3], status, found[5] or ""))

    def body(self):
        plan, test = PLAN.fullmatch(self.line), TEST_LINE.fullmatch(self.line)
        if self.line == "#" or self.line.startswith("# "):
            self.diagnostic()
        elif plan:
            if self.log.plan is not None:
                raise self.bad("a second plan")
            self.log.plan = int(plan[1])
        elif test:
            self.test_line(test)
        elif not (self.panicked and self.line == ""):
            raise self.bad("neither plan, result, diagnostic nor RESULT")

    def totals_fit(self):
        """The RESULT line against what was printed before it."""
        log = self.log
        count = {s: sum(r.status == s for r in log.results) for s in STATUSES}
        log.totals = {"tests": len(log.results), "fail": count["fail"], "skip": count["skip"]}
        numbers = map(int, RESULT.fullmatch(self.line).groups()[1:])
        said = dict(zip(("tests", "fail", "skip", "error"), numbers))
        if log.plan is None and log.verdict != "error":
            raise self.bad("no plan, and no error")
        if log.verdict == "error":
            # A run that was broken off counts what it knows of, and at least the error itself.
            if said["error"] == 0:
                raise self.bad("an error that is not counted")
            log.totals["error"] = said["error"]
            return
        log.totals["error"] = count["error"]
        if said != log.totals:
            raise self.bad(f"the results say {log.totals}")
        if len(log.results) != log.plan:
            raise self.bad(f"{len(log.results)} results, {log.plan} planned")
        expected = ("error" if count["error"] else "fail" if count["fail"] else
                    "pass" if count["pass"] else "skip")
        if log.verdict != expected:
            raise self.bad(f"the results make it {expected}")

    def read(self):
        lines = self.log.lines
        for self.number, self.line in enumerate(lines, 1):
            if self.number == 1:
                if not BANNER.fullmatch(self.line):
                    raise self.bad("not the banner")
            elif self.number == 2:
                if self.line != "KTAP version 1":
                    raise self.bad("not the version line of KTAP")
            elif self.number < len(lines):
                self.body()
        result = RESULT.fullmatch(self.line)
        if result:
            self.log.verdict = result[1].lower()
            self.totals_fit()
        elif self.line == PANIC:
            self.log.verdict = "panic"
            if not self.panicked:
                raise self.bad("a panic that is not described")
        else:
            raise self.bad("the last line is no RESULT")
        return self.log


def parse(raw):
    """The Log in raw bytes that begin with the banner, or BadLog."""
    return Reader(split_lines(raw)).read()


def parse_file(path):
    """The Log in a file that holds all of a serial line; a firmware may have spoken before."""
    with open(path, "rb") as f:
        raw = f.read()
    start = re.search(rb"^metalmap \d\S* build=", raw, re.MULTILINE)
    if not start:
        raise BadLog(0, raw[-200:], "no banner")
    return parse(raw[start.start():])
