#!/usr/bin/env python3
"""coverage.py [--bound DIR=LINES,BRANCHES]... [--show PATH]... OUT PROGRAM...

Line and branch coverage of the host tests. Each OUT/PROGRAM was built by clang with
-fprofile-instr-generate -fcoverage-mapping and has left OUT/PROGRAM.profraw. What any program
reached is reached: they are compiled with different options, so llvm-cov cannot merge them.

A branch is one outcome of one condition (each operand of && and || is one). Left out: conditions
inside the parentheses of ASSERT, ASSERT_DBG, ASSERT_FULL, whose failure is a bug and no case; and
conditions that are constant in every build. Lines are counted as llvm-cov does, see line_counts().

Prints a table; exits with 1 if a bound (percent) is not reached. --show lists what was not reached
in files whose path begins so.
"""

import argparse
import collections
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ASSERTION = re.compile(r"\bASSERT(_DBG|_FULL)?\(")
EXPANSION_REGION = 1


def export(out, program):
    """llvm-cov's data about one program."""
    path = os.path.join(out, program)
    raw, data = path + ".profraw", path + ".profdata"
    subprocess.run(["llvm-profdata", "merge", "-sparse", raw, "-o", data], check=True)
    text = subprocess.run(
        ["llvm-cov", "export", "-skip-expansions", "-instr-profile", data, path],
        check=True, stdout=subprocess.PIPE).stdout
    return json.loads(text)["data"][0]


def line_counts(segments):
    """{line: count} from the segments of a file, as LineCoverageStats of LLVM's CoverageMapping.cpp.

    But a gap, which is what lies between two pieces of code, says nothing about the line that it
    ends in: what goes on there does. Else each line after an assertion, whose failure does not
    return, would count as not reached.
    """
    by_line = collections.defaultdict(list)
    for s in segments:
        by_line[s[0]].append(s)
    counts = {}
    around = None  # the segment that reaches into the line
    for line in range(segments[0][0], segments[-1][0] + 1) if segments else ():
        here = by_line.get(line, [])
        skipped = bool(here) and not here[0][3] and here[0][4]
        in_gap = bool(around) and around[5]
        found = [s[2] for s in here if s[3] and not s[5] and (s[4] or in_gap)]
        if around and around[3] and not in_gap:
            found.append(around[2])
        if not skipped and found:
            counts[line] = max(found)
        if here:
            around = here[-1]
    return counts


def assertions(text):
    """[((line, column), (line, column))]: from the name to the closing parenthesis; columns from 1."""
    found = []
    for m in ASSERTION.finditer(text):
        depth, end = 1, m.end()
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        found.append((place(text, m.start()), place(text, end)))
    return found


def place(text, offset):
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


class File:
    def __init__(self, path):
        self.lines = {}
        self.branches = {}  # where -> [times true, times false]
        with open(path, encoding="utf-8") as f:
            self.text = f.read()
        self.assertions = assertions(self.text)
        # An `else` alone is between two pieces of code.
        self.bare = {n for n, line in enumerate(self.text.split("\n"), 1) if line.strip() == "else"}

    def asserted(self, where):
        return any(begin <= where < end for begin, end in self.assertions)


class Coverage:
    def __init__(self, root, dirs):
        self.root = root + os.sep
        self.dirs = tuple(d + os.sep for d in dirs)
        self.files = {}

    def file(self, path):
        path = os.path.normpath(os.path.join(self.root, path))
        if not path.startswith(self.root) or not path[len(self.root):].startswith(self.dirs):
            return None
        name = path[len(self.root):]
        if name not in self.files:
            self.files[name] = File(path)
        return self.files[name]

    def add(self, data):
        for f in data["files"]:
            file = self.file(f["filename"])
            if file:
                for line, count in line_counts(f["segments"]).items():
                    if line not in file.bare:
                        file.lines[line] = file.lines.get(line, 0) + count
        for function in data["functions"]:
            self.add_branches(function)

    def add_branches(self, function):
        """A branch of a macro counts where the macro is used, once for each use."""
        used_at = {r[6]: r for r in function["regions"] if r[7] == EXPANSION_REGION}
        for b in function["branches"]:
            chain, at = [tuple(b[:4])], b[6]
            while at in used_at:
                chain.append(tuple(used_at[at][:4]))
                at = used_at[at][5]
            file = self.file(function["filenames"][at])
            if file and not file.asserted(chain[-1][:2]):
                both = file.branches.setdefault(tuple(reversed(chain)), [0, 0])
                both[0] += b[4]
                both[1] += b[5]

    def finish(self):
        """Conditions that no build evaluates, though their line is reached, are constant."""
        for file in self.files.values():
            file.branches = {w: n for w, n in file.branches.items()
                             if any(n) or not file.lines.get(w[0][0])}

    def total(self, prefix):
        files = [f for name, f in self.files.items() if name.startswith(prefix)]
        lines = [n for f in files for n in f.lines.values()]
        branches = [n for f in files for both in f.branches.values() for n in both]
        return len(lines), sum(map(bool, lines)), len(branches), sum(map(bool, branches))


def percent(part, whole):
    return 100.0 * part / whole if whole else 100.0


def row(name, lines, lines_hit, branches, branches_hit):
    return "%-32s %6d %6.1f %% %8d %6.1f %%" % (name, lines, percent(lines_hit, lines), branches,
                                                percent(branches_hit, branches))


def show(name, file):
    source = file.text.split("\n")
    notes = {line: ["line"] for line, count in file.lines.items() if not count}
    for where, both in file.branches.items():
        begin, end = where[0][:2], where[0][2:]
        if begin[0] in notes and "line" in notes[begin[0]]:
            continue
        text = source[begin[0] - 1][begin[1] - 1:end[1] - 1 if begin[0] == end[0] else None]
        for outcome, count in zip(("never true", "never false"), both):
            if not count:
                notes.setdefault(begin[0], []).append("%s: %s" % (outcome, text))
    for line in sorted(notes):
        if notes[line] == ["line"]:
            print("%s:%d: not reached: %s" % (name, line, source[line - 1].strip()))
        else:
            for note in notes[line]:
                print("%s:%d: %s" % (name, line, note))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bound", action="append", default=[])
    parser.add_argument("--show", action="append", default=[])
    parser.add_argument("--also", action="append", default=[], help="DIR without a bound")
    parser.add_argument("out")
    parser.add_argument("programs", nargs="+")
    a = parser.parse_args()

    bounds = {}
    for b in a.bound:
        name, _, figures = b.partition("=")
        bounds[name] = tuple(float(f) for f in figures.split(","))
    coverage = Coverage(os.getcwd(), list(bounds) + a.also)
    with ThreadPoolExecutor(2) as pool:
        for data in pool.map(lambda p: export(a.out, p), a.programs):
            coverage.add(data)
    coverage.finish()

    for prefix in a.show:
        for name in sorted(coverage.files):
            if name.startswith(prefix):
                show(name, coverage.files[name])
    print("%-32s %6s %8s %8s %8s" % ("file", "lines", "reached", "branches", "reached"))
    for name in sorted(coverage.files):
        print(row(name, *coverage.total(name)))
    failed = False
    for name in list(bounds) + a.also:
        lines, lines_hit, branches, branches_hit = coverage.total(name + os.sep)
        print(row("total " + name + os.sep, lines, lines_hit, branches, branches_hit))
        for what, bound, part, whole in zip(("lines", "branches"), bounds.get(name, ()),
                                            (lines_hit, branches_hit), (lines, branches)):
            if not whole or percent(part, whole) < bound:
                print("coverage: FAILED: %s/: %.1f %% of the %s, at least %g %% are required" %
                      (name, percent(part, whole), what, bound))
                failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
