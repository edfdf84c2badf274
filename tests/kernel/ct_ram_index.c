/*
 * Finding blocks by address (A3).
 *
 * The index that is hashed by address over the CPUs must never use a CPU number that does not
 * exist, whatever the APIC IDs are, and must give the same place on insertion, lookup and removal,
 * on every CPU. So: enough blocks, made on all CPUs, that every place of the hash is used twice,
 * each found and unmapped by another CPU.
 */
#include "lib/string.h"
#include "tests/kernel/helpers.h"
#include <arch/percpu.h>

#define MAPPINGS (KT_BLOCK_PAGES / KT_BLOCK_ALLOC)

struct task {
    struct kt_pages pages;
    unsigned blocks;       /* of each CPU */
    const uint64_t **kept; /* [cpu * blocks + i] */
};

/* Fills blocks and keeps one mapping in each, so that the addresses move on. */
static void visit(void *arg)
{
    struct task *t = arg;
    const uint64_t **kept = t->kept + this_cpu_id() * t->blocks;

    for (unsigned i = 0; i < t->blocks; i++) {
        void *m[MAPPINGS];

        for (unsigned j = 0; j < MAPPINGS; j++) {
            m[j] = vm_map_ram(t->pages.page, KT_BLOCK_ALLOC, VM_ANY_NODE);
            KT_ASSERT(m[j]);
        }
        kept[i] = m[i % MAPPINGS];
        for (unsigned j = 0; j < MAPPINGS; j++) {
            if (j != i % MAPPINGS)
                vm_unmap_ram(m[j], KT_BLOCK_ALLOC);
        }
        kt_alive();
    }
}

static void check_one(const uint64_t *p)
{
    struct vm_area_info info;
    uint64_t word = 0;

    KT_ASSERT(p);
    KT_EXPECT(find_vm_area((const char *)p + 5 * PAGE_SIZE + 7, &info) && info.start == p &&
              info.size == KT_BLOCK_ALLOC * PAGE_SIZE && info.kind == VM_KIND_RAM);
    KT_EXPECT_EQ(vread(&word, (const char *)p + 2 * PAGE_SIZE, sizeof(word)), sizeof(word));
    KT_EXPECT_EQ(word, kt_tag(1, 2));
    vm_unmap_ram(p, KT_BLOCK_ALLOC);
    KT_EXPECT(!find_vm_area(p, &info));
}

KTEST(block_index, "A3: every block is found from every CPU")
{
    struct task t = {.blocks = (unsigned)MAX(kt_scaled(64) / kt_cpus(), 2UL)};
    unsigned n = t.blocks * kt_cpus();

    t.kept = vzalloc(n * sizeof(*t.kept));
    KT_ASSERT(t.kept);
    if (kt_pages_get(&t.pages, KT_BLOCK_ALLOC, 1)) {
        kt_on_all(visit, &t);
        for (unsigned i = 0; i < n; i++)
            check_one(t.kept[i]);
    }
    kt_pages_put(&t.pages);
    vfree(t.kept);
}
