#!/usr/bin/env python3
"""Boots metalmap in QEMU, shows its log, and ends with its verdict.

run.py [--gdb] [VARIABLE=value ...]

Variables come from the environment (the Makefile exports its own) or from the command line:
  SMP      CPUs, or all of -smp's value: 6,sockets=2,cores=3,threads=1
  MEM CPU MACHINE              QEMU's -m, -cpu, -machine
  BOOT     uefi (a small disk), usb (build/metalmap.img as a stick), pvh (-kernel)
  ACCEL    auto (KVM where it can be used), kvm, tcg; with QEMU's own properties: tcg,thread=single
  ICOUNT   1: count instructions; one CPU only
  ARGS     options for the kernel
  TIMEOUT  seconds for all of it; whatever it is, a machine that says nothing for 30 s is ended
  QEMU, QEMU_ARGS              the program, and more arguments for it
  OVMF_CODE, OVMF_VARS         firmware, if not where distributions put it
  NAME     of the log: build/logs/NAME.log
  DRY      1: print the command and do nothing
  O        the build directory

Exit status: 0 pass, 1 fail, 2 wrong usage, 3 skip, 4 error, 5 panic, 6 crash (no RESULT line, or
one that does not fit QEMU's status), 7 timeout. Tests import run(), Config and Result.
"""

import ctypes
import dataclasses
import functools
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

# (code, variables): Debian and Ubuntu; Fedora; Arch, new and old; openSUSE; QEMU's own.
FIRMWARE = [
    ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
    ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),
    ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),
    ("/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"),
    ("/usr/share/edk2-ovmf/x64/OVMF_CODE.fd", "/usr/share/edk2-ovmf/x64/OVMF_VARS.fd"),
    ("/usr/share/qemu/ovmf-x86_64-4m-code.bin", "/usr/share/qemu/ovmf-x86_64-4m-vars.bin"),
    ("/usr/share/qemu/edk2-x86_64-code.fd", "/usr/share/qemu/edk2-i386-vars.fd"),
]
BANNER = re.compile(rb"^metalmap \d\S* build=")
RESULT = re.compile(r"^RESULT: ([A-Z]+)\b")
# isa-debug-exit: QEMU's status is 2 * value + 1, see enum verdict in boot/boot_info.h.
STATUS_VERDICT = {33: "pass", 35: "fail", 37: "skip", 39: "error", 41: "panic"}
EXIT_CODE = {"pass": 0, "fail": 1, "skip": 3, "error": 4, "panic": 5, "crash": 6, "timeout": 7}
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)  # loaded before there are threads: a child must not have to


class UsageError(Exception):
    """What was asked for cannot be run: a variable's value, or something missing on this host."""


@dataclasses.dataclass
class Config:
    """One run. Defaults are those of `make run`; sizes are QEMU's strings, times are seconds."""

    smp: str = "64"
    mem: str = "2G"
    cpu: str = "max"
    machine: str = "q35"
    boot: str = "uefi"
    accel: str = "auto"
    icount: bool = False
    args: str = ""
    timeout: float = 900
    start_timeout: float = 60  # to the banner; 1 s more for each CPU
    silence: float = 30  # between two pieces of output, once the banner was there
    qemu: str = "qemu-system-x86_64"
    qemu_args: list = dataclasses.field(default_factory=list)
    # QEMU's -serial for com1, com2, ...; no stdio among them: the status judges alone
    serial: tuple = ("stdio",)
    build: str = "build"
    ovmf_code: str = ""
    ovmf_vars: str = ""
    name: str = ""
    gdb: bool = False

    @property
    def cpus(self):
        """The number in smp."""
        found = re.match(r"(?:cpus=)?(\d+)", str(self.smp))
        if not found or int(found[1]) == 0:
            raise UsageError(f"SMP={self.smp}: not a number of CPUs")
        return int(found[1])

    @property
    def log_path(self):
        name = self.name or f"{self.boot}-{self.machine.split(',')[0]}-smp{self.cpus}"
        return os.path.join(self.build, "logs", f"{name}.log")


@dataclasses.dataclass
class Result:
    """What came of a run."""

    verdict: str  # a key of EXIT_CODE
    reason: str  # one line: why it is that
    status: int  # QEMU's; negative: ended by that signal
    log: str  # from the banner line on, lines ending in LF
    seconds: float
    log_path: str  # everything that came, unchanged
    command: list

    @property
    def passed(self):
        return self.verdict == "pass"


@functools.lru_cache(maxsize=None)
def kvm_usable(qemu, machine, cpu):
    """True if QEMU can make this machine with KVM. A /dev/kvm alone does not say: it may be
    forbidden, be KVM without the CPU's virtualisation (which cannot run firmware), or refuse what
    -cpu max asks for."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
            if not re.search(r"^flags\s*:.*\b(vmx|svm)\b", f.read(), re.MULTILINE):
                return False
    except OSError:
        return False
    probe = [qemu, "-machine", machine, "-accel", "kvm", "-cpu", cpu, "-S", "-nodefaults",
             "-display", "none", "-serial", "none", "-monitor", "stdio"]
    try:
        done = subprocess.run(probe, input=b"quit\n", stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def find_firmware(config):
    """Paths of OVMF's code and of the variables to copy."""
    if config.ovmf_code and config.ovmf_vars:
        return config.ovmf_code, config.ovmf_vars
    for code, variables in FIRMWARE:
        if os.path.exists(code) and os.path.exists(variables):
            return code, variables
    raise UsageError("no OVMF firmware found: install the package ovmf (make deps), "
                     "or set OVMF_CODE and OVMF_VARS")


def built(config, name, target="all"):
    path = os.path.join(config.build, name)
    if not os.path.exists(path):
        raise UsageError(f"{path} is not there: make {target}")
    return path


def make_image(config, work, *kind):
    """A disk image with the options in metalmap.cfg."""
    cfg, image = os.path.join(work, "metalmap.cfg"), os.path.join(work, "disk.img")
    with open(cfg, "w", encoding="utf-8") as f:
        f.write(config.args + "\n")
    tool = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mkimage")
    done = subprocess.run([sys.executable, tool, *kind, "--config", cfg, "--efi",
                           built(config, "BOOTX64.EFI"), image], stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode:
        raise UsageError(done.stderr.strip())
    return image


def boot_arguments(config, work):
    """QEMU's arguments for the way of booting. Writes what it needs to the directory work."""
    if config.boot == "pvh":
        return ["-vga", "none", "-kernel", built(config, "kernel.elf"), "-append", config.args]
    if config.boot not in ("uefi", "usb"):
        raise UsageError(f"BOOT={config.boot}: uefi, usb or pvh")
    code, variables = find_firmware(config)
    own = os.path.join(work, "vars.fd")
    shutil.copyfile(variables, own)
    os.chmod(own, 0o600)
    out = ["-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={code}",
           "-drive", f"if=pflash,unit=1,format=raw,file={own}"]
    if config.boot == "usb":
        image = built(config, "metalmap.img", "usb")
        if config.args:
            image = make_image(config, work)
        return out + ["-drive", f"if=none,id=stick,format=raw,snapshot=on,file={image}",
                      "-device", "qemu-xhci", "-device", "usb-storage,drive=stick,bootindex=0"]
    image = make_image(config, work, "--raw")
    return out + ["-drive", f"if=none,id=esp,format=raw,file={image}",
                  "-device", "virtio-blk-pci,drive=esp,bootindex=0"]


def command_line(config, work):
    """QEMU's command. Raises UsageError for what cannot be."""
    cpus = config.cpus
    accel = config.accel
    if accel.split(",")[0] not in ("auto", "kvm", "tcg"):
        raise UsageError(f"ACCEL={accel}: auto, kvm or tcg")
    if config.icount:
        if cpus != 1:
            raise UsageError("ICOUNT=1 counts one CPU only: SMP=1")
        if accel.startswith("kvm"):
            raise UsageError("ICOUNT=1 needs the emulator: ACCEL=tcg")
        accel = "tcg"
    if not shutil.which(config.qemu):
        raise UsageError(f"'{config.qemu}' is missing: install the package qemu-system-x86 "
                         "(make deps)")
    if accel == "auto":
        accel = "kvm" if kvm_usable(config.qemu, config.machine, config.cpu) else "tcg"
    machine = config.machine
    more = []
    if cpus > 255:
        # APIC IDs above 254 need interrupt remapping, which KVM does with a split irqchip only.
        if accel.startswith("kvm"):
            machine += ",kernel-irqchip=split"
        more = ["-device", "intel-iommu,intremap=on,eim=on"]
    out = [config.qemu, "-machine", machine, "-accel", accel, "-cpu", config.cpu,
           "-smp", str(config.smp), "-m", config.mem]
    if config.icount:
        out += ["-icount", "shift=0,sleep=off"]
    out += ["-display", "none", "-monitor", "none", "-nic", "none", "-no-reboot",
            "-device", "isa-debug-exit,iobase=0xf4,iosize=4"]
    for port in config.serial:
        out += ["-serial", port]
    if config.gdb:
        out += ["-s", "-S"]
    return out + more + boot_arguments(config, work) + list(config.qemu_args)


def end_with_parent():
    """In the child: it ends when this thread does, however that ends (Linux)."""
    try:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except AttributeError:
        pass


class Watch:
    """Follows one QEMU: keeps its output, hands complete lines on, and knows when to give up."""

    def __init__(self, config, on_line):
        self.config = config
        self.on_line = on_line
        self.start = self.last = time.monotonic()
        self.mute = "stdio" not in " ".join([*config.serial, *config.qemu_args])
        self.seen_banner = False
        self.pending = b""
        self.lines = []

    def feed(self, data):
        self.last = time.monotonic()
        self.pending += data
        *lines, self.pending = self.pending.split(b"\n")
        for line in lines:
            self.take(line.rstrip(b"\r"))

    def finish(self):
        if self.pending:
            self.take(self.pending)
            self.pending = b""

    def take(self, line):
        if not self.seen_banner and BANNER.search(line):
            self.seen_banner = True
        text = line.decode("ascii", "replace")
        self.lines.append((self.seen_banner, text))
        if self.seen_banner and self.on_line:
            self.on_line(text)

    def limits(self):
        """(deadline, what passing it means), the nearest first."""
        c = self.config
        out = [(self.start + c.timeout, f"not done after {c.timeout:g} s")]
        if self.mute:
            return out[0]
        if self.seen_banner:
            out.append((self.last + c.silence, f"nothing said for {c.silence:g} s"))
        else:
            wait = c.start_timeout + c.cpus
            out.append((self.start + wait, f"not started after {wait:g} s"))
        return min(out)

    def log(self):
        return "".join(text + "\n" for own, text in self.lines if own)

    def result_line(self):
        for _, text in reversed(self.lines):
            found = RESULT.match(text)
            if found:
                return found[1].lower()
        return None


def judge(status, result, expired, stderr, mute=False):
    """(verdict, reason) from QEMU's status, the RESULT line and a limit that passed. mute: there is
    no line that could be heard."""
    by_status = STATUS_VERDICT.get(status)
    if expired:
        return "timeout", expired
    if by_status and mute:
        return by_status, f"status {status}"
    if by_status and by_status == result:
        return by_status, f"RESULT: {result.upper()}, status {status}"
    if result is None:
        last = stderr.strip().splitlines()[-1:] or ["no RESULT line"]
        return "crash", f"{last[0]}, status {status}"
    return "crash", f"RESULT: {result.upper()} does not fit status {status}"


def follow(process, watch, raw):
    """Reads until the end of output or a limit; returns what limit it was, or None."""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            deadline, meaning = watch.limits()
            wait = deadline - time.monotonic()
            if wait <= 0:
                return meaning
            if not selector.select(min(wait, 1)):
                continue
            data = os.read(process.stdout.fileno(), 65536)
            if not data:
                return None
            raw.write(data)
            raw.flush()
            watch.feed(data)


def run(config, on_line=None, on_start=None):
    """Boots by config and waits for the end. on_line(text) gets each line from the banner on,
    on_start(pid) QEMU's process.

    Never raises for what the machine does; UsageError if it cannot be started at all.
    """
    os.makedirs(os.path.join(config.build, "logs"), exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=config.build) as work:
        command = command_line(config, work)
        watch = Watch(config, on_line)
        with open(config.log_path, "wb") as raw, tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=errors, preexec_fn=end_with_parent)
            try:
                if on_start:
                    on_start(process.pid)
                expired = follow(process, watch, raw)
                # Its end of the pipe is closed: it is ending.
                if not expired:
                    process.wait(10)
            except subprocess.TimeoutExpired:
                expired = "QEMU did not end"
            finally:
                process.kill()
                status = process.wait()
                process.stdout.close()
            watch.finish()
            errors.seek(0)
            stderr = errors.read().decode("utf-8", "replace")
    latest = os.path.join(config.build, "logs", "latest.log")
    link_to(latest, os.path.basename(config.log_path))
    verdict, reason = judge(status, watch.result_line(), expired, stderr, watch.mute)
    return Result(verdict, reason, status, watch.log(), time.monotonic() - watch.start,
                  config.log_path, command)


def link_to(link, target):
    """Replaces the symbolic link; runs side by side may do it at the same time."""
    tmp = f"{link}.{os.getpid()}.{threading.get_ident()}"
    os.symlink(target, tmp)
    os.replace(tmp, link)


class Screen:
    """Shows the log: as it is in a pipe; on a terminal heartbeats are one line that changes."""

    def __init__(self, stream):
        self.stream = stream
        self.terminal = stream.isatty()
        self.progress = False

    def line(self, text):
        beat = self.terminal and text.startswith("# alive ")
        if self.progress:
            self.stream.write("\r\033[K")
        self.progress = beat
        if beat:
            width = shutil.get_terminal_size().columns
            self.stream.write(text[2 : width + 1])
        else:
            self.stream.write(text + "\n")
        self.stream.flush()


def config_from(variables):
    """A Config from the variables of the module's text above; empty ones mean the default."""
    names = {"SMP": "smp", "MEM": "mem", "CPU": "cpu", "MACHINE": "machine", "BOOT": "boot",
             "ACCEL": "accel", "ARGS": "args", "QEMU": "qemu", "OVMF_CODE": "ovmf_code",
             "OVMF_VARS": "ovmf_vars", "NAME": "name", "O": "build"}
    config = Config(**{field: variables[key] for key, field in names.items() if variables.get(key)})
    config.icount = variables.get("ICOUNT", "") not in ("", "0")
    config.qemu_args = shlex.split(variables.get("QEMU_ARGS", ""))
    if variables.get("TIMEOUT"):
        try:
            config.timeout = float(variables["TIMEOUT"])
        except ValueError:
            raise UsageError(f"TIMEOUT={variables['TIMEOUT']}: not a number of seconds") from None
    return config


def show_gdb(config):
    """Starts QEMU stopped, for a debugger, on this terminal."""
    with tempfile.TemporaryDirectory(prefix="run-", dir=config.build) as work:
        command = command_line(config, work)
        elf = os.path.join(config.build, "kernel.elf")
        print(f"The machine waits. In another terminal:\n  gdb {elf} -ex 'target remote :1234' "
              "-ex 'hbreak kernel_entry' -ex continue", flush=True)
        return subprocess.call(command, preexec_fn=end_with_parent)


def show_command(config):
    """Prints the command as it would be, with names in place of the files made for a run."""
    with tempfile.TemporaryDirectory(prefix="run-", dir=config.build) as work:
        print(shlex.join(command_line(config, work)))
    return 0


def status_of(main, argv):
    """What main(argv) returns; a line, and 2 or 130, if it cannot be run or is interrupted."""
    try:
        return main(argv)
    except UsageError as e:
        print(f"metalmap: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("metalmap: interrupted", file=sys.stderr)
        return 130


def main(argv):
    gdb = "--gdb" in argv
    given = [a for a in argv if a != "--gdb"]
    if any("=" not in a for a in given):
        sys.exit(__doc__)
    variables = dict(os.environ, **dict(a.split("=", 1) for a in given))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_CODE["timeout"]))
    config = config_from(variables)
    os.makedirs(config.build, exist_ok=True)
    if variables.get("DRY", "") not in ("", "0"):
        return show_command(config)
    if gdb:
        config.gdb = True
        return show_gdb(config)
    result = run(config, Screen(sys.stdout).line)
    print(f"metalmap: {result.verdict}: {result.reason}, {result.seconds:.1f} s, {result.log_path}",
          file=sys.stderr)
    if not result.passed and not result.log:
        with open(result.log_path, "rb") as f:
            tail = f.read()[-2000:].decode("ascii", "replace")
        print(f"metalmap: no banner came; the last output was:\n{tail}", file=sys.stderr)
    return EXIT_CODE[result.verdict]


if __name__ == "__main__":
    sys.exit(status_of(main, sys.argv[1:]))
