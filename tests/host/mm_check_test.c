/*
 * mm_check_test.c: vmap_selfcheck() finds damage: on a sound allocator one field is changed, the
 * check must fail and say what is wrong, and with the field put back it must pass again.
 */
#include <string.h>

#include "lib/string.h"
#include "mm/cache_internal.h"
#include "mm/page_alloc.h"
#include "mm/page_internal.h"
#include "mm/vmap_busy.h"
#include "mm/vmap_pcpu.h"
#include "tests/host/sim/boot.h"
#include "tests/host/testlib.h"

/* ---- what was changed ---- */

static struct patch {
    void *at;
    size_t size;
    char was[16];
} patches[8];
static unsigned patched;

static void save(void *at, size_t size)
{
    struct patch *p = &patches[patched++];

    assert_true(patched <= ARRAY_SIZE(patches) && size <= sizeof(p->was));
    *p = (struct patch){.at = at, .size = size};
    memcpy(p->was, at, size);
}

/* Entries, too: the oracle, which would judge them, is off. */
#define PLANT(where, value)                                                                        \
    do {                                                                                           \
        save(&(where), sizeof(where));                                                             \
        (where) = (value);                                                                         \
    } while (0)

static void put_back(void)
{
    while (patched) {
        struct patch *p = &patches[--patched];

        memcpy(p->at, p->was, p->size);
    }
}

/* ---- what there is ---- */

/* a, hole and c lie side by side; hole was freed and is in the free tree. `lazy` was freed and
 * waits for a purge. */
static struct vm_area *a, *hole, *c, *lazy, *group[2];
static struct page *page;
static struct vmap_block *ram_block;
static struct pblock *full_block, *block;
static void *small;

static bool take_pointer(struct vm_area *area, void *arg)
{
    *(struct vm_area **)arg = area;
    return true;
}

static struct vm_area *area_at(const void *p)
{
    struct vm_area *area = NULL;

    SIM_CHECK(node_busy_with((uintptr_t)p, take_pointer, &area), "no area at %p", p);
    return area;
}

static pte_t *entry(uintptr_t va, unsigned level)
{
    pte_t *table = kernel_pml4();

    for (unsigned l = 4; l > level; l--)
        table = pte_table(table[pte_index(va, l)]);
    return &table[pte_index(va, level)];
}

static void make_areas(void)
{
    static const size_t offsets[] = {0, PAGE_SIZE}, sizes[] = {PAGE_SIZE, 2 * PAGE_SIZE};
    void *p[4];
    struct vm_area **areas;

    for (unsigned i = 0; i < 4; i++) {
        p[i] = __vmalloc(130 * PAGE_SIZE, PAGE_SIZE, 0, VM_ANY_NODE);
        SIM_CHECK(p[i], "no memory");
    }
    areas = pcpu_get_vm_areas(offsets, sizes, 2, PAGE_SIZE);
    memcpy(group, areas, sizeof(group));
    a = area_at(p[0]);
    hole = area_at(p[1]);
    c = area_at(p[2]);
    lazy = area_at(p[3]);
    vfree(p[1]);
    vmap_force_purge();
    vfree(p[3]);
}

static void make_blocks(void)
{
    unsigned long flags;
    void *p = vm_map_ram(&page, 1, VM_ANY_NODE);

    SIM_CHECK(p, "no block");
    if (vmap_config.blocks_all)
        return;
    ram_block = index_lock_block((uintptr_t)p, &flags);
    SIM_CHECK(ram_block, "vm_map_ram made no block");
    spin_unlock_irqrestore(&ram_block->lock, flags);
}

static void make_pblocks(void)
{
    if (!vmap_config.blocks_all)
        return;
    for (full_block = NULL;; full_block = block) {
        small = vmalloc(100 * PAGE_SIZE);
        SIM_CHECK(small, "no memory");
        block = pblock_of(table_lookup((uintptr_t)small));
        if (full_block && block != full_block)
            break;
    }
    SIM_CHECK(full_block->state == PBLOCK_FULL, "a block that was left is not full");
}

/* ---- the free tree ---- */

static void free_bounds(void)
{
    PLANT(hole->end, hole->start);
}
static void free_touch(void)
{
    struct vm_area *next = rb_entry(rb_next(&hole->rb), struct vm_area, rb);

    PLANT(next->start, hole->end);
}
static void free_maximum(void)
{
    PLANT(hole->subtree_max, hole->subtree_max + PAGE_SIZE);
}
static void free_sum(void)
{
    PLANT(hole->end, hole->end - PAGE_SIZE);
    if (!hole->rb.left && !hole->rb.right)
        PLANT(hole->subtree_max, hole->subtree_max - PAGE_SIZE);
}
static void free_colour(void)
{
    struct rb_node *root = &hole->rb;

    while (rb_parent(root))
        root = rb_parent(root);
    PLANT(root->parent_color, root->parent_color ^ 1);
}

/* ---- nodes ---- */

static void node_wrong(void)
{
    PLANT(a->start, a->start + (1UL << VMAP_ZONE_SHIFT));
}
static void node_overlap(void)
{
    PLANT(a->end, a->start);
}
static void node_pages(void)
{
    PLANT(a->nr_pages, 1000);
}
static void node_colour(void)
{
    struct rb_node *root = &a->rb;

    while (rb_parent(root))
        root = rb_parent(root);
    PLANT(root->parent_color, root->parent_color ^ 1);
}
static void busy_count(void)
{
    PLANT(node_busy_tree()->count, node_busy_tree()->count + 1);
}
static void lazy_size(void)
{
    PLANT(lazy->end, lazy->end + PAGE_SIZE);
}
static void pool_size(void)
{
    PLANT(hole->end, hole->end + PAGE_SIZE);
}
static void pool_lost(void)
{
    PLANT(hole->list.prev->next, hole->list.next);
}

/* ---- the whole ---- */

static void sum_of_all(void)
{
    PLANT(a->end, a->end - PAGE_SIZE);
}
/* With the table: lazy waits in this CPU's cache of units, where all is ready after a purge. */
static void unit_ragged(void)
{
    PLANT(lazy->end, lazy->end - PAGE_SIZE);
}
static void unit_owned(void)
{
    PLANT(lazy->start, a->start);
    PLANT(lazy->end, a->end);
}
static void ready_c(void)
{
    vfree((void *)c->start);
    vmap_force_purge();
}
static void unit_length(void)
{
    ready_c();
    PLANT(c->end, c->end + PMD_SIZE);
}
static void unit_stamp(void)
{
    PLANT(lazy->stamp, UINT64_MAX / 2);
    vfree((void *)c->start);
}
static void unit_lost(void)
{
    PLANT(lazy->list.prev->next, lazy->list.next);
    PLANT(lazy->list.next->prev, lazy->list.prev);
}
static void ready_lost(void)
{
    ready_c();
    PLANT(c->list.prev->next, c->list.next);
    PLANT(c->list.next->prev, c->list.prev);
}
static void table_lost(void)
{
    uintptr_t offset = a->start - vmap_start;

    PLANT(vmap_table_top[offset >> 30][(offset >> PMD_SHIFT) % PTE_COUNT],
          table_lookup(lazy->start));
}
static uint64_t miscounted;
static void lazy_count(void)
{
    purge_lazy_count(3);
    miscounted = 3;
}
static void orphan(void)
{
    PLANT(*entry(a->end - PAGE_SIZE, 1), page_to_phys(page) | PAGE_KERNEL);
}
static void writable_code(void)
{
    PLANT(*entry(a->start, 1), *entry(a->start, 1) & ~PTE_NX);
}
static void global_entry(void)
{
    PLANT(*entry(a->start, 1), *entry(a->start, 1) | PTE_G);
}
static void table_count(void)
{
    memset(page_address(page), 0, PAGE_SIZE);
    PLANT(*entry(a->start + SZ_512G / 1024, 2), page_to_phys(page) | PTE_TABLE);
}
static void overlap(void)
{
    PLANT(group[0]->end, group[0]->end + PAGE_SIZE);
}
static void unmapped(void)
{
    PLANT(*entry(a->start + 5 * PAGE_SIZE, 1), 0);
}
static void unmapped_large(void)
{
    PLANT(*entry(a->start, 2), 0);
}

/* ---- blocks of vm_map_ram ---- */

static void ram_unused(void)
{
    PLANT(ram_block->free, BLOCK_PAGES);
}
static void ram_entry(void)
{
    PLANT(*entry(ram_block->area->start, 1), 0);
}
static void ram_cpu(void)
{
    PLANT(ram_block->cpu, ram_block->cpu + 1);
}
static void ram_dead(void)
{
    PLANT(ram_block->dead, true);
}
static void ram_sum(void)
{
    PLANT(ram_block->dirty, ram_block->dirty + 1);
}
static void ram_list(void)
{
    PLANT(ram_block->on_free_list, false);
}
static void ram_area(void)
{
    PLANT(ram_block->area->block, NULL);
}
static void ram_kind(void)
{
    PLANT(ram_block->area->kind, VM_KIND_ALLOC);
}
static void ram_lost(void)
{
    PLANT(ram_block->all_list.prev->next, ram_block->all_list.next);
}

/* ---- search=walk ---- */

static void walk_overlap(void)
{
    PLANT(a->end, a->next_sorted->start + PAGE_SIZE);
}
static void walk_outside(void)
{
    struct vm_area *last = a;

    while (last->next_sorted)
        last = last->next_sorted;
    PLANT(last->end, vmap_end + PAGE_SIZE);
}
static void walk_list(void)
{
    PLANT(a->next_sorted, a->next_sorted->next_sorted);
}
static void walk_longer(void)
{
    struct vm_area *last = a;

    while (last->next_sorted)
        last = last->next_sorted;
    PLANT(last->next_sorted, a);
}

/* ---- blocks with one owner ---- */

static void small_home(void)
{
    PLANT(block->home, block->home + 1);
}
static void small_entry(void)
{
    PLANT(*entry((uintptr_t)small, 1), 0);
}
static void small_states(void)
{
    PLANT(block->waiting_pages, 1);
    PLANT(block->waiting[7], 1ULL << 63);
}
static void small_waiting(void)
{
    PLANT(block->waiting_pages, 1);
}
static void small_used(void)
{
    PLANT(block->free, block->free + 1);
}
static void small_sum(void)
{
    struct pslot *s = &block->slots[((uintptr_t)small & (BLOCK_SIZE - 1)) >> PAGE_SHIFT];

    PLANT(s->span, s->span + 1);
}
static void small_state(void)
{
    PLANT(full_block->state, PBLOCK_EMPTY);
}
static void small_count(void)
{
    PLANT(block->home->blocks, block->home->blocks + 1);
}

/* ---- frames ---- */

static struct page *largest_free(void)
{
    struct zone *z = &page_zones[0];

    return list_first_entry(&z->lists[fls64(z->orders) - 1], struct page, list);
}
static void frame_node(void)
{
    PLANT(largest_free()->node, 1);
}
static void frame_limit(void)
{
    PLANT(largest_free()->reserved, 1);
}
static void frame_aligned(void)
{
    struct zone *z = &page_zones[0];
    unsigned order = (unsigned)fls64(z->orders) - 1;
    struct page *p = largest_free();

    /* The list goes through the second struct page of the block instead. */
    PLANT(p[1].list, p->list);
    PLANT(p[1].order, p->order);
    PLANT(p[1].flags, p->flags);
    PLANT(p->list.next->prev, &p[1].list);
    PLANT(z->lists[order].next, &p[1].list);
}
static void frame_buddy(void)
{
    struct zone *z = &page_zones[0];
    unsigned order = (unsigned)__builtin_ctz(z->orders);
    struct page *p = list_first_entry(&z->lists[order], struct page, list);
    struct page *buddy = pfn_to_page(page_to_pfn(p) ^ (1ULL << order));

    SIM_CHECK(order < PAGE_MAX_ORDER && order < page_limit(p), "no block with a buddy");
    PLANT(buddy->order, order);
    PLANT(buddy->flags, PG_BUDDY);
}
static void frame_total(void)
{
    PLANT(page_zones[0].total, page_zones[0].free - 1);
}
static struct pcp *list_of_cpu(void)
{
    struct pcp *pcp = this_cpu_ptr(&page_pcp);

    if (!pcp->count)
        free_page(alloc_page());
    SIM_CHECK(pcp->count, "a CPU's list stays empty");
    return pcp;
}
static void frame_busy(void)
{
    PLANT(list_of_cpu()->busy, 1);
}
static void frame_many(void)
{
    PLANT(list_of_cpu()->count, PCP_MAX + 1);
}
static void frame_homeless(void)
{
    PLANT(list_of_cpu()->stack[0]->node, MAX_NODES - 1);
}

/* ---- objects ---- */

static struct cache *cache;
static struct page *slab;
static void *object;

static void make_objects(void)
{
    cache = cache_create("checked", 64, 0);
    SIM_CHECK(cache, "no cache");
    object = cache_alloc(cache);
    cache_free(cache, cache_alloc(cache));
    SIM_CHECK(object, "no object");
    slab = virt_to_page(object);
    SIM_CHECK(((union slab_state){.word = slab->private}).magic == SLAB_MAGIC,
              "the first object lies in the slab's first page");
}

static union slab_state slab_now(void)
{
    return (union slab_state){.word = slab->private};
}
static void slab_magic(void)
{
    union slab_state s = slab_now();

    s.magic++;
    PLANT(slab->private, s.word);
}
static void slab_cache(void)
{
    union slab_state s = slab_now();

    s.cache++;
    PLANT(slab->private, s.word);
}
static void slab_out(void)
{
    union slab_state s = slab_now();

    s.out = 10000;
    PLANT(slab->private, s.word);
}
static void slab_miscount(void)
{
    union slab_state s = slab_now();

    s.out++;
    PLANT(slab->private, s.word);
}
static void slab_leads_out(void)
{
    union slab_state s = slab_now();

    s.free = 0xfff0;
    PLANT(slab->private, s.word);
}
static void slab_broken(void)
{
    PLANT(slab->list.next->prev, NULL);
}
static void slab_lost(void)
{
    PLANT(cache->slabs, cache->slabs + 1);
}
static void slab_pages(void)
{
    PLANT(cache->pages, cache->pages + 1);
}
static void object_written(void)
{
    union slab_state s = slab_now();
    char *free_object = (char *)page_address(slab) + s.free * 8u;

    PLANT(free_object[20], 0x11);
}
static struct cache_cpu *magazines(void)
{
    return this_cpu_ptr(cache->cpu);
}
static void magazine_busy(void)
{
    PLANT(magazines()->busy, 1);
}
static void magazine_missing(void)
{
    SIM_CHECK(magazines()->rounds, "no free object in the magazine");
    PLANT(magazines()->loaded, NULL);
}
static void magazine_spare(void)
{
    PLANT(magazines()->spare_rounds, magazines()->spare_rounds + 1);
}
static void magazine_object(void)
{
    PLANT(magazines()->loaded->object[0], (char *)object + 8);
}
static void depot_count(void)
{
    PLANT(cache->depot_fulls, cache->depot_fulls + 1);
}
static struct magazine spoilt;
static void depot_full(void)
{
    spoilt = (struct magazine){.rounds = 1};
    PLANT(cache->depot_full, &spoilt);
    PLANT(cache->depot_fulls, 1);
}
static void depot_full_of_rubbish(void)
{
    spoilt = (struct magazine){.rounds = cache->mag_rounds};
    for (unsigned i = 0; i < cache->mag_rounds; i++)
        spoilt.object[i] = (char *)object + 8;
    PLANT(cache->depot_full, &spoilt);
    PLANT(cache->depot_fulls, 1);
}
static void depot_empty(void)
{
    spoilt = (struct magazine){.rounds = 1};
    PLANT(cache->depot_empty, &spoilt);
}

/* ---- the cases ---- */

enum { TREE, POOLS, WALK, TABLE, BLOCKS, CONFIGS };
static const struct sim_boot configs[CONFIGS] = {
    [TREE] = {.design = DESIGN_2024, .nodes = 2, .no_pools = true, .lazy_max = 100000},
    [POOLS] = {.design = DESIGN_2024, .nodes = 2, .lazy_max = 100000},
    [WALK] = {.design = DESIGN_2010, .lazy_max = 100000},
    [TABLE] = {.design = DESIGN_METALMAP, .mix = 1, .lazy_max = 100000}, /* blocks=ram */
    [BLOCKS] = {.design = DESIGN_METALMAP, .lazy_max = 100000},
};

static const struct damage {
    unsigned config;
    void (*plant)(void);
    const char *found;
} damages[] = {
    {TREE, free_bounds, "free tree: a range outside the limits"},
    {TREE, free_touch, "free tree: ranges that touch or overlap"},
    {TREE, free_maximum, "free tree: a wrong subtree maximum"},
    {TREE, free_sum, "free tree: a wrong sum"},
    {TREE, free_colour, "free tree: an unbalanced tree"},
    {TREE, node_wrong, "nodes: an area on the wrong node"},
    {TREE, node_overlap, "nodes: busy areas overlap"},
    {TREE, node_pages, "nodes: an area with more pages than addresses"},
    {TREE, node_colour, "nodes: busy tree unbalanced or miscounted"},
    {TREE, busy_count, "nodes: busy tree unbalanced or miscounted"},
    {WALK, busy_count, "nodes: busy tree unbalanced or miscounted"},
    {TREE, lazy_size, "nodes: lazy list miscounted"},
    {POOLS, pool_size, "nodes: a range of another size in a pool"},
    {POOLS, pool_lost, "nodes: a pool miscounted"},
    {TREE, sum_of_all, " != range "},
    {TABLE, sum_of_all, " != range "},
    {TABLE, sum_of_all, "nodes: an area or block that is not whole in the table"},
    {BLOCKS, table_lost, "nodes: areas of the table miscounted"},
    {BLOCKS, unit_ragged, "cached units: a run that is not whole units"},
    {BLOCKS, unit_owned, "cached units: a cached unit that somebody owns"},
    {BLOCKS, unit_length, "cached units: a ready run in the wrong list"},
    {TABLE, unit_stamp, "cached units: stamps that fall"},
    {BLOCKS, unit_lost, "cached units: units miscounted"},
    {BLOCKS, ready_lost, "cached units: units miscounted"},
    {TREE, lazy_count, "lazy pages counted"},
    {WALK, lazy_count, "lazy pages counted"},
    {TREE, orphan, "1 entries that belong to no area"},
    {BLOCKS, orphan, "1 entries that belong to no area"},
    {TREE, writable_code, "1 entries writable and executable, 0 global"},
    {BLOCKS, global_entry, "0 entries writable and executable, 1 global"},
    {TREE, table_count, "table pages counted"},
    {TREE, overlap, "areas overlap at"},
    {TREE, unmapped, "of a live area is not mapped"},
    {BLOCKS, unmapped, "of a live area is not mapped"},
    {TABLE, unmapped_large, "of a live area is not mapped"},
    {TREE, ram_unused, "blocks: a mapping in the never used part"},
    {TREE, ram_entry, "blocks: a mapping without an entry"},
    {TABLE, ram_entry, "blocks: a mapping without an entry"},
    {TREE, ram_cpu, "blocks: a block on another CPU's queue"},
    {TREE, ram_dead, "blocks: a dead block on a queue"},
    {TREE, ram_sum, "blocks: pages that are neither live, free nor dirty"},
    {TREE, ram_list, "blocks: a block on the wrong list"},
    {TREE, ram_area, "blocks: an area that does not know its block"},
    {TREE, ram_kind, "blocks: an area that does not know its block"},
    {TREE, ram_lost, "blocks: a wrong number of blocks"},
    {WALK, walk_overlap, "free gaps: areas that overlap, or outside the limits"},
    {WALK, walk_outside, "free gaps: areas that overlap, or outside the limits"},
    {WALK, walk_list, "free gaps: the sorted list and the tree differ"},
    {WALK, walk_longer, "free gaps: the sorted list is longer than the tree"},
    {WALK, sum_of_all, "free gaps: a wrong sum"},
    {BLOCKS, small_home, "per-CPU blocks: a block on another queue"},
    {BLOCKS, small_entry, "per-CPU blocks: a mapping without an entry"},
    {BLOCKS, small_states, "per-CPU blocks: a slot in two states"},
    {BLOCKS, small_waiting, "per-CPU blocks: freed slots miscounted"},
    {BLOCKS, small_used, "per-CPU blocks: used and free slots that are not all"},
    {BLOCKS, small_sum, "per-CPU blocks: slots that are neither live, freed nor free"},
    {BLOCKS, small_state, "per-CPU blocks: a block in the wrong list"},
    {BLOCKS, small_count, "per-CPU blocks: a wrong number of blocks"},
    {TREE, frame_node, "is in the list of another node"},
    {TREE, frame_limit, "reaches beyond its memory range"},
    {TREE, frame_aligned, "is not aligned to its order"},
    {TREE, frame_buddy, "was not merged with its buddy"},
    {TREE, frame_total, "page_alloc_check: node 0: "},
    {TREE, frame_busy, "busy 1"},
    {TREE, frame_many, "513 pages in its list"},
    {TREE, frame_homeless, "has no node"},
    {TREE, slab_magic, "checked: slab 0x"},
    {TREE, slab_cache, "has a damaged state"},
    {TREE, slab_out, "has a damaged state"},
    {TREE, slab_miscount, "has objects that are neither free nor out"},
    {TREE, slab_leads_out, "has a free list that leads out of it"},
    {TREE, slab_broken, "is in a broken list"},
    {TREE, slab_lost, "checked: counts are wrong"},
    {TREE, slab_pages, "checked: counts are wrong"},
    {TREE, object_written, "has a free object that was written"},
    {TREE, magazine_busy, "checked: cpu 0's magazines are damaged"},
    {TREE, magazine_missing, "checked: cpu 0's magazines are damaged"},
    {TREE, magazine_spare, "checked: cpu 0's magazines are damaged"},
    {TREE, magazine_object, "holds what is no free object"},
    {TREE, depot_count, "checked: the depot is damaged"},
    {TREE, depot_full, "checked: the depot is damaged"},
    {TREE, depot_full_of_rubbish, "checked: the depot is damaged"},
    {TREE, depot_empty, "checked: the depot is damaged"},
};

static void try_damage(void *arg)
{
    const struct damage *d = arg;
    const char *text;
    bool sound;

    page = alloc_page();
    make_areas();
    make_blocks();
    make_pblocks();
    make_objects();
    SIM_CHECK(vmap_selfcheck(), "not sound before the damage");
    d->plant();
    capture_start();
    sound = vmap_selfcheck();
    text = capture_text();
    put_back();
    purge_lazy_count(-miscounted);
    miscounted = 0;
    SIM_CHECK(!sound, "\"%s\" was not found", d->found);
    SIM_CHECK(strstr(text, d->found), "expected \"%s\", found \"%s\"", d->found, text);
    SIM_CHECK(vmap_selfcheck(), "not sound when \"%s\" was put back", d->found);
}

static void test_damage(void **state)
{
    unsigned failed = 0;

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(damages); i++) {
        test_seconds++; /* a new window for lines that are limited in number */
        sim_machine(&(struct sim_options){
            .seed = 1, .ram = 24 * SZ_1M, .cpus = 2, .nodes = 2, .no_oracle = true});
        sim_boot(&configs[damages[i].config]);
        patched = 0;
        failed += !sim_do(try_damage, (void *)&damages[i]);
    }
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
