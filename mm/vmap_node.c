/*
 * vmap_node.c: areas in use, areas that wait for a flush, and ready ranges, spread over nodes.
 *
 * A node has a busy tree, a lazy list and size pools, each under a lock of its own. Which busy tree an
 * area is in follows from its address (zones of 16 pages); which lazy list and pool, from the CPU that
 * allocated it. One node = the one global lock of older kernels.
 * Source: Linux 6.9 "mm: vmalloc: remove global vmap_area_root rb-tree" and the patches around it.
 */
#include "lib/assert.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/page_alloc.h"
#include "mm/vmap_internal.h"

struct pool {
    struct list_head list;
    uint64_t len;
};

struct vmap_node {
    struct {
        struct spinlock lock;
        struct rb_root root;
        uint64_t count;
    } busy __cacheline;
    struct {
        struct spinlock lock;
        struct list_head list;
        uint64_t pages;
    } lazy __cacheline;
    struct {
        struct spinlock lock;
        struct pool size[VMAP_POOL_SIZES]; /* [i]: ranges of i + 1 pages */
    } pool __cacheline;
};

#define NODE_ORDER 1 /* pages of a node: 2 */
_Static_assert(sizeof(struct vmap_node) <= (PAGE_SIZE << NODE_ORDER), "node fits its pages");

static struct lock_class busy_class = {.name = "vmap_node.busy"};
static struct lock_class lazy_class = {.name = "vmap_node.lazy"};
static struct lock_class pool_class = {.name = "vmap_node.pool"};

static struct vmap_node *nodes[VMAP_NODES_MAX];
static unsigned node_total;
static uint64_t untabled; /* atomic */
static bool pools_on;

static inline struct vm_area *area_of(struct rb_node *n)
{
    return rb_entry(n, struct vm_area, rb);
}

static inline struct vmap_node *node_of_address(uintptr_t addr)
{
    return nodes[(addr / VMAP_ZONE_SIZE) % node_total];
}

static inline unsigned node_of_cpu(void)
{
    return this_cpu_id() % node_total;
}

unsigned node_count(void)
{
    return node_total;
}

err_t node_init(unsigned count, bool pools)
{
    for (unsigned i = 0; i < count; i++) {
        struct page *page = alloc_pages(NODE_ORDER);

        if (!page) {
            node_exit();
            return ERR_NOMEM;
        }
        nodes[i] = page_address(page);
        memset(nodes[i], 0, sizeof(*nodes[i]));
        spin_init(&nodes[i]->busy.lock, &busy_class);
        spin_init(&nodes[i]->lazy.lock, &lazy_class);
        spin_init(&nodes[i]->pool.lock, &pool_class);
        list_init(&nodes[i]->lazy.list);
        for (unsigned s = 0; s < VMAP_POOL_SIZES; s++)
            list_init(&nodes[i]->pool.size[s].list);
        node_total = i + 1;
    }
    /* One node has no pools: the point of pools is to stay away from the shared tree. */
    pools_on = pools && count > 1;
    return OK;
}

void node_exit(void)
{
    for (unsigned i = 0; i < node_total; i++) {
        free_pages(virt_to_page(nodes[i]), NODE_ORDER);
        nodes[i] = NULL;
    }
    node_total = 0;
}

struct vm_area *node_pool_take(uint64_t size, uint64_t align)
{
    struct vmap_node *n;
    struct vm_area *a = NULL;
    struct pool *p;
    unsigned long flags;

    if (!pools_on || size > VMAP_POOL_SIZES * PAGE_SIZE)
        return NULL;
    n = nodes[node_of_cpu()];
    p = &n->pool.size[size / PAGE_SIZE - 1];
    if (!READ_ONCE(p->len)) {
        this_cpu_inc(vmap_stat.pool_miss);
        return NULL;
    }
    flags = spin_lock_irqsave(&n->pool.lock);
    if (p->len) {
        a = list_first_entry(&p->list, struct vm_area, list);
        if (IS_ALIGNED(a->start, align)) {
            list_del(&a->list);
            WRITE_ONCE(p->len, p->len - 1);
        } else {
            /* Another one may suit next time (Linux does the same). */
            list_del(&a->list);
            list_add_tail(&a->list, &p->list);
            a = NULL;
        }
    }
    spin_unlock_irqrestore(&n->pool.lock, flags);
    if (a)
        this_cpu_inc(vmap_stat.pool_hit);
    else
        this_cpu_inc(vmap_stat.pool_miss);
    return a;
}

/* With the busy lock: the area with the highest start at or below addr. */
static struct vm_area *busy_floor(struct vmap_node *n, uintptr_t addr)
{
    struct rb_node *p = n->busy.root.node;
    struct vm_area *best = NULL;
    uint64_t visits = 0;

    while (p) {
        struct vm_area *a = area_of(p);

        visits++;
        if (a->start <= addr) {
            best = a;
            p = p->right;
        } else {
            p = p->left;
        }
    }
    this_cpu_add(vmap_stat.tree_visits, visits);
    return best;
}

/* With the busy lock: the area that starts at addr. */
static struct vm_area *busy_exact(struct vmap_node *n, uintptr_t addr)
{
    struct rb_node *p = n->busy.root.node;

    while (p) {
        struct vm_area *a = area_of(p);

        if (a->start == addr)
            return a;
        p = addr < a->start ? p->left : p->right;
    }
    return NULL;
}

void node_busy_insert(struct vm_area *a)
{
    struct vmap_node *n = node_of_address(a->start);
    struct rb_node **link = &n->busy.root.node, *parent = NULL;
    unsigned long flags;

    if (a->pool == VMAP_NO_POOL && pools_on && !(a->flags & VM_PERMANENT))
        a->pool = (uint16_t)node_of_cpu();
    flags = spin_lock_irqsave(&n->busy.lock);
    while (*link) {
        parent = *link;
        ASSERT_DBG(area_of(parent)->end <= a->start || a->end <= area_of(parent)->start);
        link = a->start < area_of(parent)->start ? &parent->left : &parent->right;
    }
    rb_link(&a->rb, parent, link);
    rb_insert_fixup(&n->busy.root, &a->rb, NULL);
    WRITE_ONCE(n->busy.count, n->busy.count + 1);
    spin_unlock_irqrestore(&n->busy.lock, flags);
    if (a->kind == VM_KIND_PCPU)
        ATOMIC_ADD(untabled, 1);
}

uint64_t node_untabled(void)
{
    return READ_ONCE(untabled);
}

struct vm_area *node_busy_unlink(uintptr_t addr, node_match_fn match, const void *arg)
{
    struct vmap_node *n = node_of_address(addr);
    unsigned long flags = spin_lock_irqsave(&n->busy.lock);
    struct vm_area *a = busy_exact(n, addr);

    if (a && match(a, arg)) {
        rb_erase(&n->busy.root, &a->rb, NULL);
        WRITE_ONCE(n->busy.count, n->busy.count - 1);
    } else {
        a = NULL;
    }
    spin_unlock_irqrestore(&n->busy.lock, flags);
    if (a && a->kind == VM_KIND_PCPU)
        ATOMIC_SUB(untabled, 1);
    return a;
}

void node_busy_remove(struct vm_area *a)
{
    struct vmap_node *n = node_of_address(a->start);
    unsigned long flags = spin_lock_irqsave(&n->busy.lock);

    rb_erase(&n->busy.root, &a->rb, NULL);
    WRITE_ONCE(n->busy.count, n->busy.count - 1);
    spin_unlock_irqrestore(&n->busy.lock, flags);
}

bool node_busy_with(uintptr_t addr, bool (*fn)(struct vm_area *a, void *arg), void *arg)
{
    struct vmap_node *n = node_of_address(addr);
    unsigned long flags = spin_lock_irqsave(&n->busy.lock);
    struct vm_area *a = busy_exact(n, addr);
    bool done = a && fn(a, arg);

    spin_unlock_irqrestore(&n->busy.lock, flags);
    return done;
}

bool node_busy_find(uintptr_t addr, struct vm_area *copy, bool try)
{
    unsigned first = (unsigned)((addr / VMAP_ZONE_SIZE) % node_total), i = first;

    /* The area may have started in an earlier zone: go back over all nodes. */
    do {
        struct vmap_node *n = nodes[i];
        unsigned long flags = irq_save();
        struct vm_area *a;
        bool hit;

        if (try && !spin_trylock(&n->busy.lock)) {
            irq_restore(flags);
            i = (i + node_total - 1) % node_total;
            continue;
        }
        if (!try)
            spin_lock(&n->busy.lock);
        a = busy_floor(n, addr);
        hit = a && addr < a->end;
        if (hit)
            *copy = *a;
        spin_unlock_irqrestore(&n->busy.lock, flags);
        if (hit)
            return true;
        i = (i + node_total - 1) % node_total;
    } while (i != first);
    return false;
}

bool node_busy_next(uintptr_t addr, struct vm_area *copy)
{
    bool any = false;

    for (unsigned i = 0; i < node_total; i++) {
        struct vmap_node *n = nodes[i];
        unsigned long flags = spin_lock_irqsave(&n->busy.lock);
        struct vm_area *a = busy_floor(n, addr);
        struct rb_node *p;

        if (!a || a->end <= addr) {
            p = a ? rb_next(&a->rb) : rb_first(&n->busy.root);
            a = p ? area_of(p) : NULL;
        }
        if (a && (!any || a->start < copy->start)) {
            *copy = *a;
            any = true;
        }
        spin_unlock_irqrestore(&n->busy.lock, flags);
    }
    return any;
}

void node_lazy_add(struct vm_area *a)
{
    struct vmap_node *n =
        a->pool < node_total ? nodes[a->pool] : node_of_address(a->start);
    unsigned long flags = spin_lock_irqsave(&n->lazy.lock);

    list_add_tail(&a->list, &n->lazy.list);
    n->lazy.pages += (a->end - a->start) >> PAGE_SHIFT;
    spin_unlock_irqrestore(&n->lazy.lock, flags);
}

uint64_t node_lazy_take_all(struct list_head *list)
{
    uint64_t pages = 0;

    for (unsigned i = 0; i < node_total; i++) {
        struct vmap_node *n = nodes[i];
        unsigned long flags = spin_lock_irqsave(&n->lazy.lock);

        list_splice_tail_init(&n->lazy.list, list);
        pages += n->lazy.pages;
        n->lazy.pages = 0;
        spin_unlock_irqrestore(&n->lazy.lock, flags);
    }
    return pages;
}

bool node_lazy_find(uintptr_t addr, struct vm_area *copy)
{
    for (unsigned i = 0; i < node_total; i++) {
        struct vmap_node *n = nodes[i];
        unsigned long flags = irq_save();
        struct vm_area *a;
        bool hit = false;

        if (spin_trylock(&n->lazy.lock)) {
            list_for_each_entry(a, &n->lazy.list, list)
            {
                if (addr >= a->start && addr < a->end) {
                    *copy = *a;
                    hit = true;
                    break;
                }
            }
            spin_unlock(&n->lazy.lock);
        }
        irq_restore(flags);
        if (hit)
            return true;
    }
    return false;
}

/* Ranges put into a pool under one acquisition of its lock, at most. */
#define SETTLE_CHUNK 64

/* The node whose pool takes a, or NULL. */
static struct vmap_node *pool_home(const struct vm_area *a)
{
    if (!pools_on || a->pool >= node_total || a->end - a->start > VMAP_POOL_SIZES * PAGE_SIZE)
        return NULL;
    return nodes[a->pool];
}

void node_settle(struct list_head *list)
{
    struct vmap_node *locked = NULL;
    struct list_head rest;
    struct vm_area *a, *tmp;
    unsigned long flags = 0;
    unsigned held = 0;

    list_init(&rest);
    list_for_each_entry_safe(a, tmp, list, list)
    {
        struct vmap_node *n = pool_home(a);

        if (n != locked) {
            /* Lists come node by node: one acquisition serves a run of areas. */
            if (locked)
                spin_unlock_irqrestore(&locked->pool.lock, flags);
            locked = n;
            held = 0;
            if (n)
                flags = spin_lock_irqsave(&n->pool.lock);
        }
        if (n) {
            struct pool *p = &n->pool.size[((a->end - a->start) >> PAGE_SHIFT) - 1];

            list_add(&a->list, &p->list);
            WRITE_ONCE(p->len, p->len + 1);
            if (++held == SETTLE_CHUNK) {
                spin_unlock_irqrestore(&n->pool.lock, flags);
                locked = NULL;
            }
        } else {
            list_add_tail(&a->list, &rest);
        }
    }
    if (locked)
        spin_unlock_irqrestore(&locked->pool.lock, flags);
    list_init(list);
    area_space_give_list(&rest);
}

void node_pool_decay(bool all)
{
    if (!pools_on)
        return;
    for (unsigned i = 0; i < node_total; i++) {
        struct vmap_node *n = nodes[i];

        for (unsigned s = 0; s < VMAP_POOL_SIZES; s++) {
            struct pool *p = &n->pool.size[s];
            struct list_head out;
            unsigned long flags;
            uint64_t count;

            if (!READ_ONCE(p->len))
                continue;
            list_init(&out);
            flags = spin_lock_irqsave(&n->pool.lock);
            /* Rounded up, so that a pool nobody uses reaches 0 (case C3). */
            count = all ? p->len : DIV_ROUND_UP(p->len, 4);
            for (uint64_t k = 0; k < count; k++) {
                struct vm_area *a = list_last_entry(&p->list, struct vm_area, list);

                list_del(&a->list);
                list_add(&a->list, &out);
            }
            WRITE_ONCE(p->len, p->len - count);
            spin_unlock_irqrestore(&n->pool.lock, flags);
            area_space_give_list(&out);
        }
    }
}

uint64_t node_pool_len(unsigned pages)
{
    uint64_t sum = 0;

    if (pages == 0 || pages > VMAP_POOL_SIZES)
        return 0;
    for (unsigned i = 0; i < node_total; i++)
        sum += READ_ONCE(nodes[i]->pool.size[pages - 1].len);
    return sum;
}

uint64_t node_busy_count(void)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < node_total; i++)
        sum += READ_ONCE(nodes[i]->busy.count);
    return sum;
}

static bool check_busy(struct vmap_node *n, struct node_sums *sums, const char **wrong)
{
    uintptr_t prev_end = 0;
    uint64_t seen = 0;

    if (rb_validate(&n->busy.root) != (long)n->busy.count)
        *wrong = "busy tree unbalanced or miscounted";
    for (struct rb_node *p = rb_first(&n->busy.root); p && !*wrong; p = rb_next(p)) {
        struct vm_area *a = area_of(p);

        if (node_of_address(a->start) != n)
            *wrong = "an area on the wrong node";
        else if (a->start < prev_end || a->start >= a->end)
            *wrong = "busy areas overlap";
        else if (a->nr_pages > (a->end - a->start) >> PAGE_SHIFT)
            *wrong = "an area with more pages than addresses";
        prev_end = a->end;
        sums->busy_bytes += a->end - a->start;
        seen++;
    }
    sums->busy_areas += seen;
    return !*wrong;
}

static bool check_lists(struct vmap_node *n, struct node_sums *sums, const char **wrong)
{
    struct vm_area *a;
    uint64_t pages = 0;

    list_for_each_entry(a, &n->lazy.list, list)
        pages += (a->end - a->start) >> PAGE_SHIFT;
    if (pages != n->lazy.pages)
        *wrong = "lazy list miscounted";
    sums->lazy_bytes += pages << PAGE_SHIFT;
    for (unsigned s = 0; s < VMAP_POOL_SIZES; s++) {
        uint64_t len = 0;

        list_for_each_entry(a, &n->pool.size[s].list, list)
        {
            if (a->end - a->start != (s + 1) * PAGE_SIZE)
                *wrong = "a range of another size in a pool";
            len++;
        }
        if (len != n->pool.size[s].len)
            *wrong = "a pool miscounted";
        sums->pool_bytes += len * (s + 1) * PAGE_SIZE;
    }
    return !*wrong;
}

bool node_check(struct node_sums *sums)
{
    const char *wrong = NULL;

    *sums = (struct node_sums){0};
    for (unsigned i = 0; i < node_total && !wrong; i++)
        if (check_busy(nodes[i], sums, &wrong))
            check_lists(nodes[i], sums, &wrong);
    if (wrong)
        kprintf("# selfcheck: nodes: %s\n", wrong);
    return !wrong;
}

void node_take_permanent(struct list_head *list)
{
    for (unsigned i = 0; i < node_total; i++) {
        struct rb_node *p = rb_first(&nodes[i]->busy.root), *next;

        for (; p; p = next) {
            struct vm_area *a = area_of(p);

            next = rb_next(p);
            if (!(a->flags & VM_PERMANENT))
                continue;
            rb_erase(&nodes[i]->busy.root, p, NULL);
            nodes[i]->busy.count--;
            list_add_tail(&a->list, list);
        }
    }
}
