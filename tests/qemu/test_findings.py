"""The table of tools/findings.py: its arithmetic on recorded lines, and two rows that one core counts.

The counted rows are exact, so their direction is the same on any host; logs with the roles exchanged
must turn their verdict.
"""

import os
import re

import pytest

import bench
import findings
import matrix

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BY_NAME = {f.name: f for f in findings.FINDINGS}
PAIR_COST = 16  # instructions of taking and leaving a free lock that is not counted: 14 with gcc


def row_of(boot):
    return matrix.Row(f"findings-{boot.name}", smp=str(boot.smp), mem="2G", icount=True, options=boot.options,
                      timeout=300)


LAZY = {b.name: row_of(b) for b in BY_NAME["lazy"].boots if b.name != "lazy-walk-8"}
INSERT = {b.name: row_of(b) for b in BY_NAME["insert"].boots if b.icount}
LOCK_COST = matrix.Row("lock-cost", smp="1", mem="512M", icount=True, options="tests=lock_cost", timeout=120)


def logs_of(boots, rows):
    out = {}
    for name, row in rows.items():
        result = boots.results(row)[0]
        assert result.passed, f"{result.verdict}: {result.reason}, {result.log_path}"
        out[name] = [result.log]
    return out


# ---- counted rows --------------------------------------------------------------------------------


@pytest.mark.boots(*LAZY.values())
def test_lazy_purge_is_reproduced(boots):
    logs = logs_of(boots, LAZY)
    logs["lazy-walk-8"] = logs["lazy-walk-lazy"]  # the long boot: the limit of one CPU instead of eight
    figures = BY_NAME["lazy"].measure(logs)
    for f in figures:
        print(f"{f.text}: {f.shown}")
    assert findings.verdict(figures) == "yes", findings.reasons(figures)
    # The same with the roles exchanged.
    logs["lazy-walk-lazy"], logs["lazy-walk-eager"] = logs["lazy-walk-eager"], logs["lazy-walk-lazy"]
    turned = BY_NAME["lazy"].measure(logs)
    assert findings.verdict(turned) != "yes" and findings.reasons(turned)


@pytest.mark.boots(*INSERT.values())
def test_second_acquisition_costs(boots):
    """Three acquisitions of the lock for two, and more instructions."""
    logs = logs_of(boots, INSERT)
    cost = {i: findings.mean(logs[f"insert-{i}"][0], "stack_churn") for i in ("once", "twice")}
    busy = {i: findings.lock(logs[f"insert-{i}-locks"][0], "vmap_node.busy", "stack_churn") for i in ("once", "twice")}
    print(cost, busy)
    assert cost["twice"] > cost["once"]
    assert busy["twice"]["acquisitions"] * 2 == busy["once"]["acquisitions"] * 3
    assert all(b["contentions"] == 0 for b in busy.values())  # one CPU


@pytest.mark.boots(LOCK_COST)
def test_no_cost_without_statistics(boots):
    log = logs_of(boots, {"lock": LOCK_COST})["lock"][0]
    found = re.search(r"^# note test=lock_cost pairs=(\d+) plain=(\d+) counted=(\d+)$", log, re.MULTILINE)
    pairs, plain, counted = map(int, found.groups())
    print(f"{plain / pairs} instructions of a pair, {counted / pairs} counted")
    assert plain / pairs <= PAIR_COST
    assert counted > 2 * plain


# ---- arithmetic ----------------------------------------------------------------------------------

LOG = """\
# bench test=a design=2023 cpus=1 op=pair n=10 min=1 p50=2 p90=2 p99=2 p999=2 max=3 mean=200 unit=tsc emulated=yes
# bench test=a design=2023 cpus=1 op=alloc n=10 min=1 p50=2 p90=2 p99=2 p999=2 max=3 mean=70 unit=tsc emulated=yes
# rate test=a design=2023 cpus=8 ops_per_s=5000 ops=1000 lock_contended=30 tlb_ipis=0
# rate test=a design=2024 cpus=8 ops_per_s=7000 ops=1000 lock_contended=10 tlb_ipis=0
# lock class=t.busy-R design=2023 test=a acquisitions=900 contentions=9 bounces=0 wait_min=0 wait_max=0 wait_total=0 hold_max=3 hold_total=1800
# lock class=t.busy-W design=2023 test=a acquisitions=100 contentions=1 bounces=0 wait_min=0 wait_max=0 wait_total=0 hold_max=3 hold_total=200
# lock class=t.free design=2023 test=b acquisitions=5 contentions=0 bounces=0 wait_min=0 wait_max=0 wait_total=0 hold_max=3 hold_total=9
# All test took worker0=1000 cycles
# All test took worker1=3000 cycles
"""


def test_lines_are_read():
    assert findings.mean(LOG, "a") == 200 and findings.mean(LOG, "a", "alloc") == 70
    assert findings.rate(LOG, "a", "2024")["ops_per_s"] == 7000
    assert findings.lock(LOG, "t.busy", "a") == {"acquisitions": 1000, "contentions": 10, "hold_total": 2000}
    assert findings.contended(LOG, "t.busy", "a") == 0.01
    assert findings.worker_cycles(LOG) == 2000
    assert findings.waits_of([LOG, LOG.replace("lock_contended=30", "lock_contended=50")], "a", "2023") == 40000


@pytest.mark.parametrize("read", [
    lambda: findings.mean(LOG, "b"), lambda: findings.mean(LOG + LOG, "a"), lambda: findings.rate(LOG, "a"),
    lambda: findings.lock(LOG, "t.busy", "b"), lambda: findings.worker_cycles("")])
def test_missing_line_is_no_figure(read):
    with pytest.raises(bench.BadFigures):
        read()


def test_claim_must_be_beyond_the_spread():
    """The median alone does not do: the quartile on the near side has to reach the least effect."""
    clear = findings.Figure("a", [1.5, 1.6, 1.7, 1.8, 1.2], least=1.4)
    assert clear.quartiles == (1.5, 1.6, 1.7) and clear.holds
    assert not findings.Figure("a", [1.2, 1.3, 1.6, 1.8, 1.9], least=1.4).holds
    assert findings.Figure("a", [0.5, 0.6, 0.9], most=0.8).holds
    assert not findings.Figure("a", [0.5, 0.7, 1.2], most=0.8).holds
    assert findings.Figure("a", [1.4], least=1.4).holds and not findings.Figure("a", [1.39], least=1.4).holds


def test_verdict_is_that_of_the_claims():
    good, bad = findings.Figure("g", [2], least=1), findings.Figure("b", [1], least=2, why="it is small")
    beside = findings.Figure("beside", [0])
    assert findings.verdict([good, beside]) == "yes" and not findings.reasons([good, beside])
    assert findings.verdict([good, bad]) == "in part"
    assert findings.verdict([bad, beside]) == "no"
    assert findings.reasons([good, bad]) == ["b: 1.000, not at least 2; it is small"]


def test_every_row_has_a_claim_and_its_commands():
    assert len(findings.FINDINGS) == len(BY_NAME) == 7
    names = [b.name for f in findings.FINDINGS for b in f.boots]
    assert len(names) == len(set(names))
    for f in findings.FINDINGS:
        for b in f.boots:
            assert b.icount == ("ICOUNT=1" in b.command) and b.options in b.command


def test_page_has_every_row():
    with open(os.path.join(ROOT, "docs", "FINDINGS.md"), encoding="utf-8") as f:
        page = f.read()
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == [f.name for f in findings.FINDINGS]
    for f in findings.FINDINGS:
        assert f.reported in page and all(b.command in page for b in f.boots)
