/*
 * vmalloc.c: the API: sizes, flags, frames, error paths. The parts that find addresses are below
 * it.
 *
 * An area is published (busy tree) when it is whole, and taken out before its entries are cleared,
 * so that no lookup sees it half made (case F6). Frames are found in the page table: there is no
 * pages array.
 */
#include "mm/vmalloc.h"

#include "lib/assert.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/early_alloc.h"
#include "mm/page_alloc.h"
#include "mm/ptmap.h"
#include "mm/vmap_internal.h"
#include "mm/vmap_frames.h"
#include "mm/vmap_pcpu.h"
#include <arch/atomic.h>
#include <arch/tlb.h>

/* Frames are taken and mapped in batches of this many. */
#define MAP_BATCH 64
/* Passes over everything that waits before an allocation fails for want of addresses. */
#define SHORTAGE_TRIES 8

#define CALLER __builtin_return_address(0)

uint32_t vmap_up __read_mostly;
uintptr_t vmap_start __read_mostly, vmap_end __read_mostly, vmap_range __read_mostly;

static struct vmap_purge_notifier *notifiers;

bool vmap_usable(void)
{
    return READ_ONCE(vmap_up) && !in_nmi();
}

void vmap_complain(const char *what, const void *addr, void *caller)
{
    kprintf_ratelimited("# vmap: %s: %p, caller %pS\n", what, addr, caller);
}

void vmap_alloc_failed(uint64_t size, const char *why, void *caller)
{
    this_cpu_inc(vmap_stat.alloc_fail);
    kprintf_ratelimited("# vmap: allocation of %lu bytes failed: %s, caller %pS\n",
                        (unsigned long)size, why, caller);
}

void vmap_bad_free(const char *what, const void *addr, void *caller)
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

struct wanted_area {
    struct vm_area *a;
    uint64_t size, align;
    err_t err;
};

static bool take_wanted(void *arg)
{
    struct wanted_area *w = arg;

    w->err = area_space_take(w->a, w->size, w->align);
    return w->err != ERR_NOSPACE;
}

/* Who purges is the first to take: those that its end wakes up are short, too. Others may take what
 * comes back all the same, so more than once. */
void vmap_take_after_purge(bool (*take)(void *arg), void *arg)
{
    bool enough = false;

    for (unsigned i = 0; !enough && i < SHORTAGE_TRIES; i++) {
        if (i && vmap_config.blocks_all)
            pblock_shortage();
        enough = purge_until(i >= SHORTAGE_TRIES / 4, take, arg);
    }
    if (!enough && notify_shortage())
        purge_until(true, take, arg);
}

static err_t take_after_purge(struct vm_area *a, uint64_t size, uint64_t align)
{
    struct wanted_area w = {.a = a, .size = size, .align = align, .err = ERR_NOSPACE};

    if (could_fit(size, align))
        vmap_take_after_purge(take_wanted, &w);
    return w.err;
}

struct vm_area *vmap_area_alloc(uint64_t size, uint64_t align, unsigned flags)
{
    struct vm_area *a = NULL;
    err_t err;

    /* Whole units of the table; permanent areas always, since the next design may have one. */
    if (vmap_config.index_table || flags & VM_PERMANENT) {
        size = ALIGN_UP(size, BLOCK_SIZE);
        if (vmap_units_on && align <= BLOCK_SIZE && !(flags & VM_PERMANENT))
            a = units_take(size, flags & VM_HUGE);
        align = MAX(align, BLOCK_SIZE);
    } else {
        a = node_pool_take(size, align);
    }
    if (a)
        goto out;
    a = area_new();
    if (!a)
        return NULL;
    a->pool = VMAP_NO_POOL;
    err = area_space_take(a, size, align);
    if (unlikely(err == ERR_NOSPACE))
        err = take_after_purge(a, size, align);
    if (err == OK && vmap_config.index_table && table_reserve(a->start, a->end) != OK) {
        vmap_area_free_unused(a);
        return NULL;
    }
    if (err != OK) {
        area_delete(a);
        return NULL;
    }
out:
    a->flags = (uint8_t)(flags & ~(unsigned)VM_HUGE);
    a->leaves = a->plain = false;
    a->nr_pages = 0;
    a->page_offset = 0;
    a->block = NULL;
    if (vmap_config.insert_twice && a->state == AREA_ALONE)
        node_busy_reserve(a);
    return a;
}

void vmap_area_free_unused(struct vm_area *a)
{
    if (vmap_config.search_walk) { /* only the purge takes areas out of the tree */
        vmap_retire(a);
        return;
    }
    if (a->state == AREA_RESERVED)
        node_busy_remove(a);
    area_space_give(a);
}

/* Whole pages of a size that makes sense; 0 if it does not. */
uint64_t vmap_size_to_pages(uint64_t size)
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

void vmap_publish(struct vm_area *a, uint64_t pages, enum vm_kind kind, void *caller)
{
    a->nr_pages = (uint32_t)pages;
    a->kind = (uint8_t)kind;
    a->caller = caller;
    a->queue = NULL;
    a->owner_type = OWNER_AREA;
    node_busy_insert(a);
    /* Congruent areas are not whole units: they are found in the tree. */
    if (vmap_config.index_table && kind != VM_KIND_PCPU)
        table_set_area(a);
}

/* Unpublished, unmapped addresses: they wait for the flush like any others. */
void vmap_retire(struct vm_area *a)
{
    uint64_t pages = (a->end - a->start) >> PAGE_SHIFT;

    if (a->state == AREA_RESERVED)
        node_busy_remove(a);
    if (vmap_units_on && units_give(a))
        return;
    node_lazy_add(a);
    purge_lazy_added(pages);
}

void vmap_unmap_owned(struct vm_area *a, uintptr_t end)
{
    ptmap_unmap_noflush(a->start, end, vmap_frames_of_freed());
    a->keeps_frames = vmap_config.frames_safe;
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
        vmap_unmap_owned(a, va + done * PAGE_SIZE);
        return false;
    }
    return true;
}

/* 2 MiB leaves for all of a; false: none of it is mapped. */
static bool populate_huge(struct vm_area *a, uint64_t pages, unsigned flags, int node)
{
    pgprot_t prot = flags_to_prot(flags);
    uintptr_t va = a->start;

    a->leaves = true;
    for (uint64_t done = 0; done < pages; done += PTE_COUNT, va += PMD_SIZE) {
        struct page *head = alloc_pages_node(PMD_SHIFT - PAGE_SHIFT, node);

        if (head && flags & VM_ZERO)
            memset(page_address(head), 0, PMD_SIZE);
        if (head && ptmap_map_leaf(va, head, prot) == OK)
            continue;
        if (head)
            free_pages(head, PMD_SHIFT - PAGE_SHIFT);
        vmap_unmap_owned(a, va);
        return false;
    }
    return true;
}

static void *alloc_huge(uint64_t pages, uint64_t align, unsigned flags, int node, void *caller)
{
    struct vm_area *a;

    if (pages % PTE_COUNT)
        return NULL; /* a partly used leaf would have no guard behind the last byte */
    a = vmap_area_alloc(pages * PAGE_SIZE + guard_size(flags), MAX(align, PMD_SIZE),
                        flags | VM_HUGE);
    if (!a)
        return NULL;
    if (!populate_huge(a, pages, flags, node)) {
        vmap_retire(a);
        return NULL;
    }
    vmap_publish(a, pages, VM_KIND_ALLOC, caller);
    return (void *)a->start;
}

/* Small pages for all of a; false: out of memory, and all was taken back. */
static bool fill_area(struct vm_area *a, uint64_t pages, unsigned flags, int node)
{
    return vmap_units_on && units_can_fill(flags, node) ? units_fill(a, pages, flags & VM_ZERO)
                                                        : populate_small(a, pages, flags, node);
}

static struct pslot slot_for(unsigned pages, unsigned flags, unsigned kind, void *caller)
{
    return (struct pslot){.caller = (int32_t)((intptr_t)caller - (intptr_t)vmalloc),
                          .pages = (uint8_t)pages,
                          .span = (uint8_t)(pages + (flags & VM_NO_GUARD ? 0 : 1)),
                          .kind = (uint8_t)kind,
                          .flags = (uint8_t)(flags & ~(unsigned)VM_NO_GUARD)};
}

/* frames=safe, memory is short: everything that is freed and has kept its frames gives them up, on
 * other CPUs as far as they answer. The first round stamps what the second one gives. */
static void release_kept_frames(void)
{
    for (unsigned i = 0; i < 2; i++) {
        if (vmap_config.blocks_all) {
            pblock_release_frames();
            pblock_shortage();
        }
        purge_everything();
    }
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
    if (unlikely(got != pages) && vmap_config.frames_safe) {
        page_free_bulk(batch, got);
        release_kept_frames();
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
    vmap_alloc_failed((uint64_t)pages << PAGE_SHIFT, got == pages ? "no addresses" : "no memory",
                      caller);
    return NULL;
}

void *vmap_alloc(uint64_t size, uint64_t align, unsigned flags, int node, void *caller)
{
    uint64_t pages = vmap_size_to_pages(size);
    struct vm_area *a;

    if (!vmap_usable())
        return NULL;
    if (!pages || flags & ~(unsigned)VM_FLAGS_PUBLIC || !IS_POWER_OF_2(align)) {
        vmap_alloc_failed(size, pages ? "bad alignment or flags" : "impossible size", caller);
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
    for (bool again = false;; again = true) {
        a = vmap_area_alloc(pages * PAGE_SIZE + guard_size(flags), align, flags);
        if (a && likely(fill_area(a, pages, flags, node)))
            break;
        if (a)
            vmap_retire(a);
        if (!a || again || !vmap_config.frames_safe) {
            vmap_alloc_failed(size, a ? "no memory" : "no addresses", caller);
            return NULL;
        }
        release_kept_frames();
    }
    vmap_publish(a, pages, VM_KIND_ALLOC, caller);
    return (void *)a->start;
}

/*
 * The default design's common case: task context, no generation to flush, a block with room, ready
 * frames. Nothing here is shared with another CPU but the generation number, which is read. One
 * page and its guard are told from more, so that the former needs no loop and no saved registers.
 */
#define FAST_KIND(pages) ((uint32_t)VM_KIND_ALLOC << 16 | ((pages) + 1u) << 8 | (pages))

static __always_inline bool fast_allowed(void)
{
    return likely(tlb_gen_fast_path());
}

static __always_inline void *take_slots(struct pblock *b, unsigned at, uint32_t what, void *caller,
                                        unsigned span)
{
    uint64_t starts = b->starts[at / 64];
    struct pslot *slot = &b->slots[at];

    b->cursor = at + span;
    slot->caller = (int32_t)((intptr_t)caller - (intptr_t)vmalloc);
    STORE_RELEASE(*(uint32_t *)&slot->pages, what); /* alive from here on */
    STORE_RELEASE(b->starts[at / 64], starts | 1ULL << (at % 64));
    return (void *)(b->start + ((uintptr_t)at << PAGE_SHIFT));
}

static inline struct pblock *active_block(void)
{
    return PERCPU_READ_(vmap_pqueues.context[0].active);
}

static __noinline void *alloc_long(size_t size, void *caller);

/* NULL: no room, nothing has changed. */
static __always_inline void *alloc_some(unsigned pages, void *caller)
{
    struct vmap_frames *f = this_cpu_ptr(&vmap_frames);
    struct pblock *b = active_block();
    unsigned at = b->cursor, n = f->n;

    if (unlikely(at + pages + 1 > b->limit || n < pages))
        return NULL;
    f->n = n -= pages;
    frames_to_table(&b->table[at], &f->entry[n], pages);
    /* Read again: that is cheaper than a register kept over the loop. */
    return take_slots(b, READ_ONCE(b->cursor), FAST_KIND(pages), caller, pages + 1);
}

static __noinline void *alloc_more(size_t size, void *caller)
{
    void *p = alloc_some((unsigned)((size + PAGE_SIZE - 1) >> PAGE_SHIFT), caller);

    return likely(p) ? p : alloc_long(size, caller);
}

/* The long way of vmalloc: gets what the short one ran out of, frames or room, and tries it once
 * more. */
static __noinline void *alloc_long(size_t size, void *caller)
{
    unsigned pages = (unsigned)((size + PAGE_SIZE - 1) >> PAGE_SHIFT);

    if (!tlb_gen_fast_forbidden() && !in_irq() && size - 1 < PBLOCK_MAX_ALLOC * PAGE_SIZE) {
        void *p = NULL;

        tlb_gen_check();
        if ((this_cpu_ptr(&vmap_frames)->n >= pages || frames_fill(pages)) &&
            pblock_room(pages + 1))
            p = alloc_some(pages, caller);
        if (likely(p))
            return p;
    }
    return vmap_alloc(size, PAGE_SIZE, 0, VM_ANY_NODE, caller);
}

void *vmalloc(size_t size)
{
    struct vmap_frames *f;
    struct pblock *b;
    unsigned at, n;

    if (unlikely(size - 1 >= PBLOCK_MAX_ALLOC * PAGE_SIZE) || !fast_allowed())
        return alloc_long(size, CALLER);
    if (size > PAGE_SIZE)
        return alloc_more(size, CALLER);
    f = this_cpu_ptr(&vmap_frames);
    b = active_block();
    at = b->cursor;
    n = f->n;
    if (unlikely(at + 2 > b->limit) || unlikely(n == 0))
        return alloc_long(size, CALLER);
    f->n = --n;
    pte_write(&b->table[at], f->entry[n]);
    return take_slots(b, at, FAST_KIND(1), CALLER, 2);
}

void *vzalloc(size_t size)
{
    return vmap_alloc(size, PAGE_SIZE, VM_ZERO, VM_ANY_NODE, CALLER);
}

void *vmalloc_node(size_t size, int node)
{
    return vmap_alloc(size, PAGE_SIZE, 0, node, CALLER);
}

void *vmalloc_huge(size_t size)
{
    return vmap_alloc(size, PAGE_SIZE, VM_HUGE, VM_ANY_NODE, CALLER);
}

void *__vmalloc(size_t size, size_t align, unsigned vm_flags, int node)
{
    return vmap_alloc(size, align, vm_flags, node, CALLER);
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

static bool match_ram(const struct vm_area *a, const void *arg)
{
    return a->kind == VM_KIND_RAM && a->nr_pages == *(const unsigned *)arg;
}

/* Unmaps an area that was just unlinked, and lets its addresses wait. */
static void unmap_and_retire(struct vm_area *a, enum ptmap_frames frames)
{
    if (!a->plain || frames != PTMAP_FREE || !units_empty(a))
        ptmap_unmap_noflush(a->start, a->start + (uintptr_t)a->nr_pages * PAGE_SIZE, frames);
    a->keeps_frames = frames == PTMAP_SAFE;
    vmap_retire(a);
}

void vmap_free_area(const void *p, node_match_fn match, const void *arg, enum ptmap_frames frames,
                    const char *what, void *caller)
{
    struct vm_area *a = NULL;

    if (!p)
        return;
    if (!vmap_usable()) {
        if (READ_ONCE(vmap_up))
            vmap_bad_free("free in NMI", p, caller);
        return;
    }
    if (is_vmalloc_addr(p))
        a = node_busy_unlink((uintptr_t)p, match, arg);
    if (!a) {
        vmap_bad_free(what, p, caller);
        vmalloc_dump_obj(p);
        return;
    }
    if (vmap_config.index_table)
        table_clear(a->start, a->end);
    unmap_and_retire(a, frames);
}

/* The default design's frees: true if p lies in a block, and is dealt with. */
static bool free_small(const void *p, unsigned kinds, unsigned count, enum ptmap_frames frames,
                       const char *what, void *caller)
{
    enum pblock_result r;
    struct pblock *b;
    struct pslot d;

    if (!vmap_config.blocks_all || (uintptr_t)p - vmap_start >= vmap_end - vmap_start ||
        !vmap_usable())
        return false;
    tlb_gen_check();
    r = pblock_claim((uintptr_t)p, kinds, count, &b, &d);
    if (unlikely(r != PBLOCK_OK)) {
        if (r == PBLOCK_NOT_ONE)
            return false;
        vmap_bad_free(what, p, caller);
        vmalloc_dump_obj(p);
        return true;
    }
    ptmap_table_unmap(b->table, ((uintptr_t)p & (BLOCK_SIZE - 1)) >> PAGE_SHIFT, d.pages, frames);
    pblock_give(b, (uintptr_t)p, d.span);
    return true;
}

enum ptmap_frames vmap_frames_of_freed(void)
{
    return vmap_config.frames_safe ? PTMAP_SAFE : PTMAP_FREE;
}

/* A block of this CPU's task context, whose mapping at addr may be freed the short way; NULL: take
 * the long one. */
static __always_inline struct pblock *own_block(uintptr_t addr)
{
    struct vmap_owner *o;

    if (unlikely(addr - VMAP_BASE >= vmap_range) || unlikely(addr & (PAGE_SIZE - 1)) ||
        !fast_allowed())
        return NULL;
    o = table_lookup(addr);
    /* What is this queue's cannot go away meanwhile; what is not, is only compared. */
    if (unlikely(!PERCPU_EQUALS_(vmap_pqueue_self, READ_ONCE(o->queue))))
        return NULL;
    if (!o)
        __builtin_unreachable(); /* so that callers need not look at the address once more */
    return (struct pblock *)o;
}

static __noinline void free_long(const void *p, void *caller)
{
    static const char what[] = "vfree of what vmalloc did not return";

    if (unlikely(PERCPU_READ_(kvfree_deferred_count) >= KVFREE_DEFERRED_MAX) && !in_irq())
        kvfree_drain();
    if (!tlb_gen_fast_forbidden() && !in_irq())
        frames_room(PBLOCK_MAX_ALLOC);
    if (free_small(p, BIT(VM_KIND_ALLOC) | BIT(VM_KIND_MAP_OWNED), 0, vmap_frames_of_freed(), what,
                   caller))
        return;
    vmap_free_area(p, match_owned, NULL, vmap_frames_of_freed(), what, caller);
}

/* More than one page, or what only looked like one. */
static __noinline void free_more(struct pblock *b, const void *p, void *caller)
{
    unsigned at = ((uintptr_t)p & (BLOCK_SIZE - 1)) >> PAGE_SHIFT;
    struct vmap_frames *f = this_cpu_ptr(&vmap_frames);
    struct pslot d = pslot_read(&b->slots[at]);

    if (unlikely(d.kind != VM_KIND_ALLOC || d.flags)) {
        free_long(p, caller);
        return;
    }
    if (unlikely(f->n + d.pages > f->room)) {
        if (!vmap_config.frames_safe) {
            free_long(p, caller);
            return;
        }
        WRITE_ONCE(b->slots[at].kind, VM_KIND_NONE);
        table_hide(&b->table[at], d.pages);
        slot_bits_set(b->pending, at, d.span);
        return;
    }
    WRITE_ONCE(b->slots[at].kind, VM_KIND_NONE);
    frames_from_table(&f->entry[f->n], &b->table[at], d.pages);
    f->n += d.pages;
    slot_bits_set(b->pending, at, d.span);
}

void vfree(const void *p)
{
    unsigned at = ((uintptr_t)p & (BLOCK_SIZE - 1)) >> PAGE_SHIFT, n;
    struct pblock *b = own_block((uintptr_t)p);
    struct vmap_frames *f;

    if (unlikely(!b)) {
        free_long(p, CALLER);
        return;
    }
    f = this_cpu_ptr(&vmap_frames);
    n = f->n;
    if (pslot_what(&b->slots[at]) != FAST_KIND(1) || unlikely(n >= f->room)) {
        free_more(b, p, CALLER);
        return;
    }
    WRITE_ONCE(b->slots[at].kind, VM_KIND_NONE);
    f->entry[n] = pte_read(&b->table[at]);
    pte_write(&b->table[at], 0);
    f->n = n + 1;
    pblock_note_free_fast(b, at, 2);
}

void vunmap(const void *p)
{
    static const char what[] = "vunmap of what vmap did not return";

    if (free_small(p, BIT(VM_KIND_MAP) | BIT(VM_KIND_MAP_OWNED), 0, PTMAP_KEEP, what, CALLER))
        return;
    vmap_free_area(p, match_map, NULL, PTMAP_KEEP, what, CALLER);
}

static void *map_common(struct page **pages, unsigned count, unsigned flags, pgprot_t prot,
                        enum vm_kind kind, void *caller)
{
    uint64_t size = (uint64_t)count << PAGE_SHIFT;
    struct vm_area *a;
    unsigned done;

    if (!vmap_usable())
        return NULL;
    if (!pages || count == 0 || count > page_total() || flags & ~(unsigned)VM_FLAGS_PUBLIC ||
        ((prot & PTE_W) && !(prot & PTE_NX)) || !(prot & PTE_P)) {
        vmap_alloc_failed(size, "bad count, flags or protection", caller);
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
            vmap_alloc_failed(size, "no addresses", caller);
        return p;
    }
    a = vmap_area_alloc(size + guard_size(flags), PAGE_SIZE, flags);
    if (!a) {
        vmap_alloc_failed(size, "no addresses", caller);
        return NULL;
    }
    if (ptmap_map_pages(a->start, pages, count, prot, &done) != OK) {
        ptmap_unmap_noflush(a->start, a->start + (uintptr_t)done * PAGE_SIZE, PTMAP_KEEP);
        vmap_retire(a);
        vmap_alloc_failed(size, "no page table", caller);
        return NULL;
    }
    vmap_publish(a, count, kind, caller);
    return (void *)a->start;
}

void *vmap(struct page **pages, unsigned count, unsigned vm_flags, pgprot_t prot)
{
    return map_common(pages, count, vm_flags, prot, VM_KIND_MAP, CALLER);
}

#define RAM_KIND(pages) ((uint32_t)VM_KIND_RAM << 16 | (pages) << 8 | (pages))

static __noinline void *map_ram_long(struct page **pages, unsigned count, void *caller)
{
    void *p;

    if (!vmap_usable())
        return NULL;
    if (!pages || count == 0 || count > BLOCK_MAX_ALLOC || vmap_config.blocks_all)
        return map_common(pages, count, VM_NO_GUARD, PAGE_KERNEL, VM_KIND_RAM, caller);
    p = block_map(pages, count, caller);
    if (!p)
        vmap_alloc_failed((uint64_t)count << PAGE_SHIFT, "no block", caller);
    return p;
}

/* NULL: no room, nothing has changed. */
static __always_inline void *map_ram_some(struct page **pages, unsigned count, void *caller)
{
    struct pblock *b = active_block();
    unsigned at = b->cursor;

    if (unlikely(at + count > b->limit))
        return NULL;
    pages_to_table(&b->table[at], pages, count);
    /* Read again: that is cheaper than a register kept over the loop. */
    return take_slots(b, READ_ONCE(b->cursor), RAM_KIND(count), caller, count);
}

static __noinline void *map_ram_refill(struct page **pages, unsigned count, void *caller)
{
    void *p = pblock_refill(count) ? map_ram_some(pages, count, caller) : NULL;

    return likely(p) ? p : map_ram_long(pages, count, caller);
}

static __noinline void *map_ram_more(struct page **pages, unsigned count, void *caller)
{
    void *p = map_ram_some(pages, count, caller);

    return likely(p) ? p : map_ram_refill(pages, count, caller);
}

/* node is for bookkeeping only, as in Linux: the frames are the caller's. */
void *vm_map_ram(struct page **pages, unsigned count, int node)
{
    struct pblock *b;
    unsigned at;

    (void)node;
    if (unlikely(count - 1 >= PBLOCK_MAX_ALLOC) || unlikely(!pages) || !fast_allowed())
        return map_ram_long(pages, count, CALLER);
    b = active_block();
    at = b->cursor;
    if (count != 1 || unlikely(at >= b->limit))
        return map_ram_more(pages, count, CALLER);
    pte_write(&b->table[at], page_to_pte(pages[0], PAGE_KERNEL));
    return take_slots(b, at, RAM_KIND(1), CALLER, 1);
}

static __noinline void unmap_ram_long(const void *p, unsigned count, void *caller)
{
    static const char what[] = "vm_unmap_ram of what vm_map_ram did not return";
    enum block_result r = BLOCK_NOT_A_BLOCK;

    if (!p)
        return;
    if (vmap_config.blocks_all) {
        if (free_small(p, BIT(VM_KIND_RAM), count ? count : UINT32_MAX, PTMAP_KEEP, what, caller))
            return;
    } else if (vmap_usable() && is_vmalloc_addr(p) && count != 0 && count <= BLOCK_MAX_ALLOC) {
        r = block_unmap((uintptr_t)p, count);
    }
    if (r == BLOCK_OK)
        return;
    if (r == BLOCK_BAD) {
        vmap_bad_free(what, p, caller);
        vmalloc_dump_obj(p);
        return;
    }
    vmap_free_area(p, match_ram, &count, PTMAP_KEEP, what, caller);
}

static __noinline void unmap_ram_more(struct pblock *b, const void *p, unsigned count, void *caller)
{
    unsigned at = ((uintptr_t)p & (BLOCK_SIZE - 1)) >> PAGE_SHIFT;

    if (unlikely(count - 1 >= PBLOCK_MAX_ALLOC || pslot_what(&b->slots[at]) != RAM_KIND(count))) {
        unmap_ram_long(p, count, caller);
        return;
    }
    WRITE_ONCE(b->slots[at].kind, VM_KIND_NONE);
    table_zero(&b->table[at], count);
    slot_bits_set(b->pending, at, count);
}

void vm_unmap_ram(const void *p, unsigned count)
{
    unsigned at = ((uintptr_t)p & (BLOCK_SIZE - 1)) >> PAGE_SHIFT;
    struct pblock *b = own_block((uintptr_t)p);

    if (unlikely(!b)) {
        unmap_ram_long(p, count, CALLER);
        return;
    }
    if (count != 1 || unlikely(pslot_what(&b->slots[at]) != RAM_KIND(1))) {
        unmap_ram_more(b, p, count, CALLER);
        return;
    }
    WRITE_ONCE(b->slots[at].kind, VM_KIND_NONE);
    pte_write(&b->table[at], 0);
    pblock_note_free_fast(b, at, 1);
}
