/*
 * vrealloc.c: shrinking in place, growing by copying.
 *
 * Contents are copied through the direct map, page by page, so that nothing depends on the old
 * mapping's protection.
 */
#include "lib/string.h"
#include "mm/ptmap.h"
#include "mm/vmap_internal.h"
#include "mm/vmap_pcpu.h"

#define CALLER __builtin_return_address(0)

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
    WRITE_ONCE(a->nr_pages, ((struct old_area *)arg)->new_pages);
    return true;
}

static struct pslot *slot_of(const struct pblock *b, uintptr_t addr)
{
    return &b->slots[(addr & (BLOCK_SIZE - 1)) >> PAGE_SHIFT];
}

static bool find_old(uintptr_t addr, struct old_area *old)
{
    struct pslot d;

    if (addr < vmap_start || addr >= vmap_end)
        return false;
    old->block = NULL;
    if (vmap_config.blocks_all) {
        tlb_gen_read_begin();
        old->block = pblock_of(table_lookup(addr));
        if (old->block)
            d = pslot_read(slot_of(old->block, addr));
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
        WRITE_ONCE(slot_of(old->block, old->start)->pages, (uint8_t)old->new_pages);
    } else {
        if (!IS_ALIGNED(cut, PMD_SIZE) && ptmap_split_leaf(cut) != OK)
            return; /* no page table: the area keeps its pages */
        node_busy_with(old->start, set_pages, old);
    }
    ptmap_unmap_noflush(cut, end, vmap_frames_of_freed());
    purge_note_pending(cut, end);
    /* The area lives on, so no purge will come for the frames that frames=safe has kept. A block's
     * recycling will. */
    if (vmap_config.frames_safe && !old->block) {
        purge_flush_now(cut, end);
        ptmap_free_kept(cut, end);
    }
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
        return vmap_alloc(size, PAGE_SIZE, 0, VM_ANY_NODE, CALLER);
    if (!vmap_usable())
        return NULL;
    if (!find_old((uintptr_t)p, &old)) {
        vmap_bad_free("vrealloc of what vmalloc did not return", p, CALLER);
        vmalloc_dump_obj(p);
        return NULL;
    }
    if (size == 0) {
        vfree(p);
        return NULL;
    }
    pages = vmap_size_to_pages(size);
    if (!pages) {
        vmap_alloc_failed(size, "impossible size", CALLER);
        return NULL;
    }
    old.new_pages = (uint32_t)pages;
    if (pages < old.pages)
        shrink_in_place(&old);
    if (pages <= old.pages)
        return (void *)p;
    q = vmap_alloc(size, PAGE_SIZE, old.flags & ~(unsigned)VM_PERMANENT, VM_ANY_NODE, CALLER);
    if (!q)
        return NULL;
    copy_pages((uintptr_t)q, (uintptr_t)p, old.pages);
    vfree(p);
    return q;
}
