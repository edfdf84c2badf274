/*
 * kvmalloc.c: small objects from the caches, large ones from vmalloc; and frees that come later.
 *
 * A deferred object is linked through its first eight bytes, so deferring needs no memory and can
 * not fail. Those of vmalloc are reached through the direct map: the link works wherever the code
 * runs.
 */
#include "lib/printf.h"
#include "mm/cache.h"
#include "mm/ptmap.h"
#include "mm/vmap_internal.h"

DEFINE_PER_CPU(uint64_t, kvfree_deferred_count);
static DEFINE_PER_CPU(void *, deferred_first);

void *kvmalloc(size_t size)
{
    return size <= KMALLOC_MAX ? kmalloc(size) : __vmalloc(size, PAGE_SIZE, 0, VM_ANY_NODE);
}

void kvfree(const void *p)
{
    if (is_vmalloc_addr(p))
        vfree(p);
    else
        kfree(p);
}

static void **link_of(const void *p)
{
    phys_addr_t pa;

    if (!is_vmalloc_addr(p))
        return (void **)p;
    pa = ptmap_translate((uintptr_t)p, NULL, NULL);
    return pa ? phys_to_virt(pa) : NULL;
}

void kvfree_drain(void)
{
    unsigned long flags = irq_save();
    void **first = this_cpu_ptr(&deferred_first), *p = *first;

    *first = NULL;
    *this_cpu_ptr(&kvfree_deferred_count) = 0;
    irq_restore(flags);
    while (p) {
        void *next = *link_of(p);

        kvfree(p);
        p = next;
    }
}

void kvfree_deferred(const void *p)
{
    void **link, **first;
    unsigned long flags;
    uint64_t waiting;

    if (!p)
        return;
    link = link_of(p);
    if (!link) {
        kvfree(p); /* reports it */
        return;
    }
    flags = irq_save();
    first = this_cpu_ptr(&deferred_first);
    *link = *first;
    *first = (void *)p;
    waiting = ++*this_cpu_ptr(&kvfree_deferred_count);
    irq_restore(flags);
    if (waiting >= KVFREE_DEFERRED_MAX && !in_irq())
        kvfree_drain();
}
