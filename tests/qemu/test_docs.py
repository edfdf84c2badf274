"""The reference pages against the code: every option is in docs/OPTIONS.md, and nothing that is none;
every counter, and every key that the reader asks for, is in docs/OUTPUT.md."""

import glob
import os
import re

import matrix
import metalmap_log

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DIRECT = re.compile(r'OPTION_(?:BOOL|UINT|ENUM|STRING)\(\s*\w+,\s*"(\w+)"')
ENTRY = re.compile(r'OPTION_ENTRY_\(\s*\w+,\s*\.key\s*=\s*"(\w+)"')
SWITCH = re.compile(r'^    X\((\w+), \w+, "', re.MULTILINE)  # of mm/vmap_config.c
KTEST = re.compile(r"^K(?:TEST|BENCH\w*)\(\s*(\w+)", re.MULTILINE)
COUNTER = re.compile(r"^\s*COUNTER\((\w+)\)", re.MULTILINE)


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as f:
        return f.read()


def sources():
    for folder in ("arch/x86_64", "boot", "boot/pvh", "lib", "mm", "tests/kernel"):
        for path in glob.glob(os.path.join(ROOT, folder, "*.c")):
            yield read(path)


def test_options_page_is_complete():
    known = {key for text in sources() for pattern in (DIRECT, ENTRY, SWITCH) for key in pattern.findall(text)}
    described = set(re.findall(r"^\| `(\w+)=` \|", read("docs", "OPTIONS.md"), re.MULTILINE))
    assert known and described == known


def test_output_page_is_complete():
    described = set(re.findall(r"`(\w+)=`", read("docs", "OUTPUT.md")))
    keys = {key for keys in metalmap_log.REQUIRED.values() for key in keys}
    counters = set(COUNTER.findall(read("mm", "vmap_stat.c")))
    assert counters and not (keys | counters) - described


def test_every_record_is_described():
    described = set(re.findall(r"^\*\*`# (\w+)`\*\*", read("docs", "OUTPUT.md"), re.MULTILINE))
    printed = {name for text in sources() for name in re.findall(r'"# (\w+) \w+=%', text)}
    printed |= {name for text in sources() for name in re.findall(r'ktap_note\("(\w+) \w+=%', text)}
    assert printed and not (printed | set(metalmap_log.RECORDS)) - described


def names_of_tests():
    """All that docs/CASES.md may name: tests on the metal, their files, host tests and their functions, fuzzers, mutants,
    checks of the models, tests in Python, tools, functions of mm/ that check."""
    names = set()
    for path in glob.glob(os.path.join(ROOT, "tests", "kernel", "*.c")):
        names |= set(KTEST.findall(read(path))) | {re.sub(r"^(ct|tv|wl)_", "", os.path.basename(path)[:-2])}
    for path in glob.glob(os.path.join(ROOT, "tests", "host", "*.c")):
        names |= {os.path.basename(path)[:-2]} | set(re.findall(r"^static void (\w+)\(void \*\*state\)", read(path), re.MULTILINE))
    for path in glob.glob(os.path.join(ROOT, "tests", "host", "mutants", "*.sed")):
        names.add(os.path.basename(path)[:-4])
    names |= {line.split()[2] for line in read("tests", "model", "checks").splitlines()
              if line.strip() and not line.startswith("#")}
    for path in glob.glob(os.path.join(ROOT, "tests", "qemu", "*.py")):
        names |= {os.path.basename(path)[:-3]} | set(re.findall(r"^def (test_\w+)", read(path), re.MULTILINE))
    names |= {os.path.basename(path) for path in glob.glob(os.path.join(ROOT, "tools", "*"))}
    for path in glob.glob(os.path.join(ROOT, "mm", "*.c")):
        names |= set(re.findall(r"^(?:static )?(?:bool|const char \*|void)\s?\*?(\w*check\w*)\(", read(path), re.MULTILINE))
    return names | set(metalmap_log.REQUIRED.get("machine", ()))


def test_cases_name_what_exists():
    """Each case of docs/CASES.md names a test, or says what stands in for one; and what it names is there."""
    known, rows = names_of_tests(), {row.name for row in matrix.rows()}
    cases = [line.split("|") for line in read("docs", "CASES.md").splitlines() if re.match(r"\| [A-Z]\d+ \|", line)]
    assert len(cases) >= 81
    for _, case, _, _, noticed, _ in cases:
        assert len(noticed.strip()) > 5, f"{case}: nothing looks for it"
        plain = re.sub(r"\*[^*]*\*|`[^`]*`", "", noticed)
        for name in re.findall(r"\b[a-z]\w*_\w+\b", plain):
            assert name in known, f"{case}: there is no {name}"
        for name in re.findall(r"\*([a-z][\w-]+)\*", noticed.replace("*(s)*", "")):
            assert name in rows or name in ("icount",), f"{case}: there is no row {name}"


def test_planted_faults_are_listed():
    """docs/TESTING.md has every rule of the oracle and every mutant, each mutant at the rule it must be found by (or at
    `panic`: a crash, too), and nothing that is none."""
    def mutants(folder):
        for path in glob.glob(os.path.join(ROOT, "tests", "host", folder, "*.sed")):
            by = read(path).splitlines()[0].split(": ")[1].split(",")
            yield os.path.basename(path)[:-4], "panic" if by[0] == "crash" else by[0]

    rows = re.findall(r"^\| (`?)([\w-]+)\1 \|(.*)\|$", read("docs", "TESTING.md"), re.MULTILINE)
    listed = {(name, rule) for _, rule, rest in rows for name in re.findall(r"\w+", rest)}
    rules = re.search(r"sim_rule_names\[\] = \{(.*?)\};", read("tests", "host", "sim", "sim_arch.c"), re.DOTALL)[1]
    assert {rule for mark, rule, _ in rows if mark} == set(re.findall(r'"([\w-]+)"', rules)) - {"ok"}
    planted = set(mutants("mutants")) | set(mutants("fuzz_mutants"))
    assert planted and not planted - listed
    functions = {f for path in glob.glob(os.path.join(ROOT, "tests", "host", "mm_*_test.c"))
                 for f in re.findall(r"^static void (test_\w+)\(void \*\*state\)", read(path), re.MULTILINE)}
    assert not {name for name, _ in listed if name.startswith("test_")} - functions - {"test_log"}
