/*
 * vmap_area.c: free addresses: an augmented red-black tree of free ranges.
 *
 * Ordered by address; each node knows the largest range in its subtree, so that the lowest range
 * that fits is found in O(log n). Ranges never touch: neighbours are merged. One lock, taken with
 * interrupts masked. Objects for splits are made before the lock is taken. Source: Cormen et al.,
 * chapter 14; Linux mm/vmalloc.c since v5.2.
 */
#include "lib/assert.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/cache.h"
#include "mm/vmap_internal.h"
#include <arch/clock.h>

/* The list is given back in pieces, so that others get the lock in between. */
#define GIVE_CHUNK 64

static struct lock_class free_class = {.name = "vmap_area.free"};
static struct {
    struct spinlock lock;
    struct rb_root root;
    uint64_t free_bytes;
    uint64_t longest_hold; /* cycles, of area_space_give_list */
} space = {.lock = SPINLOCK_INIT(&free_class)};

/* Lives as long as the kernel: permanent areas outlive one allocator. */
static struct cache *area_cache;

static inline struct vm_area *area_of(struct rb_node *n)
{
    return rb_entry(n, struct vm_area, rb);
}

static inline uint64_t area_size(const struct vm_area *a)
{
    return a->end - a->start;
}

static inline uint64_t subtree_max(const struct rb_node *n)
{
    return n ? rb_entry(n, struct vm_area, rb)->subtree_max : 0;
}

static bool augment(struct rb_node *n)
{
    struct vm_area *a = area_of(n);
    uint64_t max = area_size(a);

    max = MAX(max, subtree_max(n->left));
    max = MAX(max, subtree_max(n->right));
    if (a->subtree_max == max)
        return false;
    a->subtree_max = max;
    return true;
}

struct vm_area *area_new(void)
{
    struct vm_area *a = cache_alloc(area_cache);

    if (a)
        *a = (struct vm_area){0};
    return a;
}

void area_delete(struct vm_area *a)
{
    if (a)
        cache_free(area_cache, a);
}

/* Puts a into the tree; no neighbour touches it. */
static void tree_insert(struct vm_area *a)
{
    struct rb_node **link = &space.root.node, *parent = NULL;

    while (*link) {
        parent = *link;
        link = a->start < area_of(parent)->start ? &parent->left : &parent->right;
    }
    rb_link(&a->rb, parent, link);
    a->subtree_max = area_size(a);
    rb_propagate(parent, augment);
    rb_insert_fixup(&space.root, &a->rb, augment);
}

static void tree_erase(struct vm_area *a)
{
    rb_erase(&space.root, &a->rb, augment);
}

/* The free range with the highest start at or below addr. */
static struct vm_area *tree_floor(uintptr_t addr)
{
    struct rb_node *n = space.root.node;
    struct vm_area *best = NULL;

    while (n) {
        struct vm_area *a = area_of(n);

        if (a->start <= addr) {
            best = a;
            n = n->right;
        } else {
            n = n->left;
        }
    }
    return best;
}

/* True if [ALIGN_UP(a->start), + size) lies in a; nothing here can wrap (case B1). */
static bool fits(const struct vm_area *a, uint64_t size, uint64_t align, uintptr_t *at)
{
    uint64_t pad = -a->start & (align - 1);

    if (pad > area_size(a) || area_size(a) - pad < size)
        return false;
    *at = a->start + pad;
    return true;
}

/* The lowest range of at least `length` bytes: one descent. */
static struct vm_area *tree_descend(uint64_t length)
{
    struct rb_node *n = space.root.node;
    uint64_t visits = 0;

    if (subtree_max(n) < length)
        return NULL;
    for (;;) {
        visits++;
        if (subtree_max(n->left) >= length)
            n = n->left;
        else if (area_size(area_of(n)) >= length)
            break;
        else
            n = n->right;
    }
    this_cpu_add(vmap_stat.tree_visits, visits);
    return area_of(n);
}

/*
 * The lowest range that is long enough; if its start does not suit the alignment, the lowest that
 * is long enough whatever its start; only when there is none, any whose start happens to suit.
 */
static struct vm_area *tree_find(uint64_t size, uint64_t align, uintptr_t *at)
{
    uint64_t length = size + (align - PAGE_SIZE), visits = 0;
    struct vm_area *f = tree_descend(size);

    if (f && fits(f, size, align, at))
        return f;
    f = length < size ? NULL : tree_descend(length);
    if (f) {
        *at = ALIGN_UP(f->start, align);
        return f;
    }
    if (align <= PAGE_SIZE || subtree_max(space.root.node) < size)
        return NULL;
    for (struct rb_node *n = rb_first(&space.root); n; n = rb_next(n)) {
        visits++;
        if (fits(area_of(n), size, align, at)) {
            f = area_of(n);
            break;
        }
    }
    this_cpu_add(vmap_stat.tree_visits, visits);
    return f;
}

/* Cuts [at, at + size) out of f. *spare becomes the second remainder of a middle cut, and is NULL
 * afterwards if it was used. Returns f if nothing of it is left, for deletion without the lock. */
static struct vm_area *tree_cut(struct vm_area *f, uintptr_t at, uint64_t size,
                                struct vm_area **spare)
{
    uintptr_t end = at + size;
    struct vm_area *surplus = NULL;

    if (f->start == at && f->end == end) {
        tree_erase(f);
        surplus = f;
    } else if (f->start == at) {
        f->start = end;
        augment(&f->rb);
        rb_propagate(rb_parent(&f->rb), augment);
    } else if (f->end == end) {
        f->end = at;
        augment(&f->rb);
        rb_propagate(rb_parent(&f->rb), augment);
    } else {
        struct vm_area *rest = *spare;

        *spare = NULL;
        rest->start = end;
        rest->end = f->end;
        f->end = at;
        augment(&f->rb);
        rb_propagate(rb_parent(&f->rb), augment);
        tree_insert(rest);
    }
    SUB_ONCE(space.free_bytes, size);
    return surplus;
}

/* One object per CPU for the split that a cut may need, so that the common path makes none
 * (case B7). */
static DEFINE_PER_CPU(struct vm_area *, area_spare);

/* Returns this CPU's spare, made if absent; interrupts are masked. */
static struct vm_area *spare_take(void)
{
    struct vm_area **slot = this_cpu_ptr(&area_spare), *s = *slot;

    *slot = NULL;
    return s ? s : area_new();
}

static void spare_put(struct vm_area *s)
{
    struct vm_area **slot = this_cpu_ptr(&area_spare);

    if (!s)
        return;
    if (*slot)
        area_delete(s);
    else
        *slot = s;
}

/* Takes `size` bytes of one range; at_start 0: anywhere, else exactly there. */
static err_t take(struct vm_area *a, uint64_t size, uint64_t align, uintptr_t at_start)
{
    unsigned long flags = irq_save();
    struct vm_area *spare = spare_take(), *f, *surplus = NULL;
    uintptr_t at = at_start;

    if (!spare) {
        irq_restore(flags);
        return ERR_NOMEM;
    }
    spin_lock(&space.lock);
    if (at_start) {
        f = tree_floor(at_start);
        if (f && !(f->end > at && f->end - at >= size))
            f = NULL;
    } else {
        f = tree_find(size, align, &at);
    }
    if (f) {
        surplus = tree_cut(f, at, size, &spare);
        a->start = at;
        a->end = at + size;
    }
    spin_unlock(&space.lock);
    spare_put(spare);
    spare_put(surplus);
    irq_restore(flags);
    return f ? OK : ERR_NOSPACE;
}

err_t area_space_take(struct vm_area *a, uint64_t size, uint64_t align)
{
    if (unlikely(vmap_config.search_walk))
        return walk_take(a, size, align);
    return take(a, size, align, 0);
}

err_t area_space_take_at(struct vm_area *a, uintptr_t start, uintptr_t end)
{
    if (vmap_config.search_walk)
        return walk_take_at(a, start, end);
    return take(a, end - start, PAGE_SIZE, start);
}

/* Merges a into the tree; an object that is no longer needed goes onto `surplus`. */
static void give_locked(struct vm_area *a, struct list_head *surplus)
{
    struct vm_area *prev = tree_floor(a->start), *next;
    struct rb_node *n;

    n = prev ? rb_next(&prev->rb) : rb_first(&space.root);
    next = n ? area_of(n) : NULL;
    ASSERT(!prev || prev->end <= a->start);
    ASSERT(!next || a->end <= next->start);
    ADD_ONCE(space.free_bytes, area_size(a));
    if (prev && prev->end == a->start) {
        prev->end = a->end;
        list_add(&a->list, surplus);
        if (next && next->start == prev->end) {
            tree_erase(next);
            prev->end = next->end;
            list_add(&next->list, surplus);
        }
        augment(&prev->rb);
        rb_propagate(rb_parent(&prev->rb), augment);
    } else if (next && next->start == a->end) {
        next->start = a->start;
        list_add(&a->list, surplus);
        augment(&next->rb);
        rb_propagate(rb_parent(&next->rb), augment);
    } else {
        tree_insert(a);
    }
}

void area_space_give_list(struct list_head *list)
{
    struct list_head surplus;
    struct vm_area *a, *tmp;

    if (vmap_config.search_walk) {
        walk_give_list(list);
        return;
    }
    list_init(&surplus);
    while (!list_empty(list)) {
        unsigned long flags = spin_lock_irqsave(&space.lock);
        uint64_t begin = rdtsc();

        for (unsigned i = 0; i < GIVE_CHUNK && !list_empty(list); i++) {
            a = list_first_entry(list, struct vm_area, list);
            list_del(&a->list);
            give_locked(a, &surplus);
        }
        WRITE_ONCE(space.longest_hold, MAX(space.longest_hold, rdtsc() - begin));
        spin_unlock_irqrestore(&space.lock, flags);
    }
    list_for_each_entry_safe (a, tmp, &surplus, list)
        area_delete(a);
}

void area_space_give(struct vm_area *a)
{
    struct list_head one;

    list_init(&one);
    list_add(&a->list, &one);
    area_space_give_list(&one);
}

uint64_t area_space_free(void)
{
    return vmap_config.search_walk ? walk_free() : READ_ONCE(space.free_bytes);
}

uint64_t area_longest_hold(void)
{
    return vmap_config.search_walk ? walk_longest_hold() : READ_ONCE(space.longest_hold);
}

bool area_space_next_free(uintptr_t from, uintptr_t *start, uintptr_t *end)
{
    unsigned long flags;
    struct vm_area *f;
    struct rb_node *n;

    if (vmap_config.search_walk)
        return walk_next_free(from, start, end);
    flags = spin_lock_irqsave(&space.lock);
    f = tree_floor(from);
    if (!f || f->end <= from) {
        n = f ? rb_next(&f->rb) : rb_first(&space.root);
        f = n ? area_of(n) : NULL;
    }
    if (f) {
        *start = MAX(f->start, from);
        *end = f->end;
    }
    spin_unlock_irqrestore(&space.lock, flags);
    return f;
}

/*
 * Congruent areas, top down: start with the base at which the last area ends at the top of the
 * highest free range, and move the base down under whatever is in the way of any area, until all n
 * fit. Each step lowers the base, so it ends. Source: Linux pcpu_get_vm_areas().
 */
bool area_congruent_base(area_floor_fn floor, const size_t *offsets, const size_t *sizes, int n,
                         uint64_t align, uintptr_t *base_out)
{
    uintptr_t base, free_start, free_end;
    int fit = 0, i = 0, last = 0;

    if (!floor(vmap_end - 1, &free_start, &free_end))
        return false;
    for (int j = 1; j < n; j++)
        if (offsets[j] + sizes[j] > offsets[last] + sizes[last])
            last = j;
    if (free_end - vmap_start < offsets[last] + sizes[last])
        return false;
    base = ALIGN_DOWN(free_end - offsets[last] - sizes[last], align);
    while (fit < n) {
        uintptr_t start, end, limit;

        if (base < vmap_start)
            return false;
        start = base + offsets[i];
        end = start + sizes[i];
        if (!floor(end - 1, &free_start, &free_end))
            return false;
        if (free_start <= start && free_end >= end) {
            fit++;
            i = (i + 1) % n;
            continue;
        }
        /* The range ends too low: end there; it starts too high: try the one below it. */
        limit = free_end < end ? free_end : free_start;
        if (limit - vmap_start < offsets[i] + sizes[i])
            return false;
        base = ALIGN_DOWN(limit - offsets[i] - sizes[i], align);
        fit = 0;
    }
    *base_out = base;
    return true;
}

static bool free_floor(uintptr_t addr, uintptr_t *start, uintptr_t *end)
{
    struct vm_area *f = tree_floor(addr);

    if (!f)
        return false;
    *start = f->start;
    *end = f->end;
    return true;
}

err_t area_space_take_congruent(struct vm_area **areas, const size_t *offsets, const size_t *sizes,
                                int n, uint64_t align)
{
    struct list_head spares;
    struct vm_area *s, *tmp, *surplus;
    unsigned long flags;
    err_t err = OK;
    uintptr_t base;

    if (vmap_config.search_walk)
        return walk_take_congruent(areas, offsets, sizes, n, align);
    list_init(&spares);
    for (int i = 0; i < n; i++) {
        s = area_new();
        if (!s) {
            err = ERR_NOMEM;
            goto out;
        }
        list_add(&s->list, &spares);
    }
    flags = spin_lock_irqsave(&space.lock);
    if (area_congruent_base(free_floor, offsets, sizes, n, align, &base)) {
        for (int i = 0; i < n; i++) {
            s = list_first_entry(&spares, struct vm_area, list);
            list_del(&s->list);
            areas[i]->start = base + offsets[i];
            areas[i]->end = areas[i]->start + sizes[i];
            surplus = tree_cut(tree_floor(areas[i]->start), areas[i]->start, sizes[i], &s);
            if (surplus)
                list_add(&surplus->list, &spares);
            if (s)
                list_add(&s->list, &spares);
        }
    } else {
        err = ERR_NOSPACE;
    }
    spin_unlock_irqrestore(&space.lock, flags);
out:
    list_for_each_entry_safe (s, tmp, &spares, list)
        area_delete(s);
    return err;
}

bool area_space_check(uint64_t *free_bytes)
{
    const char *wrong = NULL;
    uintptr_t prev_end = 0;
    unsigned long flags;
    long nodes, seen = 0;
    uint64_t sum = 0;

    if (vmap_config.search_walk)
        return walk_check(free_bytes);
    flags = spin_lock_irqsave(&space.lock);
    nodes = rb_validate(&space.root);
    for (struct rb_node *n = rb_first(&space.root); n && !wrong; n = rb_next(n)) {
        struct vm_area *a = area_of(n);
        uint64_t max = MAX(subtree_max(n->left), subtree_max(n->right));

        max = MAX(max, area_size(a));
        seen++;
        if (a->start >= a->end || a->start < vmap_start || a->end > vmap_end)
            wrong = "a range outside the limits";
        else if (prev_end && a->start <= prev_end)
            wrong = "ranges that touch or overlap";
        else if (a->subtree_max != max)
            wrong = "a wrong subtree maximum";
        sum += area_size(a);
        prev_end = a->end;
    }
    if (!wrong && nodes < 0)
        wrong = "an unbalanced tree";
    if (!wrong && seen != nodes)
        wrong = "nodes that iteration does not reach";
    if (!wrong && sum != space.free_bytes)
        wrong = "a wrong sum";
    spin_unlock_irqrestore(&space.lock, flags);
    if (wrong)
        kprintf("# selfcheck: free tree: %s\n", wrong);
    *free_bytes = sum;
    return !wrong;
}

err_t area_space_init(uintptr_t start, uint64_t size)
{
    struct vm_area *all;

    if (!area_cache)
        area_cache = cache_create("vm_area", sizeof(struct vm_area), 0);
    if (!area_cache)
        return ERR_NOMEM;
    spin_init(&space.lock, &free_class);
    space.root.node = NULL;
    space.free_bytes = size;
    space.longest_hold = 0;
    walk_init(size);
    if (vmap_config.search_walk)
        return OK;
    all = area_new();
    if (!all)
        return ERR_NOMEM;
    all->start = start;
    all->end = start + size;
    tree_insert(all);
    return OK;
}

void area_space_exit(void)
{
    while (space.root.node) {
        struct vm_area *a = area_of(space.root.node);

        tree_erase(a);
        area_delete(a);
    }
    space.free_bytes = 0;
}
