/*
 * vmap_walk.c: free addresses as before Linux 2.6.39 (search=walk): the gaps between the areas in
 * use.
 *
 * There is one tree, sorted by address, under one lock: the busy tree of the only node. An
 * allocation goes to the lowest area and walks from neighbour to neighbour until a gap is large
 * enough: O(n). A freed area stays in the tree until the purge, so it is walked past as often as a
 * live one. The purge finds what was freed by going through all areas in order of address, by a
 * list of its own and without the lock: areas are added while it does so, and taken away only by
 * the purge itself. Source: Linux 2.6.28 to 2.6.38, alloc_vmap_area() and __purge_vmap_area_lazy();
 * no cache of the last hole (free_vmap_cache is of 2.6.39). Left out: the second guard page that
 * those put between areas.
 */
#include "lib/assert.h"
#include "lib/printf.h"
#include "mm/vmap_busy.h"
#include "mm/vmap_internal.h"
#include <arch/clock.h>

static struct {
    uint64_t free_bytes; /* with the lock */
    uint64_t longest_hold;
} walk;

void walk_init(uint64_t size)
{
    walk.free_bytes = size;
    walk.longest_hold = 0;
}

uint64_t walk_free(void)
{
    return READ_ONCE(walk.free_bytes);
}

uint64_t walk_longest_hold(void)
{
    return READ_ONCE(walk.longest_hold);
}

static struct vm_area *next_of(struct vm_area *a)
{
    return busy_area(rb_next(&a->rb));
}

/* The pointer to a in the list of all; the tree tells who is before it. */
static struct vm_area **sorted_link(struct busy_tree *t, struct vm_area *a)
{
    struct vm_area *prev = busy_area(rb_prev(&a->rb));

    return prev ? &prev->next_sorted : &t->first;
}

/* With the lock: [start, end) is a's from here on. Lookups do not see it yet. */
static void insert(struct busy_tree *t, struct vm_area *a, uintptr_t start, uintptr_t end)
{
    struct vm_area **link;

    a->start = start;
    a->end = end;
    WRITE_ONCE(a->state, AREA_RESERVED);
    busy_link(t, a);
    link = sorted_link(t, a);
    a->next_sorted = *link;
    STORE_RELEASE(*link, a); /* partner: walk_take_freed() */
    SUB_ONCE(walk.free_bytes, end - start);
}

/* With the lock: the lowest area that ends above addr. */
static struct vm_area *lowest_above(struct busy_tree *t, uintptr_t addr, uint64_t *visits)
{
    struct rb_node *n = t->root.node;
    struct vm_area *best = NULL;

    while (n) {
        struct vm_area *a = busy_area(n);

        ++*visits;
        if (a->end > addr) {
            best = a;
            n = n->left;
        } else {
            n = n->right;
        }
    }
    return best;
}

/* With the lock: the lowest place; 0: none. */
static uintptr_t find(struct busy_tree *t, uint64_t size, uint64_t align)
{
    uintptr_t at = ALIGN_UP(vmap_start, align);
    uint64_t visits = 0;
    struct vm_area *a;

    if (at < vmap_start)
        return 0;
    for (a = lowest_above(t, at, &visits); a; a = next_of(a)) {
        if (a->start >= at && a->start - at >= size)
            break;
        visits++;
        at = ALIGN_UP(a->end, align);
        if (at < a->end)
            return 0; /* wrapped (case B1) */
    }
    this_cpu_add(vmap_stat.tree_visits, visits);
    return at < vmap_end && vmap_end - at >= size ? at : 0;
}

err_t walk_take(struct vm_area *a, uint64_t size, uint64_t align)
{
    struct busy_tree *t = node_busy_tree();
    unsigned long flags = busy_lock(t);
    uintptr_t at = find(t, size, align);

    if (at)
        insert(t, a, at, at + size);
    busy_unlock(t, flags);
    return at ? OK : ERR_NOSPACE;
}

err_t walk_take_at(struct vm_area *a, uintptr_t start, uintptr_t end)
{
    struct busy_tree *t = node_busy_tree();
    unsigned long flags = busy_lock(t);
    struct vm_area *below = busy_floor(t, end - 1);
    bool is_free = !below || below->end <= start;

    if (is_free)
        insert(t, a, start, end);
    busy_unlock(t, flags);
    return is_free ? OK : ERR_NOSPACE;
}

void walk_give_list(struct list_head *list)
{
    struct busy_tree *t = node_busy_tree();
    unsigned long flags = busy_lock(t);
    uint64_t begin = rdtsc();
    struct vm_area *a, *tmp;

    list_for_each_entry (a, list, list) {
        WRITE_ONCE(*sorted_link(t, a), a->next_sorted);
        rb_erase(&t->root, &a->rb, NULL);
        ADD_ONCE(walk.free_bytes, a->end - a->start);
        if (a->state == AREA_RESERVED) /* never freed: taken out by the purge itself */
            SUB_ONCE(t->count, 1);
        a->state = AREA_ALONE;
    }
    WRITE_ONCE(walk.longest_hold, MAX(walk.longest_hold, rdtsc() - begin));
    busy_unlock(t, flags);
    list_for_each_entry_safe (a, tmp, list, list)
        area_delete(a);
    list_init(list);
}

uint64_t walk_take_freed(struct list_head *list)
{
    struct busy_tree *t = node_busy_tree();
    uint64_t pages = 0;

    for (struct vm_area *a = LOAD_ACQUIRE(t->first); a; a = LOAD_ACQUIRE(a->next_sorted)) {
        if (LOAD_ACQUIRE(a->state) != AREA_FREED)
            continue;
        WRITE_ONCE(a->state, AREA_PURGED);
        list_add_tail(&a->list, list);
        pages += (a->end - a->start) >> PAGE_SHIFT;
    }
    return pages;
}

/* With the lock: the gap with the highest start at or below addr. */
static bool gap_floor(uintptr_t addr, uintptr_t *start, uintptr_t *end)
{
    struct busy_tree *t = node_busy_tree();
    struct vm_area *above = NULL, *a = busy_floor(t, addr);

    if (a)
        above = next_of(a);
    else
        above = busy_area(rb_first(&t->root));
    for (;; above = a, a = busy_area(rb_prev(&a->rb))) {
        *start = a ? a->end : vmap_start;
        *end = above ? above->start : vmap_end;
        if (*start < *end && *start <= addr)
            return true;
        if (!a)
            return false;
    }
}

bool walk_next_free(uintptr_t from, uintptr_t *start, uintptr_t *end)
{
    struct busy_tree *t = node_busy_tree();
    unsigned long flags = busy_read_lock(t);
    uint64_t visits = 0;
    struct vm_area *a;
    bool found;

    *start = from;
    for (a = lowest_above(t, from, &visits); a && a->start <= *start; a = next_of(a))
        *start = a->end;
    *end = a ? a->start : vmap_end;
    found = *start < *end;
    busy_read_unlock(t, flags);
    return found;
}

err_t walk_take_congruent(struct vm_area **areas, const size_t *offsets, const size_t *sizes, int n,
                          uint64_t align)
{
    struct busy_tree *t = node_busy_tree();
    unsigned long flags = busy_lock(t);
    uintptr_t base;
    bool found = area_congruent_base(gap_floor, offsets, sizes, n, align, &base);

    for (int i = 0; found && i < n; i++)
        insert(t, areas[i], base + offsets[i], base + offsets[i] + sizes[i]);
    busy_unlock(t, flags);
    return found ? OK : ERR_NOSPACE;
}

bool walk_check(uint64_t *free_bytes)
{
    struct busy_tree *t = node_busy_tree();
    unsigned long flags = busy_read_lock(t);
    uintptr_t prev_end = vmap_start;
    struct vm_area *listed = t->first;
    const char *wrong = NULL;

    *free_bytes = 0;
    for (struct rb_node *n = rb_first(&t->root); n && !wrong; n = rb_next(n)) {
        struct vm_area *a = busy_area(n);

        if (a->start < prev_end || a->end > vmap_end)
            wrong = "areas that overlap, or outside the limits";
        else if (a != listed)
            wrong = "the sorted list and the tree differ";
        *free_bytes += a->start - prev_end;
        prev_end = a->end;
        listed = a->next_sorted;
    }
    *free_bytes += vmap_end - prev_end;
    if (!wrong && listed)
        wrong = "the sorted list is longer than the tree";
    if (!wrong && *free_bytes != walk.free_bytes)
        wrong = "a wrong sum";
    busy_read_unlock(t, flags);
    if (wrong)
        kprintf("# selfcheck: free gaps: %s\n", wrong);
    return !wrong;
}
