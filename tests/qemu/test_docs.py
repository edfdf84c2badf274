"""The reference pages against the code: every option is in docs/OPTIONS.md, and nothing that is none;
every counter, and every key that the reader asks for, is in docs/OUTPUT.md."""

import glob
import os
import re

import metalmap_log

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DIRECT = re.compile(r'OPTION_(?:BOOL|UINT|ENUM|STRING)\(\s*\w+,\s*"(\w+)"')
ENTRY = re.compile(r'OPTION_ENTRY_\(\s*\w+,\s*\.key\s*=\s*"(\w+)"')
SWITCH = re.compile(r'^    X\((\w+), \w+, "', re.MULTILINE)  # of mm/vmap_config.c
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
