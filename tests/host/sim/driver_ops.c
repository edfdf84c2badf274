/*
 * driver_ops.c: operations that make, change and end areas.
 */
#include <string.h>

#include "mm/cache.h"
#include "mm/page_alloc.h"
#include "mm/vmap_internal.h"
#include "tests/host/sim/driver_internal.h"
#include "tests/host/sim/internal.h"
#include "tests/host/sim/driver_look.h"
#include <arch/cpu.h>

#define MMIO_BASE 0x100000000ULL /* above all RAM */

/* An area on its way from one CPU to another. */
struct mail {
    uint32_t state; /* atomic: 0 empty, 1 being written or read, 2 full */
    struct area area;
};
static struct mail mail[SIM_MAX_CPUS];
static uint64_t cookies; /* atomic */

void op_reset(void)
{
    memset(mail, 0, sizeof(mail));
    cookies = 0;
}

static uint64_t new_cookie(void)
{
    return (__atomic_fetch_add(&cookies, 1, __ATOMIC_RELAXED) + 1) << 24;
}

/* Mostly small, sometimes up to the plan's limit, rarely more, or too much for a block; bytes that
 * need not fill the last page. */
static size_t some_size(struct actor *a)
{
    unsigned kind = (unsigned)choose(a, 16);
    uint64_t pages = 1 + choose(a, kind < 8    ? 4
                                   : kind < 15 ? plan->pages_max
                                               : 4 * plan->pages_max);

    if (kind == 15 && chance(a, 2))
        pages += PBLOCK_MAX_ALLOC;
    return pages * PAGE_SIZE - (chance(a, 3) ? choose(a, PAGE_SIZE) : 0);
}

static struct area *free_slot(struct actor *a)
{
    for (unsigned i = 0; i < a->slot_count; i++)
        if (a->slots[i].type == AREA_NONE)
            return &a->slots[i];
    return NULL;
}

static struct area *some_area(struct actor *a)
{
    unsigned i = (unsigned)choose(a, a->slot_count);

    return a->slots[i].type == AREA_NONE ? NULL : &a->slots[i];
}

/* Enters what a call returned, or counts its failure. */
static void begin(struct actor *a, struct area *slot, const struct area *made, const char *call)
{
    a->operations++;
    if (!made->va) {
        call_failed(a, call);
        return;
    }
    *slot = *made;
    slot->cookie = new_cookie();
    area_begin(a, slot);
}

static void size_area(struct area *area, size_t size)
{
    area->size = size;
    area->pages = (unsigned)DIV_ROUND_UP(size, PAGE_SIZE);
    area->reserved = (area->pages + area->guard) * PAGE_SIZE;
}

static const unsigned alloc_flags[] = {
    0,
    0,
    0,
    VM_ZERO,
    VM_NO_GUARD,
    VM_READONLY,
    VM_EXEC,
    VM_ZERO | VM_NO_GUARD | VM_READONLY,
    VM_HUGE | VM_ZERO,
};

static void op_vmalloc(struct actor *a, struct area *slot)
{
    struct area made = {.type = AREA_ALLOC, .writable = true, .guard = true};
    size_t size = some_size(a), align;
    const char *call;

    switch (choose(a, 7)) {
    case 0:
        call = "vmalloc";
        made.va = (uintptr_t)vmalloc(size);
        break;
    case 1:
        call = "vzalloc";
        made.flags = VM_ZERO;
        made.va = (uintptr_t)vzalloc(size);
        break;
    case 2:
        call = "vmalloc_node";
        made.va = (uintptr_t)vmalloc_node(size, (int)choose(a, 4) - 1);
        break;
    case 3:
        call = "kvmalloc";
        size += KMALLOC_MAX;
        made.va = (uintptr_t)kvmalloc(size);
        break;
    case 4:
        call = "vrealloc";
        made.va = (uintptr_t)vrealloc(NULL, size);
        break;
    default:
        call = "__vmalloc";
        made.flags = alloc_flags[choose(a, ARRAY_SIZE(alloc_flags))];
        align = 1UL << choose(a, a->handler ? 14 : 22);
        made.writable = !(made.flags & (VM_READONLY | VM_EXEC));
        made.guard = !(made.flags & VM_NO_GUARD);
        made.va = (uintptr_t)__vmalloc(size, align, made.flags, (int)choose(a, 3) - 1);
        SIM_CHECK(!made.va || IS_ALIGNED(made.va, MAX(align, PAGE_SIZE)),
                  "%#lx is not aligned to %#lx", (unsigned long)made.va, (unsigned long)align);
        break;
    }
    size_area(&made, size);
    begin(a, slot, &made, call);
}

static void op_huge(struct actor *a, struct area *slot)
{
    struct area made = {.type = AREA_ALLOC, .writable = true, .guard = true};
    size_t size = (1 + choose(a, 4)) * SZ_1M;

    size_area(&made, size);
    made.va = (uintptr_t)vmalloc_huge(size);
    a->operations++;
    /* Memory for it is not always there, nor promised by an ample plan. */
    if (!made.va) {
        a->failed_calls++;
        return;
    }
    a->operations--;
    begin(a, slot, &made, "vmalloc_huge");
}

static void op_vmap(struct actor *a, struct area *slot)
{
    unsigned count = 1 + (unsigned)choose(a, chance(a, 4) ? POOL_FRAMES : 6);
    unsigned from = (unsigned)choose(a, POOL_FRAMES - count + 1);
    unsigned flags = chance(a, 3) ? VM_NO_GUARD : 0;
    bool ro = chance(a, 4);
    struct area made = {.type = AREA_MAP,
                        .writable = !ro,
                        .guard = !flags,
                        .flags = flags,
                        .frames = a->pool + from};

    made.va = (uintptr_t)vmap(made.frames, count, flags, ro ? PAGE_KERNEL_RO : PAGE_KERNEL);
    size_area(&made, count * PAGE_SIZE);
    begin(a, slot, &made, "vmap");
}

/* Frames that go with the area. */
static void op_vmap_put(struct actor *a, struct area *slot)
{
    struct area made = {
        .type = AREA_PUT, .writable = true, .guard = true, .flags = VM_MAP_PUT_PAGES};
    unsigned count = 1 + (unsigned)choose(a, 8), got;
    struct page *pages[8];

    got = page_alloc_bulk(pages, count, PAGE_ANY_NODE);
    if (got == count)
        made.va = (uintptr_t)vmap(pages, count, VM_MAP_PUT_PAGES, PAGE_KERNEL);
    if (!made.va)
        page_free_bulk(pages, got);
    size_area(&made, count * PAGE_SIZE);
    begin(a, slot, &made, "vmap");
    for (unsigned i = 0; made.va && i < count; i++)
        SIM_CHECK(vmalloc_to_page((void *)(made.va + i * PAGE_SIZE)) == pages[i],
                  "vmap mapped another page");
}

static void op_map_ram(struct actor *a, struct area *slot)
{
    unsigned most = plan->bias == 1 ? 64 : chance(a, 8) ? POOL_FRAMES : chance(a, 3) ? 64 : 5;
    unsigned count = 1 + (unsigned)choose(a, most);
    unsigned from = (unsigned)choose(a, POOL_FRAMES - count + 1);
    struct area made = {.type = AREA_RAM, .writable = true, .frames = a->pool + from};

    made.va = (uintptr_t)vm_map_ram(made.frames, count, (int)choose(a, 3) - 1);
    size_area(&made, count * PAGE_SIZE);
    begin(a, slot, &made, "vm_map_ram");
}

static void op_ioremap(struct actor *a, struct area *slot)
{
    struct area made = {.type = AREA_IO, .guard = true};
    size_t size = 1 + choose(a, chance(a, 4) ? 3 * SZ_1M : 5 * PAGE_SIZE);
    unsigned offset = (unsigned)choose(a, PAGE_SIZE);

    made.pa = MMIO_BASE + choose(a, 4096) * (chance(a, 3) ? PMD_SIZE : PAGE_SIZE) + offset;
    made.va = (uintptr_t)ioremap(made.pa, size, (enum cache_mode)choose(a, 4));
    SIM_CHECK(!made.va || (made.va & (PAGE_SIZE - 1)) == offset, "ioremap lost the offset");
    size_area(&made, size + offset);
    begin(a, slot, &made, "ioremap");
}

static void op_small(struct actor *a, struct area *slot)
{
    struct area made = {.type = AREA_SMALL,
                        .size = 8 + choose(a, chance(a, 4) ? KMALLOC_MAX - 7 : 500)};

    made.va = (uintptr_t)kvmalloc(made.size);
    begin(a, slot, &made, "kvmalloc");
}

/* One area of each call is kept, the others only lie between. */
static void op_pcpu(struct actor *a, struct area *slot)
{
    size_t align = chance(a, 4) ? PMD_SIZE : PAGE_SIZE << choose(a, 4);
    size_t offsets[3] = {0}, sizes[3];
    int n = 1 + (int)choose(a, 3);
    struct vm_area **areas;
    struct area made = {.type = AREA_PCPU, .writable = true};

    for (int i = 0; i < n; i++) {
        /* Sometimes so large that addresses run out. */
        sizes[i] =
            (1 + choose(a, chance(a, 3) ? MIN(vmap_config.range_size, SZ_1G) / align / 3 : 3)) *
            align;
        if (i)
            offsets[i] = offsets[i - 1] + sizes[i - 1] + choose(a, 5) * align;
    }
    areas = pcpu_get_vm_areas(offsets, sizes, n, align);
    if (areas) {
        made.va = (uintptr_t)vm_area_start(areas[0]);
        for (int i = 0; i < n; i++)
            SIM_CHECK((uintptr_t)vm_area_start(areas[i]) == made.va + offsets[i] &&
                          IS_ALIGNED(made.va, align),
                      "congruent areas are not");
        if (n > 1) {
            pcpu_free_vm_areas(areas, n);
            a->operations += 2;
            return;
        }
        made.pcpu = areas;
    }
    size_area(&made, sizes[0]);
    begin(a, slot, &made, "pcpu_get_vm_areas");
}

/* Maps the first pages, or unmaps them. What was unmapped must be flushed by the caller before it
 * is mapped. */
static void op_pcpu_pages(struct actor *a, struct area *area)
{
    unsigned count = 1 + (unsigned)choose(a, MIN(area->pages, (unsigned)POOL_FRAMES));

    a->operations++;
    if (area->mapped) {
        vm_area_unmap_pages(area->pcpu[0], 0, area->mapped);
        area->mapped = 0;
        area->dirty = true;
        return;
    }
    if (area->dirty)
        vm_unmap_aliases();
    area->dirty = false;
    area->frames = a->pool;
    if (vm_area_map_pages(area->pcpu[0], 0, a->pool, count) == OK) {
        area->mapped = count;
    } else {
        area->dirty = true;
        call_failed(a, "vm_area_map_pages");
    }
}

void op_free(struct actor *a, struct area *area)
{
    struct area gone = *area;

    if (area->type == AREA_NONE)
        return;
    if (chance(a, 2) || area->type == AREA_SMALL)
        area_verify(a, area, chance(a, 2));
    model_remove(area);
    area->type = AREA_NONE;
    a->operations++;
    switch (gone.type) {
    case AREA_ALLOC:
        switch (a->handler ? 0 : choose(a, 8)) {
        case 0:
            kvfree_deferred((void *)gone.va);
            break;
        case 1:
            kvfree((void *)gone.va);
            break;
        case 2:
            SIM_CHECK(!vrealloc((void *)gone.va, 0), "vrealloc to nothing returned something");
            break;
        default:
            vfree((void *)gone.va);
        }
        break;
    case AREA_PUT:
        vfree((void *)gone.va);
        break;
    case AREA_MAP:
        vunmap((void *)gone.va);
        break;
    case AREA_RAM:
        vm_unmap_ram((void *)gone.va, gone.pages);
        break;
    case AREA_IO:
        iounmap((void *)gone.va);
        break;
    case AREA_PCPU:
        pcpu_free_vm_areas(gone.pcpu, 1);
        break;
    default:
        if (chance(a, 2))
            kvfree((void *)gone.va);
        else
            kvfree_deferred((void *)gone.va);
    }
}

static void op_realloc(struct actor *a, struct area *area)
{
    struct area was = *area;
    size_t size = some_size(a);
    unsigned pages = (unsigned)DIV_ROUND_UP(size, PAGE_SIZE);
    uintptr_t va;

    if (area->type != AREA_ALLOC)
        return;
    area_verify(a, area, false);
    a->operations++;
    a->changing = true;
    model_remove(area); /* its addresses may be another's before the call returns */
    va = (uintptr_t)vrealloc((void *)was.va, size);
    if (!va || va == was.va)
        model_insert(area);
    if (!va) {
        a->changing = false;
        call_failed(a, "vrealloc");
        area_verify(a, area, true);
        return;
    }
    if (pages <= was.pages) {
        struct vm_area_info info;

        SIM_CHECK(va == was.va, "vrealloc moved what it shrinks");
        SIM_CHECK(find_vm_area((void *)va, &info), "a shrunk area is not found");
        /* Without memory for a table a 2 MiB leaf cannot be cut, and the area keeps its pages. */
        SIM_CHECK(info.size == pages * PAGE_SIZE ||
                      (!plan->ample && info.size == was.pages * PAGE_SIZE),
                  "%lu bytes after shrinking to %u pages", (unsigned long)info.size, pages);
        area->pages = (unsigned)(info.size / PAGE_SIZE);
        area->guard |= area->pages < was.pages;
        a->changing = false;
        area_verify(a, area, true);
        return;
    }
    SIM_CHECK(va != was.va, "vrealloc grew in place");
    area->va = va;
    area->guard = !(area->flags & VM_NO_GUARD);
    size_area(area, size);
    model_insert(area);
    sim_check_handed_out(va, area->reserved);
    for (unsigned i = 0; i < was.pages; i++) {
        struct page *page = vmalloc_to_page((void *)(va + i * PAGE_SIZE));

        SIM_CHECK(page && frame_holds(page, area_word(area, i)), "vrealloc lost page %u", i);
    }
    a->changing = false;
    area_fill(area, was.pages, pages);
    area_verify(a, area, true);
}

/* ---- hand-over ---- */

static void op_send(struct actor *a, struct area *area)
{
    struct mail *m = &mail[choose(a, plan->machine.cpus)];
    uint32_t empty = 0;

    if (!__atomic_compare_exchange_n(&m->state, &empty, 1, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
        return;
    model_remove(area);
    m->area = *area;
    area->type = AREA_NONE;
    model_insert(&m->area);
    __atomic_store_n(&m->state, 2, __ATOMIC_RELEASE);
}

void op_take_mail(struct actor *a)
{
    struct mail *m = &mail[a->cpu];
    uint32_t full = 2;

    if (!__atomic_compare_exchange_n(&m->state, &full, 1, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
        return;
    op_free(a, &m->area);
    __atomic_store_n(&m->state, 0, __ATOMIC_RELEASE);
}

/* ---- what next ---- */

static void (*const makers[])(struct actor *a, struct area *slot) = {
    op_vmalloc, op_vmalloc, op_vmalloc,  op_vmalloc, op_map_ram, op_map_ram, op_map_ram,
    op_vmap,    op_vmap,    op_vmap_put, op_ioremap, op_small,   op_pcpu,    op_huge,
};
/* A plan's bias picks one of these instead, every second time. */
static void (*const preferred[DRIVER_BIASES])(struct actor *a, struct area *slot) = {
    NULL, op_map_ram, op_vmalloc, op_pcpu, op_huge,
};
/* Legal in handlers. */
static void (*const quick_makers[])(struct actor *a, struct area *slot) = {
    op_vmalloc,
    op_vmap,
    op_map_ram,
};

static void use_area(struct actor *a, struct area *area)
{
    switch (choose(a, 8)) {
    case 0:
    case 1:
    case 2:
        op_free(a, area);
        break;
    case 3:
        op_realloc(a, area);
        break;
    case 4:
        if (area->type == AREA_PCPU)
            op_pcpu_pages(a, area);
        else
            op_send(a, area);
        break;
    case 5:
        op_vread(a, area);
        break;
    case 6:
        op_bad_call(a, area);
        break;
    default:
        a->operations++;
        area_verify(a, area, true);
    }
}

void op_any(struct actor *a)
{
    struct area *area = some_area(a), *slot = free_slot(a);
    unsigned long flags = 0;
    bool masked = chance(a, 8);

    if (masked)
        flags = irq_save();
    switch (choose(a, 16)) {
    case 0:
        op_take_mail(a);
        break;
    case 1:
        op_global(a);
        break;
    case 2:
        op_impossible(a);
        break;
    default:
        if (area && (!slot || chance(a, 2)))
            use_area(a, area);
        else if (slot && preferred[plan->bias] && chance(a, 2))
            preferred[plan->bias](a, slot);
        else if (slot)
            makers[choose(a, ARRAY_SIZE(makers))](a, slot);
    }
    if (masked)
        irq_restore(flags);
}

void op_in_handler(struct actor *a)
{
    struct area *area = some_area(a), *slot = free_slot(a);

    if (area && chance(a, 2))
        op_free(a, area);
    else if (slot)
        quick_makers[choose(a, ARRAY_SIZE(quick_makers))](a, slot);
    else if (chance(a, 8))
        vm_unmap_aliases();
}

/*
 * Lookups are legal here with the wait-free table, and must be right for what is live all the time;
 * with trees they say no. What shares a 2 MiB unit with others (congruent areas, and any when
 * addresses are short) is in trees in any design.
 */
void op_in_nmi(struct actor *a)
{
    struct area *area = &a->slots[rng_below(&a->nmi_rng, a->slot_count)];
    struct vm_area_info info;
    bool found;

    if (area->type == AREA_NONE || area->type == AREA_SMALL || a->changing)
        return;
    found = find_vm_area((void *)area->va, &info);
    SIM_CHECK(!found || vmap_config.index_table, "a lookup in an NMI took locks");
    SIM_CHECK(found || !vmap_config.index_table || area->type == AREA_PCPU ||
                  (area->type == AREA_RAM && !vmap_config.blocks_all) ||
                  vmap_config.range_size < SZ_512G,
              "an NMI finds no area at %#lx", (unsigned long)area->va);
    SIM_CHECK(!found || (uintptr_t)info.start == (area->va & PAGE_MASK), "an NMI finds %p at %#lx",
              info.start, (unsigned long)area->va);
    SIM_CHECK(!vmalloc(1), "an allocation in an NMI");
}
