/*
 * cpu.c: what the CPU is and can do, and the control registers that the kernel runs with.
 *
 * Control registers are set to whole values, not bit by bit, so that every CPU ends with the same
 * ones whatever the firmware left (case K15). Two exceptions: CR4.LA57 cannot change under paging,
 * and CR3 is the paging code's.
 */
#include "lib/base.h"
#include "lib/printf.h"
#include "lib/string.h"
#include <arch/atomic.h>
#include <arch/cpu.h>
#include <arch/percpu.h>

#define MSR_MISC_ENABLE  0x1a0
#define MISC_XD_DISABLE  BIT(34)
#define MSR_MTRR_CAP     0xfe
#define MSR_MTRR_PHYS    0x200 /* base and mask of variable range 0, then of the next */
#define MSR_MTRR_DEF     0x2ff
#define MTRR_CAP_VCNT    0xff
#define MTRR_CAP_FIXED   BIT(8)
#define MTRR_DEF_ENABLE  BIT(11)
#define MTRR_FIXED       11
#define MTRR_VARIABLE    32
#define MSR_TSC_DEADLINE 0x6e0
#define CPUID_HYPERVISOR 0x40000000u
#define CPUID_EXTENDED   0x80000000u
#define CPUID_MTRR       BIT(12) /* leaf 1, EDX */
#define DR7_RESET        0x400UL /* bit 10 is always 1 (SDM 3B 18.2.4) */

/* Entry 0 WB, 1 WC, 2 UC-, 3 UC, twice: enum cache_mode, whatever an entry's PAT bit says. */
#define PAT_VALUE 0x0007010600070106ULL

static const uint32_t mtrr_fixed_msr[MTRR_FIXED] = {0x250, 0x258, 0x259, 0x268, 0x269, 0x26a,
                                                    0x26b, 0x26c, 0x26d, 0x26e, 0x26f};

struct cpu_features cpu_features;

struct mtrrs {
    uint64_t def;
    uint64_t fixed[MTRR_FIXED];
    uint64_t variable[2 * MTRR_VARIABLE];
    unsigned fixed_count, variable_count;
};

/* Written by the boot CPU in cpu_init_this(). */
static struct mtrrs boot_mtrrs;
static struct cpu_state boot_state;
static bool boot_state_known;

static uint32_t mtrr_corrections; /* CPUs that came with other MTRRs */

/* ---- features ---- */

static void put_words(char *dst, uint32_t a, uint32_t b, uint32_t c)
{
    memcpy(dst, &a, 4);
    memcpy(dst + 4, &b, 4);
    memcpy(dst + 8, &c, 4);
    dst[12] = '\0';
}

/* Firmware strings end up in `key=value` lines: no control characters. */
static void make_printable(char *s)
{
    for (; *s; s++) {
        if (*s < ' ' || *s > '~')
            *s = '?';
    }
}

static void detect_brand(uint32_t max_ext)
{
    uint32_t r[12];
    char *brand = cpu_features.brand, *start = brand;
    size_t n;

    if (max_ext < CPUID_EXTENDED + 4)
        return;
    for (uint32_t i = 0; i < 3; i++)
        cpuid(CPUID_EXTENDED + 2 + i, 0, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2], &r[4 * i + 3]);
    memcpy(brand, r, sizeof(r));
    brand[sizeof(r)] = '\0';
    make_printable(brand);
    while (*start == ' ')
        start++;
    n = strlen(start);
    while (n && start[n - 1] == ' ')
        n--;
    memmove(brand, start, n);
    brand[n] = '\0';
}

/* Family and model with their extensions: SDM 2A, CPUID, figure 3-6. */
static void detect_identity(uint32_t signature)
{
    uint32_t family = signature >> 8 & 0xf;

    cpu_features.stepping = signature & 0xf;
    cpu_features.model = signature >> 4 & 0xf;
    if (family == 6 || family == 15)
        cpu_features.model |= (signature >> 16 & 0xf) << 4;
    cpu_features.family = family + (family == 15 ? signature >> 20 & 0xff : 0);
}

static void detect_basic(uint32_t max)
{
    struct cpu_features *f = &cpu_features;
    uint32_t a, b, c, d;

    cpuid(1, 0, &a, &b, &c, &d);
    detect_identity(a);
    f->pge = d & BIT(13);
    f->pat = d & BIT(16);
    f->x2apic = c & BIT(21);
    f->tsc_deadline = c & BIT(24);
    f->hypervisor_present = c & BIT(31);
    if (f->hypervisor_present) {
        cpuid(CPUID_HYPERVISOR, 0, &a, &b, &c, &d);
        put_words(f->hypervisor, b, c, d);
        make_printable(f->hypervisor);
        f->emulated = strcmp(f->hypervisor, "TCGTCGTCGTCG") == 0;
    }
    if (max >= 6) {
        cpuid(6, 0, &a, &b, &c, &d);
        f->aperfmperf = c & BIT(0);
    }
    if (max >= 7) {
        cpuid(7, 0, &a, &b, &c, &d);
        f->hybrid = d & BIT(15);
    }
}

static void detect_extended(uint32_t max_ext)
{
    struct cpu_features *f = &cpu_features;
    uint32_t a, b, c, d;

    f->phys_bits = 36;
    f->virt_bits = 48;
    if (max_ext >= CPUID_EXTENDED + 1) {
        cpuid(CPUID_EXTENDED + 1, 0, &a, &b, &c, &d);
        f->nx = d & BIT(20);
        f->gbpages = d & BIT(26);
        f->rdtscp = d & BIT(27);
    }
    if (max_ext >= CPUID_EXTENDED + 7) {
        cpuid(CPUID_EXTENDED + 7, 0, &a, &b, &c, &d);
        f->invariant_tsc = d & BIT(8);
    }
    if (max_ext >= CPUID_EXTENDED + 8) {
        cpuid(CPUID_EXTENDED + 8, 0, &a, &b, &c, &d);
        f->phys_bits = (uint8_t)a;
        f->virt_bits = (uint8_t)(a >> 8);
    }
}

/* Some firmware offers to hide NX; on Intel the switch can be taken back (SDM 4,
 * IA32_MISC_ENABLE[34]). */
static void unhide_nx(void)
{
    uint64_t misc;

    if (strcmp(cpu_features.vendor, "GenuineIntel") == 0 && rdmsr_safe(MSR_MISC_ENABLE, &misc) &&
        (misc & MISC_XD_DISABLE))
        wrmsr_safe(MSR_MISC_ENABLE, misc & ~MISC_XD_DISABLE);
}

void cpu_detect(void)
{
    uint32_t max, max_ext, b, c, d;

    memset(&cpu_features, 0, sizeof(cpu_features));
    cpuid(0, 0, &max, &b, &c, &d);
    put_words(cpu_features.vendor, b, d, c);
    make_printable(cpu_features.vendor);
    unhide_nx();
    cpuid(CPUID_EXTENDED, 0, &max_ext, &b, &c, &d);
    if (max_ext < CPUID_EXTENDED || max_ext > CPUID_EXTENDED + 0xffff)
        max_ext = 0;
    detect_basic(max);
    detect_extended(max_ext);
    detect_brand(max_ext);
    cpu_features.la57_active = READ_CR(4) & CR4_LA57;
}

/* ---- control registers ---- */

static void flush_tlb(void)
{
    uint64_t cr4 = READ_CR(4);

    if (cr4 & CR4_PGE) {
        WRITE_CR(4, cr4 & ~CR4_PGE);
        WRITE_CR(4, cr4);
    } else {
        WRITE_CR(3, READ_CR(3));
    }
}

/*
 * A page must not be cached under two memory types: caches are off and empty while types change
 * (SDM 3A 12.11.8, for MTRRs and PAT alike). A hypervisor keeps guest caches coherent, and WBINVD
 * there may be very slow, so it is left out. Returns CR0 for types_end().
 */
static uint64_t types_begin(void)
{
    uint64_t cr0 = READ_CR(0);

    if (!cpu_features.hypervisor_present) {
        WRITE_CR(0, cr0 | CR0_CD);
        __asm__ volatile("wbinvd" ::: "memory");
    }
    flush_tlb();
    return cr0;
}

static void types_end(uint64_t cr0)
{
    flush_tlb();
    if (!cpu_features.hypervisor_present) {
        __asm__ volatile("wbinvd" ::: "memory");
        WRITE_CR(0, cr0);
    }
}

void cpu_set_pat(uint64_t pat)
{
    uint64_t cr0;

    if (!cpu_features.pat || rdmsr(MSR_PAT) == pat)
        return;
    cr0 = types_begin();
    wrmsr(MSR_PAT, pat);
    types_end(cr0);
}

/* False if this CPU has no MTRRs. */
static bool mtrrs_read(struct mtrrs *m)
{
    uint32_t a, b, c, d;
    uint64_t cap;
    unsigned i;

    memset(m, 0, sizeof(*m));
    cpuid(1, 0, &a, &b, &c, &d);
    if (!(d & CPUID_MTRR) || !rdmsr_safe(MSR_MTRR_CAP, &cap))
        return false;
    m->variable_count = MIN((unsigned)(cap & MTRR_CAP_VCNT), (unsigned)MTRR_VARIABLE);
    m->fixed_count = cap & MTRR_CAP_FIXED ? MTRR_FIXED : 0;
    m->def = rdmsr(MSR_MTRR_DEF);
    for (i = 0; i < m->fixed_count; i++)
        m->fixed[i] = rdmsr(mtrr_fixed_msr[i]);
    for (i = 0; i < 2 * m->variable_count; i++)
        m->variable[i] = rdmsr(MSR_MTRR_PHYS + i);
    return true;
}

/*
 * Firmware must give all CPUs the same MTRRs, and some does not (QEMU's CPUs forget them at INIT).
 * A CPU without the boot CPU's may use memory uncached, or cached where others do not.
 */
static void mtrrs_sync(void)
{
    struct mtrrs here;
    uint64_t cr0;
    unsigned i;

    if (!mtrrs_read(&here) || memcmp(&here, &boot_mtrrs, sizeof(here)) == 0)
        return;
    if (here.fixed_count == boot_mtrrs.fixed_count &&
        here.variable_count == boot_mtrrs.variable_count) {
        cr0 = types_begin();
        wrmsr(MSR_MTRR_DEF, boot_mtrrs.def & ~MTRR_DEF_ENABLE);
        for (i = 0; i < here.fixed_count; i++)
            wrmsr(mtrr_fixed_msr[i], boot_mtrrs.fixed[i]);
        for (i = 0; i < 2 * here.variable_count; i++)
            wrmsr(MSR_MTRR_PHYS + i, boot_mtrrs.variable[i]);
        wrmsr(MSR_MTRR_DEF, boot_mtrrs.def);
        types_end(cr0);
    }
    if (ATOMIC_ADD(mtrr_corrections, 1u) == 0)
        kprintf("# %s: cpu %u (and maybe more) came with other MTRRs than the boot CPU: def=0x%lx, "
                "now 0x%lx\n",
                cpu_features.hypervisor_present ? "note" : "warning", this_cpu_id(), here.def,
                rdmsr(MSR_MTRR_DEF));
}

static void clear_debug_registers(void)
{
    __asm__ volatile("mov %0, %%dr7" ::"r"(DR7_RESET));
    __asm__ volatile("mov %0, %%dr6" ::"r"(0UL));
}

void cpu_init_this(void)
{
    uint64_t cr4 = CR4_PAE | CR4_MCE | (READ_CR(4) & CR4_LA57);
    unsigned long flags = irq_save();

    if (cpu_features.pge)
        cr4 |= CR4_PGE;
    unhide_nx();
    clear_debug_registers();
    WRITE_CR(4, cr4);
    WRITE_CR(0, CR0_PE | CR0_MP | CR0_ET | CR0_NE | CR0_WP | CR0_PG);
    wrmsr(MSR_EFER, EFER_LME | EFER_LMA | (cpu_features.nx ? EFER_NXE : 0));
    if (this_cpu_id() == 0)
        mtrrs_read(&boot_mtrrs);
    else
        mtrrs_sync();
    cpu_set_pat(PAT_VALUE);
    if (cpu_features.tsc_deadline)
        wrmsr_safe(MSR_TSC_DEADLINE, 0);
    if (this_cpu_id() == 0) {
        cpu_read_state(&boot_state);
        boot_state_known = true;
    } else {
        cpu_check_state();
    }
    irq_restore(flags);
}

void cpu_read_state(struct cpu_state *s)
{
    memset(s, 0, sizeof(*s));
    s->cr0 = READ_CR(0);
    s->cr3 = READ_CR(3);
    s->cr4 = READ_CR(4);
    s->efer = rdmsr(MSR_EFER);
    if (cpu_features.pat)
        s->pat = rdmsr(MSR_PAT);
    rdmsr_safe(MSR_MTRR_DEF, &s->mtrr_def);
}

static bool check_register(const char *name, uint64_t here, uint64_t boot)
{
    if (here == boot)
        return true;
    kprintf("# warning: cpu %u %s=0x%lx, the boot CPU has 0x%lx\n", this_cpu_id(), name, here,
            boot);
    return false;
}

bool cpu_check_state(void)
{
    struct cpu_state s;
    bool same = true;

    if (!boot_state_known)
        return true;
    cpu_read_state(&s);
    same &= check_register("cr0", s.cr0, boot_state.cr0);
    same &= check_register("cr4", s.cr4, boot_state.cr4);
    same &= check_register("efer", s.efer, boot_state.efer);
    same &= check_register("pat", s.pat, boot_state.pat);
    same &= check_register("mtrr_def", s.mtrr_def, boot_state.mtrr_def);
    return same;
}
