/*
 * vmalloc.c: the API: sizes, flags, frames, error paths. The parts that find addresses are below it.
 *
 * An area is published (busy tree) when it is whole, and taken out before its entries are cleared, so
 * that no lookup sees it half made (case F6). Frames are found in the page table: there is no pages array.
 */
#include "mm/vmalloc.h"

#include "lib/assert.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/early_alloc.h"
#include "mm/page_alloc.h"
#include "mm/ptmap.h"
#include "mm/vmap_internal.h"
#include "mm/vmap_pcpu.h"
#include <arch/atomic.h>
#include <arch/tlb.h>

/* Frames are taken and mapped in batches of this many. */
#define MAP_BATCH 64

#define CALLER __builtin_return_address(0)

uint32_t vmap_up;
uintptr_t vmap_start, vmap_end;

static struct vmap_purge_notifier *notifiers;

static bool usable(void)
{
    return READ_ONCE(vmap_up) && !in_nmi();
}

void vmap_complain(const char *what, const void *addr, void *caller)
{
    kprintf_ratelimited("# vmap: %s: %p, caller %pS\n", what, addr, caller);
}

static void alloc_failed(uint64_t size, const char *why, void *caller)
{
    this_cpu_inc(vmap_stat.alloc_fail);
    kprintf_ratelimited("# vmap: allocation of %lu bytes failed: %s, caller %pS\n",
                        (unsigned long)size, why, caller);
}

static void bad_free(const char *what, const void *addr, void *caller)
{
    this_cpu_inc(vmap_stat.bad_free);
    vmap_complain(what, addr, caller);
}

int register_vmap_purge_notifier(struct vmap_purge_notifier *n)
{
    struct vmap_purge_notifier *first = READ_ONCE(notifiers);

    do
        n->next = first;
    while (!ATOMIC_CAS(notifiers, &first, n));
    return OK;
}

int unregister_vmap_purge_notifier(struct vmap_purge_notifier *n)
{
    for (struct vmap_purge_notifier **p = &notifiers; *p; p = &(*p)->next) {
        if (*p == n) {
            WRITE_ONCE(*p, n->next);
            return OK;
        }
    }
    return ERR_NOENT;
}

static bool notify_shortage(void)
{
    unsigned long released = 0;

    if (in_irq())
        return false;
    for (struct vmap_purge_notifier *n = LOAD_ACQUIRE(notifiers); n; n = READ_ONCE(n->next))
        released += n->purge(n);
    return released != 0;
}

/* False if not even an empty range has such a place: then nothing that is given back helps. */
static bool could_fit(uint64_t size, uint64_t align)
{
    uint64_t pad = -vmap_start & (align - 1), range = vmap_end - vmap_start;

    return pad <= range && range - pad >= size;
}

struct vm_area *vmap_area_alloc(uint64_t size, uint64_t align, unsigned flags)
{
    struct vm_area *a = NULL;
    err_t err;

    /* Whole units of the table; permanent areas always, since the next design may have one. */
    if (vmap_config.blocks_all || flags & VM_PERMANENT) {
        size = ALIGN_UP(size, BLOCK_SIZE);
        align = MAX(align, BLOCK_SIZE);
    }
    if (!(flags & VM_PERMANENT))
        a = node_pool_take(size, align);
    if (a)
        goto out;
    a = area_new();
    if (!a)
        return NULL;
    a->pool = VMAP_NO_POOL;
    err = area_space_take(a, size, align);
    if (err == ERR_NOSPACE && could_fit(size, align)) {
        purge_everything(); /* what waits, and the pools */
        err = area_space_take(a, size, align);
    }
    if (err == ERR_NOSPACE && could_fit(size, align) && notify_shortage()) {
        purge_everything();
        err = area_space_take(a, size, align);
    }
    if (err == OK && vmap_config.blocks_all && table_reserve(a->start, a->end) != OK) {
        area_space_give(a);
        return NULL;
    }
    if (err != OK) {
        area_delete(a);
        return NULL;
    }
out:
    a->flags = (uint16_t)flags;
    a->nr_pages = 0;
    a->page_offset = 0;
    a->block = NULL;
    return a;
}

void vmap_area_free_unused(struct vm_area *a)
{
    area_space_give(a);
}

/* Whole pages of a size that makes sense; 0 if it does not. */
static uint64_t size_to_pages(uint64_t size)
{
    uint64_t pages;

    if (size == 0 || size > UINT64_MAX - PAGE_SIZE)
        return 0;
    pages = (size + PAGE_SIZE - 1) >> PAGE_SHIFT;
    return pages <= page_total() && pages <= UINT32_MAX ? pages : 0;
}

static uint64_t guard_size(unsigned flags)
{
    return flags & VM_NO_GUARD ? 0 : PAGE_SIZE;
}

static pgprot_t flags_to_prot(unsigned flags)
{
    if (flags & VM_EXEC)
        return PAGE_KERNEL_RX;
    return flags & VM_READONLY ? PAGE_KERNEL_RO : PAGE_KERNEL;
}

static void publish(struct vm_area *a, uint64_t pages, enum vm_kind kind, void *caller)
{
    a->nr_pages = (uint32_t)pages;
    a->kind = (uint8_t)kind;
    a->caller = caller;
    node_busy_insert(a);
    /* Congruent areas are not whole units: they are found in the tree. */
    if (vmap_config.blocks_all && kind != VM_KIND_PCPU)
        table_set(a->start, a->end, (uintptr_t)a | TABLE_AREA);
}

/* Unpublished, unmapped addresses: they wait for the flush like any others. */
static void retire(struct vm_area *a)
{
    uint64_t pages = (a->end - a->start) >> PAGE_SHIFT;

    node_lazy_add(a);
    purge_lazy_added(pages);
}

/* Fills `pages` pages of a with single frames. False: out of memory, and all was taken back. */
static bool populate_small(struct vm_area *a, uint64_t pages, unsigned flags, int node)
{
    pgprot_t prot = flags_to_prot(flags);
    struct page *batch[MAP_BATCH];
    uintptr_t va = a->start;

    while (pages) {
        unsigned want = (unsigned)MIN(pages, (uint64_t)MAP_BATCH), done = 0;
        unsigned got = page_alloc_bulk(batch, want, node);

        if (flags & VM_ZERO)
            for (unsigned i = 0; i < got; i++)
                memset(page_address(batch[i]), 0, PAGE_SIZE);
        if (got == want && ptmap_map_pages(va, batch, want, prot, &done) == OK) {
            va += want * PAGE_SIZE;
            pages -= want;
            continue;
        }
        page_free_bulk(batch + done, got - done);
        ptmap_unmap_noflush(a->start, va + done * PAGE_SIZE, PTMAP_FREE);
        return false;
    }
    return true;
}

/* 2 MiB leaves for all of a; false: none of it is mapped. */
static bool populate_huge(struct vm_area *a, uint64_t pages, unsigned flags, int node)
{
    pgprot_t prot = flags_to_prot(flags);
    uintptr_t va = a->start;

    for (uint64_t done = 0; done < pages; done += PTE_COUNT, va += PMD_SIZE) {
        struct page *head = alloc_pages_node(PMD_SHIFT - PAGE_SHIFT, node);

        if (head && flags & VM_ZERO)
            memset(page_address(head), 0, PMD_SIZE);
        if (head && ptmap_map_leaf(va, head, prot) == OK)
            continue;
        if (head)
            free_pages(head, PMD_SHIFT - PAGE_SHIFT);
        ptmap_unmap_noflush(a->start, va, PTMAP_FREE);
        return false;
    }
    return true;
}

static void *alloc_huge(uint64_t pages, uint64_t align, unsigned flags, int node, void *caller)
{
    struct vm_area *a;

    if (pages % PTE_COUNT)
        return NULL; /* a partly used leaf would have no guard behind the last byte */
    a = vmap_area_alloc(pages * PAGE_SIZE + guard_size(flags), MAX(align, PMD_SIZE), flags);
    if (!a)
        return NULL;
    if (!populate_huge(a, pages, flags, node)) {
        retire(a);
        return NULL;
    }
    publish(a, pages, VM_KIND_ALLOC, caller);
    return (void *)a->start;
}

static struct pslot slot_for(unsigned pages, unsigned flags, unsigned kind, void *caller)
{
    return (struct pslot){.caller = (int32_t)((intptr_t)caller - (intptr_t)vmalloc),
                          .pages = (uint8_t)pages,
                          .span = (uint8_t)(pages + (flags & VM_NO_GUARD ? 0 : 1)),
                          .kind = (uint8_t)kind,
                          .flags = (uint8_t)flags};
}

/* The default design's path for up to PBLOCK_MAX_ALLOC pages. */
static void *alloc_small(unsigned pages, uint64_t align, unsigned flags, int node, void *caller)
{
    struct pslot slot = slot_for(pages, flags, VM_KIND_ALLOC, caller);
    struct page *batch[PBLOCK_MAX_ALLOC];
    unsigned got;
    void *p;

    tlb_gen_check();
    if (pages == 1 && node < 0) {
        batch[0] = alloc_page();
        got = batch[0] != NULL;
    } else {
        got = page_alloc_bulk(batch, pages, node);
    }
    if (unlikely(got != pages))
        goto err_pages;
    if (unlikely(flags & VM_ZERO))
        for (unsigned i = 0; i < pages; i++)
            memset(page_address(batch[i]), 0, PAGE_SIZE);
    p = pblock_map(batch, pages, (unsigned)(align >> PAGE_SHIFT), slot, flags_to_prot(flags));
    if (likely(p))
        return p;
err_pages:
    page_free_bulk(batch, got);
    alloc_failed((uint64_t)pages << PAGE_SHIFT, got == pages ? "no addresses" : "no memory", caller);
    return NULL;
}

static void *alloc_common(uint64_t size, uint64_t align, unsigned flags, int node, void *caller)
{
    uint64_t pages = size_to_pages(size);
    struct vm_area *a;

    if (!usable())
        return NULL;
    if (!pages || flags & ~(unsigned)VM_FLAGS_PUBLIC || !IS_POWER_OF_2(align)) {
        alloc_failed(size, pages ? "bad alignment or flags" : "impossible size", caller);
        return NULL;
    }
    if (unlikely(PERCPU_READ_(kvfree_deferred_count) >= KVFREE_DEFERRED_MAX) && !in_irq())
        kvfree_drain();
    align = MAX(align, PAGE_SIZE);
    if (vmap_config.blocks_all && pages <= PBLOCK_MAX_ALLOC && align <= PBLOCK_MAX_ALIGN &&
        !(flags & VM_PERMANENT))
        return alloc_small((unsigned)pages, align, flags & ~(unsigned)VM_HUGE, node, caller);
    if (flags & VM_HUGE) {
        void *p = alloc_huge(pages, align, flags & ~(unsigned)VM_HUGE, node, caller);

        if (p)
            return p;
        flags &= ~(unsigned)VM_HUGE; /* as a whole with small pages and the asked alignment (D2) */
    }
    a = vmap_area_alloc(pages * PAGE_SIZE + guard_size(flags), align, flags);
    if (!a) {
        alloc_failed(size, "no addresses", caller);
        return NULL;
    }
    if (!populate_small(a, pages, flags, node)) {
        retire(a);
        alloc_failed(size, "no memory", caller);
        return NULL;
    }
    publish(a, pages, VM_KIND_ALLOC, caller);
    return (void *)a->start;
}

void *vmalloc(size_t size)
{
    return alloc_common(size, PAGE_SIZE, 0, VM_ANY_NODE, CALLER);
}

void *vzalloc(size_t size)
{
    return alloc_common(size, PAGE_SIZE, VM_ZERO, VM_ANY_NODE, CALLER);
}

void *vmalloc_node(size_t size, int node)
{
    return alloc_common(size, PAGE_SIZE, 0, node, CALLER);
}

void *vmalloc_huge(size_t size)
{
    return alloc_common(size, PAGE_SIZE, VM_HUGE, VM_ANY_NODE, CALLER);
}

void *__vmalloc(size_t size, size_t align, unsigned vm_flags, int node)
{
    return alloc_common(size, align, vm_flags, node, CALLER);
}

static bool owns_frames(const struct vm_area *a)
{
    return a->kind == VM_KIND_ALLOC || (a->kind == VM_KIND_MAP && a->flags & VM_MAP_PUT_PAGES);
}

static bool match_owned(const struct vm_area *a, const void *arg)
{
    (void)arg;
    return owns_frames(a);
}

static bool match_map(const struct vm_area *a, const void *arg)
{
    (void)arg;
    return a->kind == VM_KIND_MAP;
}

static bool match_ioremap(const struct vm_area *a, const void *arg)
{
    return a->kind == VM_KIND_IOREMAP && a->page_offset == *(const unsigned *)arg;
}

static bool match_ram(const struct vm_area *a, const void *arg)
{
    return a->kind == VM_KIND_RAM && a->nr_pages == *(const unsigned *)arg;
}

/* Unmaps an area that was just unlinked, and lets its addresses wait. */
static void unmap_and_retire(struct vm_area *a, enum ptmap_frames frames)
{
    ptmap_unmap_noflush(a->start, a->start + (uintptr_t)a->nr_pages * PAGE_SIZE, frames);
    a->keeps_frames = frames == PTMAP_SAFE;
    retire(a);
}

static void free_common(const void *p, node_match_fn match, const void *arg,
                        enum ptmap_frames frames, const char *what, void *caller)
{
    struct vm_area *a = NULL;

    if (!p)
        return;
    if (!usable()) {
        if (READ_ONCE(vmap_up))
            bad_free("free in NMI", p, caller);
        return;
    }
    if (is_vmalloc_addr(p))
        a = node_busy_unlink((uintptr_t)p, match, arg);
    if (!a) {
        bad_free(what, p, caller);
        vmalloc_dump_obj(p);
        return;
    }
    if (vmap_config.blocks_all)
        table_set(a->start, a->end, 0);
    unmap_and_retire(a, frames);
}

/* The default design's frees: true if p lies in a block, and is dealt with. */
static bool free_small(const void *p, unsigned kinds, unsigned count, enum ptmap_frames frames,
                       const char *what, void *caller)
{
    enum pblock_result r;
    struct pblock *b;
    struct pslot d;

    if (!vmap_config.blocks_all || (uintptr_t)p - vmap_start >= vmap_end - vmap_start || !usable())
        return false;
    tlb_gen_check();
    r = pblock_claim((uintptr_t)p, kinds, count, &b, &d);
    if (unlikely(r != PBLOCK_OK)) {
        if (r == PBLOCK_NOT_ONE)
            return false;
        bad_free(what, p, caller);
        vmalloc_dump_obj(p);
        return true;
    }
    ptmap_table_unmap(b->table, ((uintptr_t)p & (BLOCK_SIZE - 1)) >> PAGE_SHIFT, d.pages, frames);
    pblock_give(b, (uintptr_t)p, d.span);
    return true;
}

static enum ptmap_frames frames_of_freed(void)
{
    return vmap_config.frames_safe ? PTMAP_SAFE : PTMAP_FREE;
}

void vfree(const void *p)
{
    static const char what[] = "vfree of what vmalloc did not return";

    if (unlikely(PERCPU_READ_(kvfree_deferred_count) >= KVFREE_DEFERRED_MAX) && !in_irq())
        kvfree_drain();
    if (free_small(p, BIT(VM_KIND_ALLOC) | BIT(VM_KIND_MAP_OWNED), 0, frames_of_freed(), what, CALLER))
        return;
    free_common(p, match_owned, NULL, frames_of_freed(), what, CALLER);
}

void vunmap(const void *p)
{
    static const char what[] = "vunmap of what vmap did not return";

    if (free_small(p, BIT(VM_KIND_MAP) | BIT(VM_KIND_MAP_OWNED), 0, PTMAP_KEEP, what, CALLER))
        return;
    free_common(p, match_map, NULL, PTMAP_KEEP, what, CALLER);
}

static void *map_common(struct page **pages, unsigned count, unsigned flags, pgprot_t prot,
                        enum vm_kind kind, void *caller)
{
    uint64_t size = (uint64_t)count << PAGE_SHIFT;
    struct vm_area *a;
    unsigned done;

    if (!usable())
        return NULL;
    if (!pages || count == 0 || count > page_total() || flags & ~(unsigned)VM_FLAGS_PUBLIC ||
        ((prot & PTE_W) && !(prot & PTE_NX)) || !(prot & PTE_P)) {
        alloc_failed(size, "bad count, flags or protection", caller);
        return NULL;
    }
    prot &= ~(pgprot_t)(PTE_G | PTE_ADDR | PTE_U);
    if (vmap_config.blocks_all && count <= PBLOCK_MAX_ALLOC && !(flags & VM_PERMANENT)) {
        unsigned slot_kind =
            kind == VM_KIND_MAP && flags & VM_MAP_PUT_PAGES ? VM_KIND_MAP_OWNED : kind;
        void *p;

        tlb_gen_check();
        p = pblock_map(pages, count, 1, slot_for(count, flags, slot_kind, caller), prot);
        if (!p)
            alloc_failed(size, "no addresses", caller);
        return p;
    }
    a = vmap_area_alloc(size + guard_size(flags), PAGE_SIZE, flags);
    if (!a) {
        alloc_failed(size, "no addresses", caller);
        return NULL;
    }
    if (ptmap_map_pages(a->start, pages, count, prot, &done) != OK) {
        ptmap_unmap_noflush(a->start, a->start + (uintptr_t)done * PAGE_SIZE, PTMAP_KEEP);
        retire(a);
        alloc_failed(size, "no page table", caller);
        return NULL;
    }
    publish(a, count, kind, caller);
    return (void *)a->start;
}

void *vmap(struct page **pages, unsigned count, unsigned vm_flags, pgprot_t prot)
{
    return map_common(pages, count, vm_flags, prot, VM_KIND_MAP, CALLER);
}

void *vm_map_ram(struct page **pages, unsigned count, int node)
{
    void *p;

    (void)node; /* bookkeeping only, as in Linux: the frames are the caller's */
    if (!usable())
        return NULL;
    if (!pages || count == 0 || count > BLOCK_MAX_ALLOC || vmap_config.blocks_all)
        return map_common(pages, count, VM_NO_GUARD, PAGE_KERNEL, VM_KIND_RAM, CALLER);
    p = block_map(pages, count, CALLER);
    if (!p)
        alloc_failed((uint64_t)count << PAGE_SHIFT, "no block", CALLER);
    return p;
}

void vm_unmap_ram(const void *p, unsigned count)
{
    static const char what[] = "vm_unmap_ram of what vm_map_ram did not return";
    enum block_result r = BLOCK_NOT_A_BLOCK;

    if (!p)
        return;
    if (vmap_config.blocks_all) {
        if (free_small(p, BIT(VM_KIND_RAM), count ? count : UINT32_MAX, PTMAP_KEEP, what, CALLER))
            return;
    } else if (usable() && is_vmalloc_addr(p) && count != 0 && count <= BLOCK_MAX_ALLOC) {
        r = block_unmap((uintptr_t)p, count);
    }
    if (r == BLOCK_OK)
        return;
    if (r == BLOCK_BAD) {
        bad_free(what, p, CALLER);
        vmalloc_dump_obj(p);
        return;
    }
    free_common(p, match_ram, &count, PTMAP_KEEP, what, CALLER);
}

/* True if any of [pa, pa + size) is RAM that the kernel uses. */
static bool range_is_ram(phys_addr_t pa, uint64_t size)
{
    size_t n;
    const struct mem_range *r = early_map(&n);

    for (size_t i = 0; i < n; i++) {
        bool ram = r[i].kind == MEM_USABLE || r[i].kind == MEM_BOOT_RECLAIM ||
                   r[i].kind == MEM_LOADER;

        if (ram && pa < r[i].base + r[i].size && r[i].base < pa + size)
            return true;
    }
    return false;
}

void *ioremap(phys_addr_t pa, size_t size, enum cache_mode mode)
{
    unsigned offset = pa & (PAGE_SIZE - 1);
    phys_addr_t base = pa - offset;
    struct vm_area *a;
    uint64_t bytes;

    if (!usable())
        return NULL;
    if (size == 0 || size > SZ_512G || pa + size < pa || pa + size > BIT(52)) {
        alloc_failed(size, "impossible ioremap", CALLER);
        return NULL;
    }
    bytes = ALIGN_UP(size + offset, PAGE_SIZE);
    if (range_is_ram(base, bytes)) {
        alloc_failed(size, "ioremap of RAM", CALLER);
        return NULL;
    }
    a = vmap_area_alloc(bytes + PAGE_SIZE, bytes >= PMD_SIZE ? PMD_SIZE : PAGE_SIZE, VM_PERMANENT);
    if (!a) {
        alloc_failed(size, "no addresses", CALLER);
        return NULL;
    }
    a->page_offset = (uint16_t)offset;
    if (ptmap_map_phys(a->start, base, bytes, pgprot_cache(PAGE_KERNEL, mode)) != OK) {
        ptmap_unmap_noflush(a->start, a->start + bytes, PTMAP_MMIO);
        retire(a);
        alloc_failed(size, "no page table", CALLER);
        return NULL;
    }
    publish(a, bytes >> PAGE_SHIFT, VM_KIND_IOREMAP, CALLER);
    return (void *)(a->start + offset);
}

void iounmap(void *p)
{
    unsigned offset = (uintptr_t)p & (PAGE_SIZE - 1);

    free_common((void *)((uintptr_t)p & PAGE_MASK), match_ioremap, &offset, PTMAP_MMIO,
                "iounmap of what ioremap did not return", CALLER);
}

static bool congruent_ok(const size_t *offsets, const size_t *sizes, int n, size_t align)
{
    if (n <= 0 || !IS_POWER_OF_2(align) || align < PAGE_SIZE)
        return false;
    for (int i = 0; i < n; i++) {
        uint64_t end = offsets[i] + sizes[i];

        if (!sizes[i] || !IS_ALIGNED(offsets[i] | sizes[i], align) || end < offsets[i])
            return false;
        for (int j = 0; j < i; j++)
            if (offsets[i] < offsets[j] + sizes[j] && offsets[j] < end)
                return false;
    }
    return true;
}

struct vm_area **pcpu_get_vm_areas(const size_t *offsets, const size_t *sizes, int n, size_t align)
{
    struct vm_area **areas;
    err_t err = ERR_NOMEM;
    int made = 0;

    if (!usable())
        return NULL;
    if (!congruent_ok(offsets, sizes, n, align)) {
        alloc_failed(0, "congruent areas that cannot be", CALLER);
        return NULL;
    }
    areas = kvmalloc((size_t)n * sizeof(*areas));
    if (!areas)
        return NULL;
    for (; made < n; made++) {
        areas[made] = area_new();
        if (!areas[made])
            goto err_areas;
        areas[made]->pool = VMAP_NO_POOL;
    }
    err = area_space_take_congruent(areas, offsets, sizes, n, align);
    if (err == ERR_NOSPACE) {
        purge_everything();
        err = area_space_take_congruent(areas, offsets, sizes, n, align);
    }
    if (err != OK)
        goto err_areas;
    for (int i = 0; i < n; i++)
        publish(areas[i], 0, VM_KIND_PCPU, CALLER);
    return areas;

err_areas:
    alloc_failed(0, err == ERR_NOSPACE ? "no congruent addresses" : "no memory", CALLER);
    while (made--)
        area_delete(areas[made]);
    kvfree(areas);
    return NULL;
}

static bool match_same(const struct vm_area *a, const void *arg)
{
    return a == arg;
}

void pcpu_free_vm_areas(struct vm_area **areas, int n)
{
    if (!areas)
        return;
    for (int i = 0; i < n; i++) {
        struct vm_area *a = node_busy_unlink(areas[i]->start, match_same, areas[i]);

        if (!a) {
            bad_free("congruent area that is not live", areas[i], CALLER);
            continue;
        }
        ptmap_unmap_noflush(a->start, a->end, PTMAP_KEEP);
        retire(a);
    }
    kvfree(areas);
}

void *vm_area_start(const struct vm_area *area)
{
    return (void *)area->start;
}

err_t vm_area_map_pages(struct vm_area *area, size_t offset, struct page **pages, unsigned count)
{
    uint64_t size = area->end - area->start;
    unsigned done;
    err_t err;

    if (!IS_ALIGNED(offset, PAGE_SIZE) || offset > size ||
        (size - offset) >> PAGE_SHIFT < count || area->kind != VM_KIND_PCPU)
        return ERR_INVAL;
    err = ptmap_map_pages(area->start + offset, pages, count, PAGE_KERNEL, &done);
    if (err != OK)
        vm_area_unmap_pages(area, offset, done);
    return err;
}

void vm_area_unmap_pages(struct vm_area *area, size_t offset, unsigned count)
{
    uintptr_t start = area->start + offset, end = start + (uintptr_t)count * PAGE_SIZE;

    ptmap_unmap_noflush(start, end, PTMAP_KEEP);
    purge_note_pending(start, end);
}

/* What vrealloc finds at p. */
struct old_area {
    uintptr_t start;
    uint32_t pages, new_pages;
    unsigned flags;
    struct pblock *block; /* NULL: an area */
};

static bool look(struct vm_area *a, void *arg)
{
    struct old_area *old = arg;

    old->start = a->start;
    old->pages = a->nr_pages;
    old->flags = a->flags;
    return a->kind == VM_KIND_ALLOC;
}

static bool set_pages(struct vm_area *a, void *arg)
{
    a->nr_pages = ((struct old_area *)arg)->new_pages;
    return true;
}

static struct pslot *slot_of(const struct pblock *b, uintptr_t addr)
{
    return &b->slots[(addr & (BLOCK_SIZE - 1)) >> PAGE_SHIFT];
}

static bool find_old(uintptr_t addr, struct old_area *old)
{
    uintptr_t entry = 0;
    struct pslot d;

    if (addr < vmap_start || addr >= vmap_end)
        return false;
    old->block = NULL;
    if (vmap_config.blocks_all) {
        tlb_gen_read_begin();
        entry = table_lookup(addr);
        if (entry && !(entry & TABLE_AREA)) {
            old->block = (struct pblock *)entry;
            d = pslot_read(slot_of(old->block, addr));
        }
        tlb_gen_read_end();
    }
    if (!old->block)
        return node_busy_with(addr, look, old);
    old->start = addr;
    old->pages = d.pages;
    old->flags = d.flags;
    return d.kind == VM_KIND_ALLOC && IS_ALIGNED(addr, PAGE_SIZE);
}

/* Gives the tail back; the start stays. A leaf in which the new end lies is split first. */
static void shrink_in_place(struct old_area *old)
{
    uintptr_t cut = old->start + (uintptr_t)old->new_pages * PAGE_SIZE;
    uintptr_t end = old->start + (uintptr_t)old->pages * PAGE_SIZE;

    if (old->block) {
        slot_of(old->block, old->start)->pages = (uint8_t)old->new_pages;
    } else {
        if (!IS_ALIGNED(cut, PMD_SIZE) && ptmap_split_leaf(cut) != OK)
            return; /* no page table: the area keeps its pages */
        node_busy_with(old->start, set_pages, old);
    }
    ptmap_unmap_noflush(cut, end, old->block ? frames_of_freed() : PTMAP_FREE);
    purge_note_pending(cut, end);
}

static void copy_pages(uintptr_t to, uintptr_t from, uint32_t pages)
{
    for (uint32_t i = 0; i < pages; i++, to += PAGE_SIZE, from += PAGE_SIZE)
        memcpy(phys_to_virt(ptmap_translate(to, NULL, NULL)),
               phys_to_virt(ptmap_translate(from, NULL, NULL)), PAGE_SIZE);
}

void *vrealloc(const void *p, size_t size)
{
    struct old_area old;
    uint64_t pages;
    void *q;

    if (!p)
        return alloc_common(size, PAGE_SIZE, 0, VM_ANY_NODE, CALLER);
    if (!usable())
        return NULL;
    if (!find_old((uintptr_t)p, &old)) {
        bad_free("vrealloc of what vmalloc did not return", p, CALLER);
        vmalloc_dump_obj(p);
        return NULL;
    }
    if (size == 0) {
        vfree(p);
        return NULL;
    }
    pages = size_to_pages(size);
    if (!pages) {
        alloc_failed(size, "impossible size", CALLER);
        return NULL;
    }
    old.new_pages = (uint32_t)pages;
    if (pages < old.pages)
        shrink_in_place(&old);
    if (pages <= old.pages)
        return (void *)p;
    q = alloc_common(size, PAGE_SIZE, old.flags & ~(unsigned)VM_PERMANENT, VM_ANY_NODE, CALLER);
    if (!q)
        return NULL;
    copy_pages((uintptr_t)q, (uintptr_t)p, old.pages);
    vfree(p);
    return q;
}
