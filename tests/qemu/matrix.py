"""The boot matrix as data: which machines are booted, and what must come of each.

A row is one machine. Its defaults are a small PVH boot; what a row shows is what it sets. conftest.py
runs the rows, test_matrix.py checks them.
"""

import dataclasses
import struct

# The test_vmalloc family: each of these prints a Summary, a bench and a rate line.
FAMILY = ("fix_size_alloc_test", "full_fit_alloc_test", "long_busy_list_alloc_test",
          "random_size_alloc_test", "fix_align_alloc_test", "random_size_align_alloc_test",
          "align_shift_alloc_test", "pcpu_alloc_test", "kvfree_rcu_1_arg_vmalloc_test",
          "kvfree_rcu_2_arg_vmalloc_test", "vm_map_ram_test", "no_block_alloc_test", "vrealloc_test")

ALL = "profile=smoke"  # every test, a little of each
SHORT = "profile=smoke tests=fix_size_alloc_test,vm_map_ram_test"  # that it boots and measures
FIGURES = "design=2024 nr_threads=1 test_loop_count=20000"


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    # The machine, as tools/run.py takes it.
    boot: str = "pvh"
    smp: str = "2"
    mem: str = "512M"
    cpu: str = "max"
    machine: str = "q35"
    accel: str = "tcg"
    icount: bool = False
    serial: tuple = ("stdio",)
    qemu_args: tuple = ()  # {NAME} stands for a file that holds FILES[NAME]
    options: str = SHORT  # the kernel's
    # What must come of it.
    verdict: str = "pass"
    by: str = "both"  # the verdict comes from both, from the log only, or from the status only
    banner: bool = True  # False: it ends before there is one; the log has lines and RESULT only
    status: int = None  # QEMU's, if by is "log"
    cpus: int = None  # used; None: as many as smp says
    apic: str = None  # xapic or x2apic; None: either
    apic_ids: tuple = None  # in the order of the CPU numbers; None: any, all different
    nodes: int = 1
    levels: int = None  # of paging; None: 4 or 5
    lines: tuple = ()  # regular expressions, each found in some line
    absent: tuple = ()  # found in none
    seconds: float = None  # at most, for all of it
    start_us: int = None  # at most, to start the other CPUs
    means: tuple = ()  # (test, most): limits of the mean of op=pair
    # How it is run.
    build: str = ""  # "debug": a kernel with CONFIG_DEBUG (qemu.mk)
    tier: str = "quick"
    runs: int = 1  # more than one: their figures must be the same
    alone: bool = None  # nothing runs beside it; None: if it has many CPUs
    timeout: float = None
    silence: float = None  # seconds without output after which the machine is given up; None: run.py's 30
    needs: str = ""  # a key of conftest.py's REQUIREMENTS


# ---- tables for -acpitable -----------------------------------------------------------------------


def second_madt():
    """What follows the header of a MADT with two CPUs that do not exist (ACPI 6.5, 5.2.12)."""
    cpus = b"".join(struct.pack("<BBBBI", 0, 8, uid, apic_id, 1) for uid, apic_id in ((0, 40), (1, 41)))
    return struct.pack("<II", 0xFEE00000, 1) + cpus


def spcr_com2():
    """What follows the header of an SPCR that names COM2 (Microsoft's SPCR, revision 2): a 16550 in
    I/O space, the baud rate left alone, no PCI device."""
    address = struct.pack("<BBBBQ", 1, 8, 0, 1, 0x2F8)
    return (struct.pack("<B3x", 0) + address + struct.pack("<BBI", 0, 0, 0) +
            struct.pack("<BBBBBB", 0, 0, 1, 0, 0, 0) +
            struct.pack("<HHBBBIB4x", 0xFFFF, 0xFFFF, 0, 0, 0, 0, 0))


FILES = {"second_madt": second_madt(), "spcr_com2": spcr_com2()}

# ---- the quick tier ------------------------------------------------------------------------------

DEFAULT_RUN = Row("default-run", boot="uefi", smp="64", mem="2G", options="", seconds=120, timeout=400,
                  lines=(r"^# run .*profile=quick",))

CPUS = [Row(f"pvh-smp{n}", smp=str(n), options=ALL, start_us=10**6) for n in (1, 2, 3, 8, 64)]

DOORS = [
    Row("uefi-smp4", boot="uefi", smp="4", options=ALL, lines=(r"^# boot door=uefi", r"^# console fb=\d+x\d+ ")),
    Row("uefi-pc", boot="uefi", machine="pc"),
    Row("uefi-4g", boot="uefi", mem="4G"),
    Row("uefi-256m", boot="uefi", mem="256M"),
    Row("uefi-qemu64", boot="uefi", cpu="qemu64"),
    Row("uefi-no-vga", boot="uefi", qemu_args=("-vga", "none"), absent=(r"^# console fb=",)),
    Row("usb", boot="usb", smp="4", lines=(r"^# boot door=uefi",)),
]

MACHINES = [
    Row("pvh-pc", machine="pc", options=ALL),
    Row("pvh-microvm", machine="microvm", options=ALL),
    Row("pvh-256m", mem="256M", options=ALL),
    Row("pvh-4g", mem="4G"),
    Row("pvh-64m", mem="64M", options=ALL),
    Row("pvh-qemu64", cpu="qemu64", options=ALL, levels=4),
    Row("sparse-apic-ids", smp="6,sockets=2,cores=3,threads=1", options=ALL,
        apic_ids=(0, 1, 2, 4, 5, 6)),
    Row("sparse-2024", smp="6,sockets=2,cores=3,threads=1", options=f"{ALL} design=2024",
        apic_ids=(0, 1, 2, 4, 5, 6)),
    Row("smp255", smp="255", mem="2G", options=ALL, timeout=600),
    Row("second-madt", qemu_args=("-acpitable", "sig=APIC,data={second_madt}"),
        lines=(r"more than one MADT",)),
    Row("no-hpet", machine="q35,hpet=off", absent=(r"^# clock .*hpet",)),
    Row("no-pit", machine="q35,pit=off", absent=(r"^# clock .*pit\b",)),
    Row("no-hpet-no-pit", machine="q35,hpet=off,pit=off", lines=(r"^# clock .*source=pmtimer",)),
    Row("no-serial", serial=("none",), by="status"),
    Row("no-acpi", machine="pc,acpi=off", cpus=1, lines=(r"^# acpi: none",)),
]

OPTIONS = [
    Row("maxcpus", smp="4", options=f"{SHORT} maxcpus=2", cpus=2, lines=(r"^# smp: using 2 of 4 CPUs",)),
    Row("small-vmalloc",
        options=f"{SHORT},exhaust,align_shift_alloc_test design=2024 vmalloc=32M"),
    Row("debug-metalmap", smp="4", options=ALL, build="debug", lines=(r"^ok \d+ map_counts$",)),
    Row("designs", smp="4", options=f"{ALL} designs=2010,2023,2024,metalmap", timeout=300,
        lines=(r"^# test  +2010  +2023  +2024  +metalmap$",)),
    Row("vmalloc-too-small", options="design=metalmap vmalloc=32M", verdict="error",
        lines=(r"^# error: design metalmap: blocks=all needs vmalloc= of at least \d+M",)),
    Row("bad-key", options="desing=2024", verdict="error",
        lines=(r"^# error: .*desing.*did you mean 'design'",)),
    Row("bad-value", options="profile=fast", verdict="error",
        lines=(r"^# error: .*profile.*fast.*smoke, quick, full",)),
    Row("bad-number", options="vmalloc=1k", verdict="error", lines=(r"^# error: .*vmalloc.*1k",)),
    Row("bad-test", options="tests=fix_size_aloc_test", verdict="error",
        lines=(r"^# error: .*fix_size_aloc_test.*nearest is fix_size_alloc_test",)),
    Row("bad-key-uefi", boot="uefi", options="desing=2024", verdict="error",
        lines=(r"^# boot door=uefi", r"^# error: .*desing.*did you mean 'design'")),
    Row("no-nx", cpu="qemu64,-nx", verdict="error", lines=(r"no NX",)),
    # Four SIPIs are sent to a CPU: at first two, and two once it has not come.
    Row("lost-cpu", smp="4", options=f"{ALL} smp_lost_cpu=2 smp_lost_sipis=4", cpus=3, apic_ids=(0, 1, 3),
        lines=(r"^# smp: 1 CPUs have not come yet: trying again", r"^# smp: CPU with APIC ID 2 left out: it did not start",
               r"^# smp cpus_found=4 cpus_used=3 failed=1 ")),
    Row("late-cpu", smp="4", options=f"{ALL} smp_lost_cpu=1 smp_lost_sipis=2", apic_ids=(0, 1, 2, 3),
        lines=(r"^# smp: 1 CPUs have not come yet: trying again", r"^# smp cpus_found=4 cpus_used=4 failed=0 ")),
    Row("stuck-cpu", smp="3", options="tests=watchdog_names watchdog_end=on", verdict="error",
        lines=(r"^# watchdog: cpu 1 task=watchdog_names rip=stop\+", r"^# error: cpu 1 task watchdog_names made no progress")),
]

# Machines whose clocks differ and whose TSC does not.
SAME_TSC = ("pvh-smp2", "no-hpet", "no-pit", "no-hpet-no-pit", "pvh-pc")

# Exact: with -icount the time stamp counter counts instructions.
INSTRUCTIONS = [
    Row("icount", smp="1", mem="2G", icount=True, runs=2, timeout=300,
        options=f"{FIGURES} tests=fix_size_alloc_test,vm_map_ram_test",
        means=(("fix_size_alloc_test", 1600), ("vm_map_ram_test", 500))),
]

# ---- the full tier -------------------------------------------------------------------------------

FULL_CPUS = (
    [Row(f"pvh-smp{n}", smp=str(n), options=ALL) for n in (4, 5, 7, 16)] +
    [Row(f"uefi-smp{n}", boot="uefi", smp=str(n), mem="1G", options=ALL, timeout=600)
     for n in (1, 2, 3, 5, 7, 8, 16, 64, 255)] +
    [Row(f"again-{n:02}", smp="64", options=ALL) for n in range(1, 21)] +
    [Row("apic-ids-threads", smp="8,sockets=2,cores=2,threads=2", apic_ids=tuple(range(8))),
     Row("apic-ids-sockets", smp="5,sockets=5"),
     Row("apic-ids-3x5", smp="15,sockets=3,cores=5,threads=1", options=ALL,
         apic_ids=(*range(0, 5), *range(8, 13), *range(16, 21))),
     Row("apic-ids-uefi", boot="uefi", smp="6,sockets=2,cores=3,threads=1",
         apic_ids=(0, 1, 2, 4, 5, 6)),
     Row("hotplug-slots", smp="2,maxcpus=6", cpus=2),
     Row("one-host-thread", smp="8", accel="tcg,thread=single", options=ALL)]
)


def memory(size):
    """-m of any size: QEMU reserves nothing of it, so that it may be more than the host has."""
    return {"mem": size, "machine": "q35,memory-backend=ram",
            "qemu_args": ("-object", f"memory-backend-ram,id=ram,size={size},reserve=off")}


FULL_MEMORY = (
    [Row(f"pvh-{size.lower()}", options=ALL, **memory(size))
     for size in ("96M", "128M", "1G", "3G", "8G", "16G", "64G")] +
    [Row(f"uefi-{size.lower()}", boot="uefi", **memory(size))
     for size in ("128M", "1G", "3G", "8G", "64G")] +
    [Row("low-ram-1g", mem="4G", machine="q35,max-ram-below-4g=1G"),
     Row("uefi-low-ram-1g", boot="uefi", mem="4G", machine="q35,max-ram-below-4g=1G"),
     # The image is loaded at 2 MiB and ends between 3 and 4 MiB.
     Row("pvh-4m", smp="1", mem="4M"),
     Row("pvh-3m", smp="1", mem="3M", verdict="error", banner=False,
         lines=(r"no memory where the kernel ends",))]
)

FULL_MODELS = (
    [Row(f"{boot}-{cpu.lower().replace(',', '')}", boot=boot, cpu=cpu)
     for boot in ("pvh", "uefi") for cpu in ("Nehalem", "Haswell", "EPYC", "max,-la57", "max,-pdpe1gb")] +
    [Row(f"{boot}-{machine}-{n}", boot=boot, machine=machine, smp=str(n), options=ALL)
     for boot in ("pvh", "uefi") for machine in ("pc", "q35") for n in (1, 4)] +
    [Row("microvm-smp8", machine="microvm", smp="8", options=ALL),
     Row("microvm-no-acpi", machine="microvm,acpi=off", cpus=1),
     Row("no-pic", machine="q35,pic=off"),
     Row("uefi-no-hpet-no-pit", boot="uefi", machine="q35,hpet=off,pit=off"),
     Row("uefi-second-madt", boot="uefi", qemu_args=("-acpitable", "sig=APIC,data={second_madt}"),
         lines=(r"more than one MADT",)),
     Row("uefi-no-nx", boot="uefi", cpu="qemu64,-nx", verdict="error", lines=(r"no NX",))]
)


def numa(nodes):
    """Two CPUs and 256 MiB in each of some NUMA nodes."""
    args = []
    for n in range(nodes):
        args += ["-object", f"memory-backend-ram,id=m{n},size=256M",
                 "-numa", f"node,nodeid={n},memdev=m{n},cpus={2 * n}-{2 * n + 1}"]
    return {"smp": str(2 * nodes), "mem": f"{256 * nodes}M", "qemu_args": tuple(args), "nodes": nodes}


FULL_NODES = [Row(f"{boot}-numa{n}", boot=boot, options=ALL, **numa(n))
              for boot in ("pvh", "uefi") for n in (1, 2, 4)]

FULL_CONSOLES = [
    Row("com2", serial=("none", "stdio"), options=f"{SHORT} console=com2"),
    Row("com3-by-port", serial=("none", "none", "stdio"), options=f"{SHORT} console=io:0x3e8"),
    Row("com2-by-spcr", serial=("none", "stdio"),
        qemu_args=("-acpitable", "sig=SPCR,rev=2,data={spcr_com2}")),
    Row("com1-and-com2", serial=("stdio", "null"), options=f"{SHORT} console=com1,com2"),
    Row("odd-port", serial=("none",), options=f"{SHORT} console=io:0x5000",
        qemu_args=("-chardev", "stdio,id=odd", "-device", "isa-serial,chardev=odd,iobase=0x5000,irq=5")),
    Row("baud", options=f"{SHORT} console=com1,9600", lines=(r"^# console serial io=0x3f8 baud=9600",)),
    Row("console-none", serial=("null",), by="status", options=f"{SHORT} console=none"),
    Row("uefi-no-serial", boot="uefi", serial=("none",), by="status"),
    Row("uefi-com2", boot="uefi", serial=("null", "stdio"), options=f"{SHORT} console=com2"),
    Row("uefi-com2-by-spcr", boot="uefi", serial=("none", "stdio"),
        qemu_args=("-acpitable", "sig=SPCR,rev=2,data={spcr_com2}")),
]

FULL_ENDS = [
    Row(f"{boot}-{how}", boot=boot, options=f"{SHORT} exit={how}", by="log", status=0)
    for boot in ("pvh", "uefi") for how in ("poweroff", "reboot")
]

FULL_REST = [
    Row("usb-image", boot="usb", smp="16", mem="1G", options="", timeout=600),
    Row("pvh-all-default", smp="8", mem="2G", options="", timeout=600),
    Row("pvh-all-default-1", smp="1", mem="2G", options="", timeout=600),
    *[Row(f"{boot}-designs-smp64", boot=boot, smp="64", mem="2G", timeout=900,
          options="designs=2010,2023,2024,metalmap", lines=(r"^# test  +2010  +2023  +2024  +metalmap$",))
      for boot in ("pvh", "uefi")],
    Row("two-designs", smp="4", options=f"{ALL} designs=2024,2024 counters=each repeat=2"),
    Row("linux-order", smp="4", options="profile=smoke run_test_mask=8191 sequential_test_order=off"),
    Row("large-vmalloc", options=f"{SHORT} vmalloc=32T"),
    # The least that vmalloc= takes; blocks=all needs more and says so (vmalloc-too-small).
    Row("tiny-vmalloc", options="design=2024 profile=smoke tests=fix_size_alloc_test vmalloc=16M"),
    Row("4g-vmalloc", smp="4", options=f"{ALL} vmalloc=4G"),
    # After 10^6 operations and after 10^7 of one boot: the same footprint (tests/kernel/footprint.c).
    *[Row(f"footprint-smp{n}", smp=str(n), mem="1G", timeout=900,
          options=f"tests=aging,exhaust test_loop_count={10**6 // n} samples=1000 test_repeat_count=10",
          lines=(r"^# note test=aging footprint=last_repeat", r"^# note test=exhaust footprint=last_repeat"))
      for n in (1, 2, 8)],
    Row("debug-2024", smp="4", options=f"{ALL} design=2024", build="debug", lines=(r"^ok \d+ map_counts$",)),
    Row("uefi-boot-services", boot="uefi", smp="4", options=f"{ALL} boot_services_memory=on"),
    Row("no-lm", cpu="qemu64,-lm", verdict="error", banner=False, lines=(r"no 64-bit mode",)),
]

# ---- QEMU 10 (tools/fetch-qemu10): what older ones cannot do -------------------------------------


def new(**fields):
    return {"needs": "qemu10", "apic": "x2apic", **fields}


QEMU10 = [
    Row("qemu10-smp4", options=ALL, **new(smp="4")),
    Row("qemu10-xapic", cpu="max,-x2apic", **new(apic="xapic")),
    Row("qemu10-uefi", boot="uefi", options=ALL, **new(smp="4")),
    Row("qemu10-sparse", **new(smp="6,sockets=2,cores=3,threads=1", apic_ids=(0, 1, 2, 4, 5, 6))),
    Row("qemu10-smp300", mem="2G", options=ALL, timeout=900, **new(smp="300")),
    # 256 CPUs on a host core: one that waits for its turn to purge may do so for more than 30 s, and the
    # one that says "alive" may not run for as long.
    Row("qemu10-smp512", mem="4G", options=f"{ALL} watchdog=120", timeout=2400, silence=120,
        **new(smp="512")),
    Row("qemu10-uefi-smp300", boot="uefi", mem="4G", timeout=900, **new(smp="300")),
]


def rows():
    """All rows, quick ones first, small ones before large ones as they are listed."""
    quick = [*CPUS, *MACHINES, *OPTIONS, *DOORS, *INSTRUCTIONS, DEFAULT_RUN]
    full = [*FULL_CPUS, *FULL_MEMORY, *FULL_MODELS, *FULL_NODES, *FULL_CONSOLES, *FULL_ENDS, *FULL_REST,
            *QEMU10]
    return quick + [dataclasses.replace(row, tier="full") for row in full]
