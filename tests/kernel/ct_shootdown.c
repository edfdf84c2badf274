/*
 * Stale translations, and flushes while others cannot listen.
 *
 * E4: a flush that reaches the own CPU only. And the rule above all: a freed address is not handed
 * out again until every CPU has dropped its translation. E1: the one who waits for a flush, and the
 * one who is waited for, each with interrupts off: it ends only because whoever spins answers. E5:
 * frames go back at once (frames=early), which is documented, and checked here. D7: one root for
 * all CPUs.
 */
#include "lib/string.h"
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"
#include <arch/atomic.h>
#include <arch/cpu.h>
#include <arch/percpu.h>
#include <arch/spinlock.h>

#define FLUSHERS_MAX 4
#define REUSE_TRIES  1024

struct probe {
    const void *addr;
    uint32_t ok; /* CPUs that could read */
};

static void probe_cpu(void *arg)
{
    struct probe *p = arg;
    uint64_t value;

    if (kt_read(p->addr, &value))
        ATOMIC_ADD(p->ok, 1u);
}

static unsigned readers_of(const void *addr)
{
    struct probe p = {.addr = addr};

    kt_on_all(probe_cpu, &p);
    return p.ok;
}

struct owner {
    struct page *page;
    void *p;
    bool ram;
};

static void owner_map(void *arg)
{
    struct owner *o = arg;

    o->p = o->ram ? vm_map_ram(&o->page, 1, VM_ANY_NODE) : vmalloc(PAGE_SIZE);
}

static void owner_free(void *arg)
{
    struct owner *o = arg;

    if (o->ram)
        vm_unmap_ram(o->p, 1);
    else
        vfree(o->p);
    vm_unmap_aliases();
}

KTEST(flush_pairs, "E4: after a flush by any CPU no other CPU has a translation")
{
    unsigned rounds = (unsigned)MIN(MAX(kt_scaled(4), 4UL), (uint64_t)kt_cpus());
    struct owner o = {.page = alloc_page()};

    KT_ASSERT(o.page);
    for (unsigned i = 0; i < 2 * rounds; i++) {
        unsigned cpu = (i / 2) * kt_cpus() / rounds;
        unsigned left;

        o.ram = i % 2;
        kt_on_cpu(cpu, owner_map, &o);
        KT_ASSERT(o.p);
        KT_EXPECT_EQ(readers_of(o.p), kt_cpus());
        kt_on_cpu(cpu, owner_free, &o);
        left = readers_of(o.p);
        if (left)
            KT_FAIL("freed by cpu %u: %u CPUs still read it", cpu, left);
        kt_progress(i * 100 / (2 * rounds));
    }
    free_page(o.page);
}

/* Maps `page` until it gets the address `want`; purges on the way. Gives back the others. */
static void *map_at(void *want, struct page *page)
{
    void *got[64], *hit = NULL;
    unsigned n = 0;

    for (unsigned i = 0; i < REUSE_TRIES && !hit; i++) {
        void *p = vmap(&page, 1, 0, PAGE_KERNEL);

        if (p == want) {
            hit = p;
            break;
        }
        got[n++] = p;
        if (n == ARRAY_SIZE(got)) {
            while (n)
                vunmap(got[--n]);
            /* Pools hand out what was freed last, so they are emptied too. */
            vmap_quiesce();
        }
    }
    while (n)
        vunmap(got[--n]);
    return hit;
}

KTEST(reuse_needs_flush, "a freed address comes back only after every CPU has dropped it")
{
    unsigned cpu = kt_other_cpu();
    struct kt_pages pages;

    kt_quiesce();
    if (!kt_pages_get(&pages, 2, 6))
        return;
    for (uint64_t i = 0; i < kt_scaled_flushes(8); i++) {
        void *p = vmap(&pages.page[0], 1, 0, PAGE_KERNEL), *q;
        uint64_t value = 0;

        KT_ASSERT(p);
        KT_EXPECT(kt_read_on(cpu, p, &value));
        KT_EXPECT_EQ(value, kt_tag(6, 0));
        vunmap(p);
        q = map_at(p, pages.page[1]);
        if (!q) {
            KT_FAIL("%p never came back", p);
            break;
        }
        KT_EXPECT(kt_read_on(cpu, q, &value));
        if (value != kt_tag(6, 1))
            KT_FAIL("cpu %u reads the page that was there before: %lx", cpu, (unsigned long)value);
        vunmap(q);
        vmap_force_purge();
    }
    kt_pages_put(&pages);
}

static void flush_masked(void *arg)
{
    struct page *page = arg;

    for (uint64_t i = 0; i < kt_scaled_flushes(200); i++) {
        unsigned long flags = irq_save();
        void *a = vmap(&page, 1, 0, PAGE_KERNEL), *b = vm_map_ram(&page, 1, VM_ANY_NODE);

        vunmap(a);
        vm_unmap_ram(b, 1);
        if (i % 16 == 0)
            vm_unmap_aliases();
        irq_restore(flags);
        KT_EXPECT(a && b);
        kt_alive();
    }
}

KTEST(flush_irqs_off, "E1: several CPUs flush at once with interrupts off")
{
    unsigned n = MIN(kt_cpus(), (unsigned)FLUSHERS_MAX);
    struct page *page = alloc_page();

    KT_ASSERT(page);
    for (unsigned i = 1; i < n; i++)
        kt_start(i, flush_masked, page);
    flush_masked(page);
    for (unsigned i = 1; i < n; i++)
        kt_join(i);
    free_page(page);
}

static struct lock_class test_class = {.name = "test"};
static struct {
    struct spinlock lock;
    uint64_t held, spinning, flushed, got;
} spin;

static void hold_lock(void *arg)
{
    (void)arg;
    spin_lock(&spin.lock);
    STORE_RELEASE(spin.held, 1UL);
    if (!kt_wait_for(&spin.flushed, 1))
        KT_FAIL("the flush did not end");
    spin_unlock(&spin.lock);
}

static void spin_masked(void *arg)
{
    unsigned long flags = irq_save();

    (void)arg;
    STORE_RELEASE(spin.spinning, 1UL);
    spin_lock(&spin.lock);
    STORE_RELEASE(spin.got, 1UL);
    spin_unlock(&spin.lock);
    irq_restore(flags);
}

KTEST(flush_while_spinning, "E1: a flush while a CPU spins on a lock with interrupts off")
{
    void *p;

    if (kt_cpus() < 3)
        KT_SKIP("fewer than three CPUs");
    memset(&spin, 0, sizeof(spin));
    spin_init(&spin.lock, &test_class);
    p = vmalloc(PAGE_SIZE);
    KT_ASSERT(p);
    kt_start(1, hold_lock, NULL);
    KT_EXPECT(kt_wait_for(&spin.held, 1));
    kt_start(2, spin_masked, NULL);
    KT_EXPECT(kt_wait_for(&spin.spinning, 1));
    vfree(p);
    vm_unmap_aliases();
    KT_EXPECT_EQ(LOAD_ACQUIRE(spin.got), 0);
    STORE_RELEASE(spin.flushed, 1UL);
    kt_join(1);
    kt_join(2);
    KT_EXPECT_EQ(spin.got, 1);
}

KTEST(frames_early, "E5: with frames=early a freed area's frames are free at once")
{
    unsigned n = 64;
    uint64_t before;
    void *p;

    if (vmap_config.frames_safe)
        KT_SKIP("frames=safe");
    if (vmap_config.blocks_all)
        KT_SKIP("this design keeps frames ready on each CPU");
    kt_quiesce();
    p = vmalloc(n * PAGE_SIZE);
    KT_ASSERT(p);
    before = page_free_count();
    vfree(p);
    KT_EXPECT(page_free_count() >= before + n);
    vm_unmap_aliases();
}

static void compare_root(void *arg)
{
    if ((READ_CR(3) & PTE_ADDR) != *(uint64_t *)arg)
        KT_FAIL("CR3 is %lx", (unsigned long)READ_CR(3));
}

KTEST(one_root, "D7: all CPUs share one root table, so that no mapping has to be copied")
{
    uint64_t root = READ_CR(3) & PTE_ADDR;

    kt_on_all(compare_root, &root);
}
