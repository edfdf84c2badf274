/*
 * rbtree.h: intrusive red-black tree with optional augmentation.
 *
 * The caller searches and links (rb_link), the library balances. With augmentation the caller gives
 * a callback that recomputes one node's summary from its own value and its children's; the library
 * calls it for every node whose subtree changed, bottom up. Not synchronised.
 * Source: Cormen et al., Introduction to Algorithms, chapters 13 (balancing) and 14 (augmenting).
 */
#ifndef LIB_RBTREE_H
#define LIB_RBTREE_H

#include "lib/base.h"

struct rb_node {
    uintptr_t parent_color; /* parent pointer, bit 0: black */
    struct rb_node *left, *right;
};

struct rb_root {
    struct rb_node *node;
};

/* Recomputes n's summary from n and n->left, n->right. Returns true if the summary changed, so
 * that the walk to the root can stop early. The summary must follow from which nodes the subtree
 * holds and their order (a maximum, a count, a sum), not from its shape. */
typedef bool (*rb_augment_fn)(struct rb_node *n);

/* Puts n at *link below parent, red, without balancing. */
static inline void rb_link(struct rb_node *n, struct rb_node *parent, struct rb_node **link)
{
    n->parent_color = (uintptr_t)parent;
    n->left = n->right = NULL;
    *link = n;
}
static inline struct rb_node *rb_parent(const struct rb_node *n)
{
    return (struct rb_node *)(n->parent_color & ~(uintptr_t)1);
}

/* Balances after rb_link. `augment` may be NULL. */
void rb_insert_fixup(struct rb_root *root, struct rb_node *n, rb_augment_fn augment);
/* Takes n out and balances. `augment` may be NULL. */
void rb_erase(struct rb_root *root, struct rb_node *n, rb_augment_fn augment);
/* Recomputes the summaries from n up to the root, stopping where nothing changes. */
void rb_propagate(struct rb_node *n, rb_augment_fn augment);

struct rb_node *rb_first(const struct rb_root *root);
struct rb_node *rb_last(const struct rb_root *root);
struct rb_node *rb_next(const struct rb_node *n);
struct rb_node *rb_prev(const struct rb_node *n);

/* Validates colours, black height, parent links. Returns the number of nodes, or -1. For tests and
 * selfcheck(). */
long rb_validate(const struct rb_root *root);

#define rb_entry(p, t, m) CONTAINER_OF(p, t, m)

#endif
