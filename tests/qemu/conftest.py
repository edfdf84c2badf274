"""Boots the rows of matrix.py in QEMU for the tests, at most two machines at a time.

Everything that the selected tests need is started at the beginning, in the tests' order; a test waits
for its own row. A machine with many CPUs runs alone. Logs: build/logs/matrix-NAME.log.
"""

import concurrent.futures
import functools
import os
import subprocess
import sys
import threading

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tools"))

import matrix  # noqa: E402
import run  # noqa: E402

MANY_CPUS = 9  # from here on a machine runs alone
SLOTS = 2


def pytest_addoption(parser):
    group = parser.getgroup("metalmap")
    group.addoption("--tier", choices=("quick", "full"), default="quick", help="how much of the matrix")
    group.addoption("--build", default=os.environ.get("O") or os.path.join(ROOT, "build"),
                    help="where kernel.elf, BOOTX64.EFI and metalmap.img are")


# ---- what a row may need -------------------------------------------------------------------------


def qemu10(build):
    """(the program, None) or (None, why there is none)."""
    path = os.environ.get("METALMAP_QEMU10") or os.path.join(build, "qemu10", "qemu-system-x86_64")
    if not os.path.exists(path):
        return None, "no QEMU 10: run tools/fetch-qemu10, or set METALMAP_QEMU10"
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    first = done.stdout.splitlines()[:1]
    version = first[0].split("version ")[-1].split(".")[0] if first else ""
    if not version.isdigit() or int(version) < 10:
        return None, f"{path}: not QEMU 10 or newer: {(first or [done.stderr.strip()])[0]}"
    return path, None


REQUIREMENTS = {"qemu10": qemu10}


@functools.lru_cache(maxsize=None)
def requirement(name, build):
    return REQUIREMENTS[name](build)


# ---- running -------------------------------------------------------------------------------------


def config_of(row, build, number):
    """tools/run.py's Config for one run of a row."""
    files = os.path.join(build, "matrix-files")
    os.makedirs(files, exist_ok=True)
    paths = {}
    for name, data in matrix.FILES.items():
        paths[name] = os.path.join(files, name)
        if not os.path.exists(paths[name]) or open(paths[name], "rb").read() != data:
            with open(paths[name], "wb") as f:
                f.write(data)
    config = run.Config(
        smp=row.smp, mem=row.mem, cpu=row.cpu, machine=row.machine, boot=row.boot, icount=row.icount,
        accel="kvm" if os.environ.get("ACCEL") == "kvm" and not row.icount else row.accel,
        serial=row.serial, args=row.options, build=os.path.join(build, row.build),
        qemu=os.environ.get("QEMU") or "qemu-system-x86_64",
        qemu_args=[a.format(**paths) for a in row.qemu_args],
        name=f"matrix-{row.name}" + (f"-{number + 1}" if row.runs > 1 else ""))
    config.timeout = row.timeout or 180 + config.cpus
    config.silence = row.silence or config.silence
    if row.needs == "qemu10":
        config.qemu = requirement("qemu10", build)[0]
    return config


class Boots:
    """The runs of all rows that were asked for."""

    def __init__(self, build):
        self.build = build
        self.pool = concurrent.futures.ThreadPoolExecutor(SLOTS)
        self.turn = threading.Lock()
        self.slots = threading.Semaphore(SLOTS)
        self.futures = {}
        self.done = []  # (row, run.Result) as they end

    def start(self, row):
        if row.name not in self.futures:
            self.futures[row.name] = [self.pool.submit(self.one, row, n) for n in range(row.runs)]

    def one(self, row, number):
        config = config_of(row, self.build, number)
        alone = config.cpus >= MANY_CPUS if row.alone is None else row.alone
        want = SLOTS if alone else 1
        with self.turn:  # who waits for all slots is not overtaken
            for _ in range(want):
                self.slots.acquire()
        try:
            result = run.run(config)
        finally:
            self.slots.release(want)
        self.done.append((row, result))
        return result

    def results(self, row):
        """The run.Result of each of the row's runs."""
        self.start(row)
        return [f.result() for f in self.futures[row.name]]

    def stop(self):
        self.pool.shutdown(wait=True, cancel_futures=True)


# ---- pytest --------------------------------------------------------------------------------------


def pytest_configure(config):
    config.addinivalue_line("markers", "boots(row, ...): rows that the test needs beside its own")


def pytest_generate_tests(metafunc):
    if "row" in metafunc.fixturenames:
        full = metafunc.config.getoption("--tier") == "full"
        rows = [r for r in matrix.rows() if full or r.tier == "quick"]
        metafunc.parametrize("row", rows, ids=[r.name for r in rows])


def pytest_collection_finish(session):
    if session.config.option.collectonly:
        return
    build = os.path.abspath(session.config.getoption("--build"))
    boots = session.config.metalmap_boots = Boots(build)
    for item in session.items:
        row = getattr(item, "callspec", None) and item.callspec.params.get("row")
        if row and (not row.needs or requirement(row.needs, build)[0]):
            boots.start(row)
        for mark in item.iter_markers("boots"):
            for named in mark.args:
                boots.start(named)


@pytest.fixture
def boots(request):
    return request.config.metalmap_boots


@pytest.fixture
def met(request, row):
    """Skips the test if its row needs what is not here."""
    build = os.path.abspath(request.config.getoption("--build"))
    if row.needs:
        found, why = requirement(row.needs, build)
        if not found:
            pytest.skip(why)


def pytest_sessionfinish(session):
    boots = getattr(session.config, "metalmap_boots", None)
    if boots:
        boots.stop()


def pytest_terminal_summary(terminalreporter, config):
    boots = getattr(config, "metalmap_boots", None)
    if not boots or not boots.done:
        return
    terminalreporter.section("boots")
    for row, result in sorted(boots.done, key=lambda d: -d[1].seconds):
        terminalreporter.write_line(
            f"{result.seconds:7.1f} s  {row.name:24} {row.boot:4} smp={row.smp.split(',')[0]:>3} "
            f"mem={row.mem:>5}  {result.verdict}")
    terminalreporter.write_line(f"{len(boots.done)} boots of {len(boots.futures)} machines, "
                                f"{sum(r.seconds for _, r in boots.done):.0f} s in all")
