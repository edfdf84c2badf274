/*
 * vmap_node.c: areas in use, areas that wait for a flush, and ready ranges, spread over nodes.
 *
 * A node has a busy tree, a lazy list and size pools, each under a lock of its own. Which busy tree
 * an area is in follows from its address (zones of 16 pages); which lazy list and pool, from the
 * CPU that allocated it. One node = the one global lock of older kernels. Source: Linux 6.9 "mm:
 * vmalloc: remove global vmap_area_root rb-tree" and the patches around it.
 */
#include "lib/assert.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/page_alloc.h"
#include "mm/vmap_busy.h"
#include "mm/vmap_internal.h"
#include <arch/smp.h>

struct pool {
    struct list_head list;
    uint64_t len;
};

struct vmap_node {
    struct busy_tree busy __cacheline;
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
static struct lock_class busy_read_class = {.name = "vmap_node.busy-R"};
static struct lock_class busy_write_class = {.name = "vmap_node.busy-W"};
static struct lock_class lazy_class = {.name = "vmap_node.lazy"};
static struct lock_class pool_class = {.name = "vmap_node.pool"};

static struct vmap_node *nodes[VMAP_NODES_MAX];
static unsigned node_total, zone_shift;
static uint64_t untabled; /* atomic */
static bool pools_on;
bool node_by_table __read_mostly;
/* node_by_table: published less unpublished by this CPU, those in the trees left out. */
static DEFINE_PER_CPU(uint64_t, tabled);

static inline struct vm_area *area_of(struct rb_node *n)
{
    return rb_entry(n, struct vm_area, rb);
}

/* Zones of the designs with the table are units, since areas begin where units do: by smaller ones
 * two of 64 nodes would have all of them. */
static inline unsigned node_index(uintptr_t addr)
{
    return (unsigned)((addr >> zone_shift) % node_total);
}

static inline struct vmap_node *node_of_address(uintptr_t addr)
{
    return nodes[node_index(addr)];
}

static inline unsigned node_of_cpu(void)
{
    return this_cpu_id() % node_total;
}

struct busy_tree *node_busy_tree(void)
{
    return &nodes[0]->busy;
}

/* lock= */
static void init_busy(struct busy_tree *t)
{
    static const uint32_t waits[] = {
        [LOCK_AUTO] = SPIN_AUTO, [LOCK_TAS] = SPIN_TAS, [LOCK_TICKET] = SPIN_TICKET,
        [LOCK_MCS] = SPIN_MCS,   [LOCK_RW] = SPIN_AUTO, [LOCK_RWSPIN] = SPIN_AUTO};

    busy_class.wait = waits[vmap_config.lock];
    busy_init(t, &busy_class, vmap_config.lock == LOCK_RW || vmap_config.lock == LOCK_RWSPIN);
    rw_init(&t->rwlock, &busy_read_class, &busy_write_class, vmap_config.lock == LOCK_RWSPIN);
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
        init_busy(&nodes[i]->busy);
        spin_init(&nodes[i]->lazy.lock, &lazy_class);
        spin_init(&nodes[i]->pool.lock, &pool_class);
        list_init(&nodes[i]->lazy.list);
        for (unsigned s = 0; s < VMAP_POOL_SIZES; s++)
            list_init(&nodes[i]->pool.size[s].list);
        node_total = i + 1;
    }
    zone_shift = vmap_config.index_table ? PMD_SHIFT : VMAP_ZONE_SHIFT;
    node_by_table =
        vmap_config.index_table && !vmap_config.search_walk && !vmap_config.insert_twice;
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
            SUB_ONCE(p->len, 1);
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

/* With the busy lock: the area that starts at addr, if it is whole. */
static struct vm_area *busy_exact(struct busy_tree *t, uintptr_t addr)
{
    struct rb_node *p = t->root.node;

    while (p) {
        struct vm_area *a = area_of(p);

        if (a->start == addr)
            return a->state == AREA_WHOLE ? a : NULL;
        p = addr < a->start ? p->left : p->right;
    }
    return NULL;
}

/* With the busy lock: nobody finds a any more. search=walk: its addresses stay taken. */
static void busy_hide(struct busy_tree *t, struct vm_area *a)
{
    if (vmap_config.search_walk) {
        WRITE_ONCE(a->state, AREA_HIDDEN); /* partner: walk_take_freed() */
    } else {
        rb_erase(&t->root, &a->rb, NULL);
        a->state = AREA_ALONE;
    }
    SUB_ONCE(t->count, 1);
}

void node_busy_reserve(struct vm_area *a)
{
    struct busy_tree *t = &node_of_address(a->start)->busy;
    unsigned long flags;

    flags = busy_lock(t);
    a->state = AREA_RESERVED;
    busy_link(t, a);
    busy_unlock(t, flags);
}

/*
 * Of an area that is in the tree already only the description is new. insert=twice sets it under a
 * second acquisition of the lock, as setup_vmalloc_vm() did until Linux 6.9; blocks have none,
 * there as here.
 */
static void busy_describe(struct busy_tree *t, struct vm_area *a)
{
    unsigned long flags;

    if (!vmap_config.insert_twice || a->kind == VM_KIND_BLOCK_AREA) {
        STORE_RELEASE(a->state, AREA_WHOLE); /* partner: the lookups */
        return;
    }
    flags = busy_lock(t);
    WRITE_ONCE(a->state, AREA_WHOLE); /* partner: walk_take_freed() */
    busy_unlock(t, flags);
}

void node_busy_insert(struct vm_area *a)
{
    struct busy_tree *t = &node_of_address(a->start)->busy;
    unsigned long flags;

    if (a->pool == VMAP_NO_POOL && pools_on && !(a->flags & VM_PERMANENT))
        a->pool = (uint8_t)node_of_cpu();
    if (node_by_table && a->kind != VM_KIND_PCPU) {
        a->state = AREA_WHOLE; /* the caller puts it into the table */
        this_cpu_inc(tabled);
        return;
    }
    if (likely(a->state == AREA_ALONE)) {
        flags = busy_lock(t);
        a->state = AREA_WHOLE;
        busy_link(t, a);
        busy_unlock(t, flags);
    } else {
        busy_describe(t, a);
    }
    if (a->kind == VM_KIND_PCPU)
        ATOMIC_ADD(untabled, 1);
}

uint64_t node_untabled(void)
{
    return READ_ONCE(untabled);
}

/* It is in the table, and the caller clears its other entries. */
static struct vm_area *unlink_tabled(uintptr_t addr, node_match_fn match, const void *arg)
{
    struct vm_area *a = table_claim(addr, match, arg);

    if (!a)
        return NULL;
    a->state = AREA_ALONE;
    this_cpu_add(tabled, -1L);
    return a;
}

struct vm_area *node_busy_unlink(uintptr_t addr, node_match_fn match, const void *arg)
{
    struct busy_tree *t;
    struct vm_area *a;
    unsigned long flags;

    if (node_by_table) {
        a = unlink_tabled(addr, match, arg);
        if (a || !node_untabled())
            return a;
    }
    t = &node_of_address(addr)->busy;
    flags = busy_lock(t);
    a = busy_exact(t, addr);
    if (a && match(a, arg))
        busy_hide(t, a);
    else
        a = NULL;
    busy_unlock(t, flags);
    if (a && a->kind == VM_KIND_PCPU)
        ATOMIC_SUB(untabled, 1);
    return a;
}

void node_busy_remove(struct vm_area *a)
{
    struct busy_tree *t = &node_of_address(a->start)->busy;
    unsigned long flags;

    if (node_by_table && a->kind != VM_KIND_PCPU) {
        a->state = AREA_ALONE;
        this_cpu_add(tabled, -1L);
        return;
    }
    flags = busy_lock(t);
    busy_hide(t, a);
    busy_unlock(t, flags);
}

bool node_busy_with(uintptr_t addr, bool (*fn)(struct vm_area *a, void *arg), void *arg)
{
    struct busy_tree *t = &node_of_address(addr)->busy;
    unsigned long flags;
    struct vm_area *a;
    bool done;

    if (node_by_table && table_with(addr, fn, arg))
        return true;
    flags = busy_lock(t);
    a = busy_exact(t, addr);
    done = a && fn(a, arg);
    busy_unlock(t, flags);
    return done;
}

/* Acquire: an area that was described without the lock. */
static bool is_whole(const struct vm_area *a)
{
    return LOAD_ACQUIRE(a->state) == AREA_WHOLE;
}

bool node_busy_find(uintptr_t addr, struct vm_area *copy, bool try)
{
    unsigned first = node_index(addr), i = first;

    if (node_by_table && table_find(addr, copy))
        return true;
    if (node_by_table && !node_untabled())
        return false;
    /* The area may have started in an earlier zone: go back over all nodes. */
    do {
        struct busy_tree *t = &nodes[i]->busy;
        unsigned long flags;
        struct vm_area *a;
        bool hit = false;

        if (!try || busy_read_trylock(t, &flags)) {
            if (!try)
                flags = busy_read_lock(t);
            a = busy_floor(t, addr);
            hit = a && addr < a->end && is_whole(a);
            if (hit)
                *copy = *a;
            busy_read_unlock(t, flags);
        }
        if (hit)
            return true;
        i = (i + node_total - 1) % node_total;
    } while (i != first);
    return false;
}

/* With the busy lock: the whole area with the lowest end above addr. */
static struct vm_area *busy_next(struct busy_tree *t, uintptr_t addr)
{
    struct vm_area *a = busy_floor(t, addr);

    if (!a)
        a = busy_area(rb_first(&t->root));
    while (a && (a->end <= addr || !is_whole(a)))
        a = busy_area(rb_next(&a->rb));
    return a;
}

bool node_busy_next(uintptr_t addr, struct vm_area *copy)
{
    bool any = node_by_table && table_next(addr, copy);

    if (node_by_table && !node_untabled())
        return any;
    for (unsigned i = 0; i < node_total; i++) {
        struct busy_tree *t = &nodes[i]->busy;
        unsigned long flags = busy_read_lock(t);
        struct vm_area *a = busy_next(t, addr);

        if (a && (!any || a->start < copy->start)) {
            *copy = *a;
            any = true;
        }
        busy_read_unlock(t, flags);
    }
    return any;
}

void node_lazy_add(struct vm_area *a)
{
    struct vmap_node *n = a->pool < node_total ? nodes[a->pool] : node_of_address(a->start);
    unsigned long flags;

    if (vmap_config.search_walk) {
        STORE_RELEASE(a->state, AREA_FREED); /* partner: walk_take_freed() */
        return;
    }
    flags = spin_lock_irqsave(&n->lazy.lock);
    list_add_tail(&a->list, &n->lazy.list);
    n->lazy.pages += (a->end - a->start) >> PAGE_SHIFT;
    spin_unlock_irqrestore(&n->lazy.lock, flags);
}

uint64_t node_lazy_take_all(struct list_head *list)
{
    uint64_t pages = 0;

    if (vmap_config.search_walk)
        return walk_take_freed(list);
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

/* search=walk: what waits is in the busy tree. */
static bool busy_find_freed(uintptr_t addr, struct vm_area *copy)
{
    struct busy_tree *t = node_busy_tree();
    unsigned long flags;
    struct vm_area *a;
    bool hit;

    if (!busy_read_trylock(t, &flags))
        return false;
    a = busy_floor(t, addr);
    hit = a && addr < a->end && READ_ONCE(a->state) >= AREA_FREED;
    if (hit) /* not the list, which is the purge's */
        memcpy(copy, a, offsetof(struct vm_area, list));
    busy_read_unlock(t, flags);
    return hit;
}

bool node_lazy_find(uintptr_t addr, struct vm_area *copy)
{
    if (vmap_config.search_walk)
        return busy_find_freed(addr, copy);
    for (unsigned i = 0; i < node_total; i++) {
        struct vmap_node *n = nodes[i];
        unsigned long flags = irq_save();
        struct vm_area *a;
        bool hit = false;

        if (spin_trylock(&n->lazy.lock)) {
            list_for_each_entry (a, &n->lazy.list, list) {
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
    list_for_each_entry_safe (a, tmp, list, list) {
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
            ADD_ONCE(p->len, 1);
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
            SUB_ONCE(p->len, count);
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

static uint64_t tabled_count(void)
{
    uint64_t sum = 0;
    unsigned cpu;

    for_each_cpu (cpu)
        sum += READ_ONCE(*per_cpu_ptr(&tabled, cpu));
    return sum;
}

uint64_t node_busy_count(void)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < node_total; i++)
        sum += READ_ONCE(nodes[i]->busy.count);
    return sum + tabled_count();
}

static bool check_busy(struct vmap_node *n, struct node_sums *sums, const char **wrong)
{
    uintptr_t prev_end = 0;
    uint64_t seen = 0, freed = 0;
    long nodes_of_tree = rb_validate(&n->busy.root);

    for (struct rb_node *p = rb_first(&n->busy.root); p && !*wrong; p = rb_next(p)) {
        struct vm_area *a = area_of(p);

        if (node_of_address(a->start) != n)
            *wrong = "an area on the wrong node";
        else if (a->start < prev_end || a->start >= a->end)
            *wrong = "busy areas overlap";
        else if (a->nr_pages > (a->end - a->start) >> PAGE_SHIFT)
            *wrong = "an area with more pages than addresses";
        prev_end = a->end;
        if (a->state >= AREA_HIDDEN) {
            /* What a purge has taken is counted where it waits. */
            sums->lazy_bytes += a->state == AREA_FREED ? a->end - a->start : 0;
            freed++;
            continue;
        }
        sums->busy_bytes += a->end - a->start;
        seen++;
    }
    if (!*wrong && (nodes_of_tree != (long)(seen + freed) || seen != n->busy.count))
        *wrong = "busy tree unbalanced or miscounted";
    sums->busy_areas += seen;
    return !*wrong;
}

static bool check_lists(struct vmap_node *n, struct node_sums *sums, const char **wrong)
{
    struct vm_area *a;
    uint64_t pages = 0;

    list_for_each_entry (a, &n->lazy.list, list)
        pages += (a->end - a->start) >> PAGE_SHIFT;
    if (pages != n->lazy.pages)
        *wrong = "lazy list miscounted";
    sums->lazy_bytes += pages << PAGE_SHIFT;
    for (unsigned s = 0; s < VMAP_POOL_SIZES; s++) {
        uint64_t len = 0;

        list_for_each_entry (a, &n->pool.size[s].list, list) {
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
    if (node_by_table) {
        uint64_t areas = 0;

        if (!table_check(&sums->busy_bytes, &areas))
            wrong = "an area or block that is not whole in the table";
        else if (areas != tabled_count())
            wrong = "areas of the table miscounted";
        sums->busy_areas += areas;
    }
    if (wrong)
        kprintf("# selfcheck: nodes: %s\n", wrong);
    return !wrong;
}

void node_take_permanent(struct list_head *list)
{
    if (node_by_table) {
        struct list_head tabled_ones;
        struct vm_area *a;

        list_init(&tabled_ones);
        table_take_permanent(&tabled_ones);
        list_for_each_entry (a, &tabled_ones, list) {
            a->state = AREA_ALONE;
            this_cpu_add(tabled, -1L);
        }
        list_splice_tail_init(&tabled_ones, list);
    }
    for (unsigned i = 0; i < node_total; i++) {
        struct rb_node *p = rb_first(&nodes[i]->busy.root), *next;

        for (; p; p = next) {
            struct vm_area *a = area_of(p);

            next = rb_next(p);
            if (!(a->flags & VM_PERMANENT))
                continue;
            rb_erase(&nodes[i]->busy.root, p, NULL);
            nodes[i]->busy.count--;
            a->state = AREA_ALONE;
            list_add_tail(&a->list, list);
        }
    }
}
