"""tools/scale.py's arguments: what cannot be run is said in a line, before anything is booted."""

import os
import subprocess
import sys

import pytest

import scale

PROGRAM = scale.__file__


@pytest.mark.parametrize("argument, said", [
    ("--cpus=0", "'0' is not a whole number"), ("--cpus=-1", "'-1' is not"), ("--cpus=x", "'x' is not"),
    ("--cpus=", "'' is not"), ("--cpus=1,,2", "'' is not"), ("--cpus=2.5", "'2.5' is not"),
    ("--cpus=2,02", "twice"), ("--runs=0", "'0' is not a whole number"), ("--runs=x", "'x' is not"),
    ("--seconds=0", "not a number of seconds"), ("--seconds=nan", "not a number of seconds"),
    ("--seconds=x", "not a number of seconds"), ("--tests=", "a name is missing"),
    ("--designs=", "a name is missing"), ("--designs=2024,2024", "twice"), ("--bogus", "--bogus"), ("8", "8")])
def test_wrong_usage(argument, said, tmp_path):
    done = subprocess.run([sys.executable, PROGRAM, argument], capture_output=True, text=True, check=False,
                          timeout=60, env=dict(os.environ, O=str(tmp_path)))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert said in done.stderr.splitlines()[-1]
    assert not os.listdir(tmp_path)


def test_what_is_right_is_taken():
    args = scale.arguments(["--cpus=8,2,64", "--tests=a,b", "--designs=2024", "--runs=2", "--seconds=0.5"])
    assert (args.cpus, args.tests, args.designs, args.runs, args.seconds) == ([2, 8, 64], ["a", "b"], ["2024"], 2, 0.5)
    assert scale.arguments([]).cpus == [1, 2, 8, 64]
    assert scale.compared(args.cpus) == (2, 64) and scale.compared([1]) == (1, 1)


def test_table(capsys):
    """A test's share of what the machine leaves; the control itself is not judged."""
    def samples(two, many, contended):
        return {2: [scale.Sample(two, 1000000, 0, 0, 2.0)], 64: [scale.Sample(many, 1000000, contended, 0, 2.0)]}

    rows = {"private": scale.row_of(samples(1000, 800, 0), 2, 64), "a": scale.row_of(samples(100, 76, 0), 2, 64),
            "b": scale.row_of(samples(100, 95, 10), 2, 64), "c": scale.row_of(samples(100, 95, 11), 2, 64)}
    scale.print_table("metalmap", rows, [2, 64])
    lines = {words[0]: " ".join(words[3:]) for words in map(str.split, capsys.readouterr().out.splitlines()) if words}
    assert lines["private"] == "0.80 1.00 0.80 2.00/2.00 0.0 0.0 the machine's own"
    assert lines["a"] == "0.76 0.95 0.76 2.00/2.00 0.0 0.0 over: ratio"
    assert lines["b"] == "0.95 1.19 0.95 2.00/2.00 10.0 0.0 ok"
    assert lines["c"] == "0.95 1.19 0.95 2.00/2.00 11.0 0.0 over: contended"
