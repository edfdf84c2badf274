"""Exact instruction counts: none has grown by more than 2 % over baseline.json (`make bench-renew`).

Counts depend on the compiler; one that has no baseline is not judged. Beside that, that the comparison
can fail: the logs of the same boots, doctored.
"""

import re

import pytest

import bench
import matrix

ROWS = {boot: matrix.Row(f"bench-{boot}", smp="1", mem="2G", icount=True, options=options, timeout=300)
        for boot, options in bench.BOOTS.items()}
pytestmark = pytest.mark.boots(*ROWS.values())
GROWN = 1.03  # more than bench.GROWTH
COSTS = [f for f in bench.FIGURES if f.kind == "mean"]


@pytest.fixture(name="logs")
def logs_of_boots(boots):
    """{boot: log} of the four machines."""
    out = {}
    for boot, row in ROWS.items():
        result = boots.results(row)[0]
        assert result.passed, f"{result.verdict}: {result.reason}, {result.log_path}"
        out[boot] = result.log
    return out


def doctored(logs, figure, key, value):
    """The logs with one value of a figure's bench line replaced."""
    changed, n = re.subn(rf"^(# bench test={figure.test} .*op=(?:pair|lookup) .*\b{key}=)\d+",
                         rf"\g<1>{value}", logs[figure.boot], flags=re.MULTILINE)
    assert n == 1
    return {**logs, figure.boot: changed}


def grown_names(logs, baseline):
    return [x.figure.name for x in bench.compare(bench.read_figures(logs), baseline) if x.grown]


def test_no_count_has_grown(boots, logs):
    compiler = bench.compiler_of(boots.build)
    baseline = bench.load_baseline(compiler)
    if baseline is None:
        pytest.skip(f"no baseline for {compiler}: make bench-renew")
    assert set(baseline) == {f.name for f in bench.FIGURES}, "other figures than these: make bench-renew"
    lines = bench.compare(bench.read_figures(logs), baseline)
    for line in lines:
        print(f"{line.figure.name}: {line.now:g}, baseline {line.baseline:g}, {line.verdict}")
    grown = [f"{x.figure.name}: {x.now:g}, was {x.baseline:g}, limit {bench.text(x.limit)}"
             for x in lines if x.grown]
    assert not grown, "; ".join(grown) + " (if it must be: make bench-renew)"


@pytest.mark.parametrize("figure", COSTS, ids=[f.name for f in COSTS])
def test_growth_is_seen(logs, figure):
    """3 % more in one log is found, in that figure only, and an unchanged log is not."""
    baseline = bench.read_figures(logs)
    assert not grown_names(logs, baseline)
    value = int(baseline[figure.name] * GROWN) + 1
    assert grown_names(doctored(logs, figure, "mean", value), baseline) == [figure.name]


def test_two_percent_are_allowed(logs):
    baseline = bench.read_figures(logs)
    figure = max(COSTS, key=lambda f: baseline[f.name])
    value = int(baseline[figure.name] * bench.GROWTH)
    assert not grown_names(doctored(logs, figure, "mean", value), baseline)


def test_long_operation_is_seen(logs):
    """A worst operation beyond the limit is found, if it was within it before."""
    figure = bench.TAILS[0]
    baseline = bench.read_figures(logs)
    baseline[figure.name] = bench.WORST
    assert grown_names(doctored(logs, figure, "max", bench.WORST + 1), baseline) == [figure.name]
    baseline[figure.name] = bench.WORST + 1
    assert not grown_names(doctored(logs, figure, "max", bench.WORST + 1), baseline)


def test_missing_figure_is_no_figure(logs):
    with pytest.raises(bench.BadFigures):
        bench.read_figures({**logs, "1": logs["1"].replace("# bench test=lookup ", "# bench test=other ")})


def test_baseline_is_kept_by_compiler(tmp_path):
    path = tmp_path / "baseline.json"
    assert bench.load_baseline("gcc 1", path) is None
    bench.save_baseline("gcc 1", {"a": 1}, str(path))
    bench.save_baseline("gcc 2", {"a": 2}, str(path))
    bench.save_baseline("gcc 1", {"a": 3}, str(path))
    assert bench.load_baseline("gcc 1", path) == {"a": 3}
    assert bench.load_baseline("gcc 2", path) == {"a": 2}
    assert bench.load_baseline("gcc 3", path) is None
