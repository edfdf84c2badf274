/*
 * rbtree.c: red-black tree with augmentation.
 *
 * Missing children are black; the root is black; a red node has no red child; every path from a
 * node down has the same number of black nodes. Callers lock.
 *
 * Summaries: first every ancestor of the changed place is recomputed, as long as something changes;
 * then a rotation recomputes only its two nodes, because the subtree that it turns holds the same
 * nodes before and after, so its top's summary, and everything above, stays right.
 * The public functions call one inlined body twice, so that plain trees never test for a callback.
 */
#include "lib/rbtree.h"

#define BLACK ((uintptr_t)1)

static __always_inline bool is_red(const struct rb_node *n)
{
    return n && !(n->parent_color & BLACK);
}

static __always_inline void set_parent(struct rb_node *n, struct rb_node *parent)
{
    n->parent_color = (uintptr_t)parent | (n->parent_color & BLACK);
}

/* Puts `new` (or nothing) where `old` hangs below `parent`, or at the root. */
static __always_inline void replace_child(struct rb_root *root, struct rb_node *parent,
                                          const struct rb_node *old, struct rb_node *new)
{
    if (!parent)
        root->node = new;
    else if (parent->left == old)
        parent->left = new;
    else
        parent->right = new;
}

/* Turns the edge between n and its right (left) child; the child comes up. Colours stay. */
static __always_inline void rotate_left(struct rb_root *root, struct rb_node *n,
                                        rb_augment_fn augment)
{
    struct rb_node *up = n->right, *parent = rb_parent(n);

    n->right = up->left;
    if (n->right)
        set_parent(n->right, n);
    up->left = n;
    set_parent(up, parent);
    replace_child(root, parent, n, up);
    set_parent(n, up);
    if (augment) {
        augment(n);
        augment(up);
    }
}

static __always_inline void rotate_right(struct rb_root *root, struct rb_node *n,
                                         rb_augment_fn augment)
{
    struct rb_node *up = n->left, *parent = rb_parent(n);

    n->left = up->right;
    if (n->left)
        set_parent(n->left, n);
    up->right = n;
    set_parent(up, parent);
    replace_child(root, parent, n, up);
    set_parent(n, up);
    if (augment) {
        augment(n);
        augment(up);
    }
}

static __always_inline void insert_fixup(struct rb_root *root, struct rb_node *n,
                                         rb_augment_fn augment)
{
    struct rb_node *parent;

    while ((parent = rb_parent(n)) && is_red(parent)) {
        /* A red parent is not the root, so there is a grandparent, and it is black. */
        struct rb_node *grand = rb_parent(parent);
        bool left = parent == grand->left;
        struct rb_node *uncle = left ? grand->right : grand->left;

        if (is_red(uncle)) {
            parent->parent_color |= BLACK;
            uncle->parent_color |= BLACK;
            grand->parent_color &= ~BLACK;
            n = grand;
            continue;
        }
        if (left) {
            if (n == parent->right) {
                rotate_left(root, parent, augment);
                parent = n;
            }
            rotate_right(root, grand, augment);
        } else {
            if (n == parent->left) {
                rotate_right(root, parent, augment);
                parent = n;
            }
            rotate_left(root, grand, augment);
        }
        parent->parent_color |= BLACK;
        grand->parent_color &= ~BLACK;
        return;
    }
    root->node->parent_color |= BLACK;
}

/* The subtree n below `parent` (n may be missing) lacks one black node on each path. */
static __always_inline void erase_fixup(struct rb_root *root, struct rb_node *n,
                                        struct rb_node *parent, rb_augment_fn augment)
{
    while (parent && !is_red(n)) {
        bool left = n == parent->left;
        /* The sibling exists: its side has at least one black node more than n's. */
        struct rb_node *sibling = left ? parent->right : parent->left;

        if (is_red(sibling)) {
            sibling->parent_color |= BLACK;
            parent->parent_color &= ~BLACK;
            if (left) {
                rotate_left(root, parent, augment);
                sibling = parent->right;
            } else {
                rotate_right(root, parent, augment);
                sibling = parent->left;
            }
        }
        if (!is_red(sibling->left) && !is_red(sibling->right)) {
            sibling->parent_color &= ~BLACK;
            n = parent;
            parent = rb_parent(n);
            continue;
        }
        if (left) {
            if (!is_red(sibling->right)) {
                rotate_right(root, sibling, augment);
                sibling = parent->right;
            }
            sibling->right->parent_color |= BLACK;
            rotate_left(root, parent, augment);
        } else {
            if (!is_red(sibling->left)) {
                rotate_left(root, sibling, augment);
                sibling = parent->left;
            }
            sibling->left->parent_color |= BLACK;
            rotate_right(root, parent, augment);
        }
        /* The sibling takes the parent's place and colour. */
        sibling->parent_color = (sibling->parent_color & ~BLACK) | (parent->parent_color & BLACK);
        parent->parent_color |= BLACK;
        return;
    }
    if (n)
        n->parent_color |= BLACK;
}

/* Unlinks n, which has two children, putting its successor in its place. Returns where a subtree
 * lacks a node: the child that moved up (or NULL), its parent in *parent; *black says whether the
 * place that vanished was black. */
static __always_inline struct rb_node *unlink_inner(struct rb_root *root, struct rb_node *n,
                                                    struct rb_node **parent, bool *black,
                                                    rb_augment_fn augment)
{
    struct rb_node *next = n->right, *child, *low;

    while (next->left)
        next = next->left;
    child = next->right;
    *black = !is_red(next);
    if (next == n->right) {
        low = next;
    } else {
        low = rb_parent(next);
        low->left = child;
        if (child)
            set_parent(child, low);
        next->right = n->right;
        set_parent(next->right, next);
    }
    next->left = n->left;
    set_parent(next->left, next);
    next->parent_color = n->parent_color;
    replace_child(root, rb_parent(n), n, next);
    if (augment) {
        /* Up to `next` an unchanged summary ends the walk. The summary of `next` is stale, whatever
         * it holds, so it and its parent are recomputed in any case. */
        for (struct rb_node *up = low; up != next && augment(up);)
            up = rb_parent(up);
        augment(next);
        rb_propagate(rb_parent(next), augment);
    }
    *parent = low;
    return child;
}

static __always_inline void erase(struct rb_root *root, struct rb_node *n, rb_augment_fn augment)
{
    struct rb_node *parent, *child;
    bool black;

    if (n->left && n->right) {
        child = unlink_inner(root, n, &parent, &black, augment);
    } else {
        child = n->left ? n->left : n->right;
        parent = rb_parent(n);
        black = !is_red(n);
        replace_child(root, parent, n, child);
        if (child)
            set_parent(child, parent);
        if (augment)
            rb_propagate(parent, augment);
    }
    if (black)
        erase_fixup(root, child, parent, augment);
}

void rb_propagate(struct rb_node *n, rb_augment_fn augment)
{
    while (n && augment(n))
        n = rb_parent(n);
}

void rb_insert_fixup(struct rb_root *root, struct rb_node *n, rb_augment_fn augment)
{
    if (augment) {
        /* n's own summary may happen to hold the right value already; its parent's does not. */
        augment(n);
        rb_propagate(rb_parent(n), augment);
        insert_fixup(root, n, augment);
    } else {
        insert_fixup(root, n, NULL);
    }
}

void rb_erase(struct rb_root *root, struct rb_node *n, rb_augment_fn augment)
{
    if (augment)
        erase(root, n, augment);
    else
        erase(root, n, NULL);
}

struct rb_node *rb_first(const struct rb_root *root)
{
    struct rb_node *n = root->node;

    while (n && n->left)
        n = n->left;
    return n;
}

struct rb_node *rb_last(const struct rb_root *root)
{
    struct rb_node *n = root->node;

    while (n && n->right)
        n = n->right;
    return n;
}

struct rb_node *rb_next(const struct rb_node *n)
{
    struct rb_node *up;

    if (n->right) {
        n = n->right;
        while (n->left)
            n = n->left;
        return (struct rb_node *)(uintptr_t)n;
    }
    while ((up = rb_parent(n)) && n == up->right)
        n = up;
    return up;
}

struct rb_node *rb_prev(const struct rb_node *n)
{
    struct rb_node *up;

    if (n->left) {
        n = n->left;
        while (n->right)
            n = n->right;
        return (struct rb_node *)(uintptr_t)n;
    }
    while ((up = rb_parent(n)) && n == up->left)
        n = up;
    return up;
}

/* What can be seen at n alone: its children point back, are two, and are not red below red. */
static bool node_valid(const struct rb_node *n)
{
    if (n->left && (rb_parent(n->left) != n || n->left == n->right))
        return false;
    if (n->right && rb_parent(n->right) != n)
        return false;
    return !is_red(n) || (!is_red(n->left) && !is_red(n->right));
}

/*
 * Walks down and up by the links alone, without recursion, since the stack is small and a broken
 * tree may be deep. It ends even in a broken tree: a node is entered only from the one parent that
 * it points at, and only once from there.
 */
long rb_validate(const struct rb_root *root)
{
    const struct rb_node *n = root->node, *from = NULL;
    long count = 0, black = 0, expected = -1;

    if (n && (rb_parent(n) || is_red(n)))
        return -1;
    while (n) {
        const struct rb_node *next;

        if (from == rb_parent(n)) { /* entered from above */
            if (!node_valid(n))
                return -1;
            count++;
            black += !is_red(n);
            if (!n->left || !n->right) {
                if (expected < 0)
                    expected = black;
                if (black != expected)
                    return -1;
            }
            next = n->left ? n->left : n->right;
        } else {
            next = from == n->left ? n->right : NULL;
        }
        from = n;
        if (!next) {
            black -= !is_red(n);
            next = rb_parent(n);
        }
        n = next;
    }
    return count;
}
