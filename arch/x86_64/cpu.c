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
#include <arch/cpu.h>
#include <arch/percpu.h>

#define MSR_MISC_ENABLE  0x1a0
#define MISC_XD_DISABLE  BIT(34)
#define MSR_MTRR_DEF     0x2ff
#define MSR_TSC_DEADLINE 0x6e0
#define CPUID_HYPERVISOR 0x40000000u
#define CPUID_EXTENDED   0x80000000u
#define DR7_RESET        0x400UL /* bit 10 is always 1 (SDM 3B 18.2.4) */

/* Entry 0 WB, 1 WC, 2 UC-, 3 UC, twice: enum cache_mode, whatever an entry's PAT bit says. */
#define PAT_VALUE 0x0007010600070106ULL

struct cpu_features cpu_features;

static struct cpu_state boot_state; /* written by the boot CPU in cpu_init_this() */
static bool boot_state_known;

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
 * A page must not be cached under two memory types: caches are off and empty while the PAT changes
 * (SDM 3A 12.12.4, by the procedure of 12.11.8). A hypervisor keeps guest caches coherent, and
 * WBINVD there may be very slow, so it is left out.
 */
void cpu_set_pat(uint64_t pat)
{
    bool metal = !cpu_features.hypervisor_present;
    uint64_t cr0 = READ_CR(0);

    if (!cpu_features.pat || rdmsr(MSR_PAT) == pat)
        return;
    if (metal) {
        WRITE_CR(0, cr0 | CR0_CD);
        __asm__ volatile("wbinvd" ::: "memory");
    }
    flush_tlb();
    wrmsr(MSR_PAT, pat);
    flush_tlb();
    if (metal) {
        __asm__ volatile("wbinvd" ::: "memory");
        WRITE_CR(0, cr0);
    }
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
