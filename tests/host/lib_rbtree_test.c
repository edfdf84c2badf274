/*
 * lib_rbtree_test.c: random insertions and removals against a table of what is in; after each, the
 * rules of the tree, the order, and the summaries (checked by brute force) must hold.
 *
 * The summary here is what the allocator keeps: the largest gap below a node; and a count beside
 * it, which changes with every operation. New nodes get a summary that is garbage, or that happens
 * to be right already: the walk upwards must not stop at either.
 */
#include "tests/host/testlib.h"
#include <stdlib.h>
#include <string.h>
#include "lib/rbtree.h"

#define MAX_NODES 600

struct gap {
    struct rb_node rb;
    unsigned key;
    unsigned size;
    unsigned max; /* largest size in this subtree */
    unsigned count;
    bool in;
};

static struct gap gaps[MAX_NODES];
static unsigned long augment_calls;
static bool with_count;

static struct gap *gap_of(struct rb_node *n)
{
    return n ? rb_entry(n, struct gap, rb) : NULL;
}

static bool gap_augment(struct rb_node *n)
{
    struct gap *g = gap_of(n), *l = gap_of(n->left), *r = gap_of(n->right);
    unsigned max = g->size, count = 1;

    augment_calls++;
    if (l) {
        max = MAX(max, l->max);
        count += l->count;
    }
    if (r) {
        max = MAX(max, r->max);
        count += r->count;
    }
    bool changed = max != g->max || (with_count && count != g->count);
    g->max = max;
    if (with_count)
        g->count = count;
    return changed;
}

static void insert(struct rb_root *root, struct gap *g, rb_augment_fn augment)
{
    struct rb_node **link = &root->node, *parent = NULL;

    while (*link) {
        parent = *link;
        link = g->key < gap_of(parent)->key ? &parent->left : &parent->right;
    }
    rb_link(&g->rb, parent, link);
    rb_insert_fixup(root, &g->rb, augment);
    g->in = true;
}

/* Recomputes every summary from nothing but the nodes. */
static unsigned check_summaries(struct rb_node *n, unsigned *count)
{
    if (!n)
        return 0;
    unsigned cl = 0, cr = 0;
    unsigned l = check_summaries(n->left, &cl), r = check_summaries(n->right, &cr);
    struct gap *g = gap_of(n);
    unsigned max = MAX(g->size, MAX(l, r));

    *count = cl + cr + 1;
    CHECK_MSG(g->max == max, "key %u: max %u, should be %u", g->key, g->max, max);
    if (with_count)
        CHECK_MSG(g->count == *count, "key %u: count %u, should be %u", g->key, g->count, *count);
    return max;
}

static void check_order(const struct rb_root *root, unsigned n)
{
    unsigned i = 0;
    struct rb_node *p = rb_first(root), *q = rb_last(root);

    for (; i < n && !gaps[i].in; i++)
        ;
    for (; p; p = rb_next(p)) {
        CHECK_MSG(i < n && gap_of(p) == &gaps[i], "forwards, at key %u", i);
        for (i++; i < n && !gaps[i].in; i++)
            ;
    }
    assert_int_equal(i, n);
    for (; q; q = rb_prev(q)) {
        while (i > 0 && !gaps[i - 1].in)
            i--;
        CHECK_MSG(i > 0 && gap_of(q) == &gaps[i - 1], "backwards, at key %u", i);
        i--;
    }
    while (i > 0 && !gaps[i - 1].in)
        i--;
    assert_int_equal(i, 0);
}

static void check(const struct rb_root *root, unsigned n, unsigned live, rb_augment_fn augment)
{
    unsigned count = 0;

    CHECK_MSG(rb_validate(root) == (long)live, "%ld nodes, %u are in", rb_validate(root), live);
    check_order(root, n);
    if (augment)
        check_summaries(root->node, &count);
}

static void churn(unsigned n, int rounds, rb_augment_fn augment, uint64_t stream)
{
    struct rb_root root = {NULL};
    struct rng r = test_rng(stream);
    unsigned live = 0;

    memset(gaps, 0, sizeof(gaps));
    for (unsigned i = 0; i < n; i++)
        gaps[i].key = i;
    for (int round = 0; round < rounds; round++) {
        struct gap *g = &gaps[rng_below(&r, n)];
        /* Swing between almost full and almost empty. */
        bool want_in = rng_below(&r, 10) < ((round / (2 * (int)n + 1)) % 2 ? 2 : 8);
        if (g->in && !want_in) {
            rb_erase(&root, &g->rb, augment);
            memset(&g->rb, 0xa5, sizeof(g->rb));
            g->in = false;
            live--;
        } else if (!g->in && want_in) {
            g->size = 1 + (unsigned)rng_below(&r, rng_below(&r, 2) ? 4 : 1000);
            g->max = rng_below(&r, 2) ? g->size : (unsigned)rng_next(&r);
            g->count = rng_below(&r, 2) ? 1 : (unsigned)rng_next(&r);
            insert(&root, g, augment);
            live++;
        } else if (g->in && augment) { /* the node's own value changes in place */
            g->size = 1 + (unsigned)rng_below(&r, 1000);
            rb_propagate(&g->rb, augment);
        }
        check(&root, n, live, augment);
    }
    for (unsigned i = 0; i < n; i++) {
        if (gaps[i].in) {
            rb_erase(&root, &gaps[i].rb, augment);
            gaps[i].in = false;
            check(&root, n, --live, augment);
        }
    }
    assert_null(root.node);
}

static void plain_tree(void **state)
{
    (void)state;
    for (unsigned n = 1; n < 12; n++)
        churn(n, 1500, NULL, n);
    churn(150, 6000, NULL, 100);
}

static void augmented_max(void **state)
{
    (void)state;
    with_count = false;
    for (unsigned n = 1; n < 12; n++)
        churn(n, 1500, gap_augment, 200 + n);
    churn(150, 6000, gap_augment, 300);
}

static void augmented_count(void **state)
{
    (void)state;
    with_count = true;
    for (unsigned n = 1; n < 12; n++)
        churn(n, 1500, gap_augment, 400 + n);
    churn(150, 6000, gap_augment, 500);
    with_count = false;
}

/* Every order of inserting and every order of erasing up to 6 nodes. */
static void permute(unsigned *p, unsigned k, unsigned n, void (*fn)(const unsigned *, unsigned))
{
    if (k == n) {
        fn(p, n);
        return;
    }
    for (unsigned i = k; i < n; i++) {
        unsigned t = p[k];
        p[k] = p[i];
        p[i] = t;
        permute(p, k + 1, n, fn);
        p[i] = p[k];
        p[k] = t;
    }
}

static const unsigned *insert_order;

static void build_and_erase(const unsigned *erase_order, unsigned n)
{
    struct rb_root root = {NULL};

    for (unsigned i = 0; i < n; i++)
        insert(&root, &gaps[insert_order[i]], gap_augment);
    check(&root, n, n, gap_augment);
    for (unsigned i = 0; i < n; i++) {
        rb_erase(&root, &gaps[erase_order[i]].rb, gap_augment);
        gaps[erase_order[i]].in = false;
        check(&root, n, n - i - 1, gap_augment);
    }
}

static void for_each_insert_order(const unsigned *order, unsigned n)
{
    unsigned p[8];

    insert_order = order;
    for (unsigned i = 0; i < n; i++)
        p[i] = i;
    permute(p, 0, n, build_and_erase);
}

static void all_orders(void **state)
{
    unsigned p[8];

    (void)state;
    memset(gaps, 0, sizeof(gaps));
    for (unsigned n = 1; n <= 5; n++) {
        for (unsigned i = 0; i < n; i++) {
            p[i] = i;
            gaps[i].key = i;
            gaps[i].size = 1 + (i * 7) % 5;
        }
        permute(p, 0, n, for_each_insert_order);
    }
}

/* Equal small gaps below one large gap: nothing that happens far below changes the top, so the
 * number of recomputed summaries must not grow with the tree's height. */
static void propagation_stops_early(void **state)
{
    struct rb_root root = {NULL};
    struct rng r = test_rng(600);

    (void)state;
    memset(gaps, 0, sizeof(gaps));
    for (unsigned i = 0; i < MAX_NODES; i++) {
        gaps[i].key = i;
        gaps[i].size = 1;
        insert(&root, &gaps[i], gap_augment);
    }
    augment_calls = 0;
    for (int i = 0; i < 2000; i++) {
        struct gap *g = &gaps[rng_below(&r, MAX_NODES)];
        rb_erase(&root, &g->rb, gap_augment);
        insert(&root, g, gap_augment);
    }
    /* At most 1 (erase) + 2 (insert), and rotations at two each: 5 is generous, the height is 10.
     */
    CHECK_MSG(augment_calls < 2 * 2000 * 5, "%lu calls", augment_calls);
    assert_int_equal(rb_validate(&root), MAX_NODES);

    augment_calls = 0;
    rb_propagate(rb_first(&root), gap_augment);
    assert_int_equal(augment_calls, 1);
    rb_propagate(NULL, gap_augment);
    assert_int_equal(augment_calls, 1);
}

static unsigned height(const struct rb_node *n)
{
    return n ? 1 + MAX(height(n->left), height(n->right)) : 0;
}

static void height_is_bounded(void **state)
{
    struct rb_root root = {NULL};

    (void)state;
    memset(gaps, 0, sizeof(gaps));
    for (unsigned i = 0; i < MAX_NODES; i++) {
        gaps[i].key = i;
        insert(&root, &gaps[i], NULL);
        assert_true(height(root.node) <= 2 * fls64(i + 2));
    }
    /* Take the left half away, which leaves the right half to be balanced again. */
    for (unsigned i = 0; i < MAX_NODES - 10; i++)
        rb_erase(&root, &gaps[i].rb, NULL);
    assert_int_equal(rb_validate(&root), 10);
    assert_true(height(root.node) <= 2 * fls64(11));
}

/* A tree of 7 black and red nodes to break: keys 0..6 in order. */
static struct rb_node *small_tree(struct rb_root *root)
{
    root->node = NULL;
    memset(gaps, 0, sizeof(gaps));
    for (unsigned i = 0; i < 7; i++) {
        gaps[i].key = i;
        insert(root, &gaps[i], NULL);
    }
    assert_int_equal(rb_validate(root), 7);
    return root->node;
}

static void validation_finds_damage(void **state)
{
    struct rb_root root = {NULL};
    struct rb_node *top, *leaf;

    (void)state;
    assert_int_equal(rb_validate(&root), 0);
    assert_null(rb_first(&root));
    assert_null(rb_last(&root));

    top = small_tree(&root);
    top->parent_color &= ~(uintptr_t)1; /* red root */
    assert_int_equal(rb_validate(&root), -1);

    top = small_tree(&root);
    top->parent_color |= (uintptr_t)&gaps[6].rb; /* root with a parent */
    assert_int_equal(rb_validate(&root), -1);

    small_tree(&root);
    leaf = rb_first(&root);
    leaf->parent_color ^= 1; /* black height, or red below red */
    assert_int_equal(rb_validate(&root), -1);

    top = small_tree(&root);
    rb_last(&root)->parent_color = (uintptr_t)top | (rb_last(&root)->parent_color & 1);
    assert_int_equal(rb_validate(&root), -1); /* parent link of another node */

    top = small_tree(&root);
    top->left = top->right; /* one child twice */
    assert_int_equal(rb_validate(&root), -1);

    small_tree(&root);
    rb_last(&root)->right = root.node; /* a cycle: must end */
    assert_int_equal(rb_validate(&root), -1);

    top = small_tree(&root);
    top->left = NULL; /* a lost subtree: the other side is higher */
    assert_int_equal(rb_validate(&root), -1);

    /* fewer black nodes on a path than on the first: a black root, a black and a red child */
    small_tree(&root);
    while (rb_validate(&root) > 3)
        rb_erase(&root, rb_last(&root), NULL);
    assert_int_equal(rb_validate(&root), 3);
    root.node->left->parent_color |= 1;
    root.node->right->parent_color &= ~(uintptr_t)1;
    assert_int_equal(rb_validate(&root), -1);
    root.node->right->parent_color |= 1;
    assert_int_equal(rb_validate(&root), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_tree),
        cmocka_unit_test(augmented_max),
        cmocka_unit_test(augmented_count),
        cmocka_unit_test(all_orders),
        cmocka_unit_test(propagation_stops_early),
        cmocka_unit_test(height_is_bounded),
        cmocka_unit_test(validation_finds_damage),
    };
    return cmocka_run_group_tests_name("rbtree", tests, NULL, NULL);
}
