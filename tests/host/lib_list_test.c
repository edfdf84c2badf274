/*
 * lib_list_test.c: random operations on three lists against arrays; after each, both directions
 * must agree with the array.
 */
#include "tests/host/testlib.h"
#include <string.h>
#include "lib/list.h"

#define LISTS 3
#define ITEMS 24

struct item {
    int value;
    struct list_head link;
};

struct model {
    struct list_head head[LISTS];
    struct item *order[LISTS][ITEMS];
    unsigned n[LISTS];
};

static void check(const struct model *m)
{
    for (unsigned l = 0; l < LISTS; l++) {
        const struct item *it;
        unsigned i = 0;

        assert_int_equal(list_empty(&m->head[l]), m->n[l] == 0);
        list_for_each_entry (it, &m->head[l], link) {
            assert_true(i < m->n[l]);
            assert_ptr_equal(it, m->order[l][i]);
            assert_ptr_equal(it->link.next->prev, &it->link);
            i++;
        }
        assert_int_equal(i, m->n[l]);
        for (const struct list_head *p = m->head[l].prev; p != &m->head[l]; p = p->prev)
            assert_ptr_equal(list_entry(p, struct item, link), m->order[l][--i]);
        assert_int_equal(i, 0);
        if (m->n[l]) {
            assert_ptr_equal(list_first_entry(&m->head[l], struct item, link), m->order[l][0]);
            assert_ptr_equal(list_last_entry(&m->head[l], struct item, link),
                             m->order[l][m->n[l] - 1]);
        }
    }
}

static void insert_at(struct model *m, unsigned l, unsigned pos, struct item *it)
{
    memmove(&m->order[l][pos + 1], &m->order[l][pos], (m->n[l] - pos) * sizeof(it));
    m->order[l][pos] = it;
    m->n[l]++;
}

static struct item *remove_at(struct model *m, unsigned l, unsigned pos)
{
    struct item *it = m->order[l][pos];

    m->n[l]--;
    memmove(&m->order[l][pos], &m->order[l][pos + 1], (m->n[l] - pos) * sizeof(it));
    return it;
}

static void random_operations(void **state)
{
    static struct item items[ITEMS];
    struct item *spare[ITEMS];
    struct model m = {.n = {0}};
    struct rng r = test_rng(1);
    unsigned spares = ITEMS;

    (void)state;
    for (unsigned l = 0; l < LISTS; l++)
        list_init(&m.head[l]);
    for (unsigned i = 0; i < ITEMS; i++)
        spare[i] = &items[i];
    for (int round = 0; round < 20000; round++) {
        unsigned l = (unsigned)rng_below(&r, LISTS), to = (l + 1) % LISTS;
        switch (rng_below(&r, 8)) {
        case 0:
        case 1:
            if (spares) {
                insert_at(&m, l, 0, spare[--spares]);
                list_add(&spare[spares]->link, &m.head[l]);
            }
            break;
        case 2:
        case 3:
            if (spares) {
                insert_at(&m, l, m.n[l], spare[--spares]);
                list_add_tail(&spare[spares]->link, &m.head[l]);
            }
            break;
        case 4:
        case 5:
            if (m.n[l]) {
                struct item *it = remove_at(&m, l, (unsigned)rng_below(&r, m.n[l]));
                list_del_init(&it->link);
                assert_true(list_empty(&it->link));
                spare[spares++] = it;
            }
            break;
        case 6:
            for (unsigned i = 0; i < m.n[l]; i++)
                m.order[to][m.n[to]++] = m.order[l][i];
            m.n[l] = 0;
            list_splice_tail_init(&m.head[l], &m.head[to]);
            break;
        case 7: /* empties a list while walking it */
            if (rng_below(&r, 4) == 0) {
                struct item *it, *tmp;
                list_for_each_entry_safe (it, tmp, &m.head[l], link) {
                    list_del(&it->link);
                    spare[spares++] = it;
                }
                list_init(&m.head[l]);
                m.n[l] = 0;
            }
            break;
        }
        check(&m);
    }
}

static void static_head(void **state)
{
    struct list_head h = LIST_HEAD_INIT(h);

    (void)state;
    assert_true(list_empty(&h));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations),
        cmocka_unit_test(static_head),
    };
    return cmocka_run_group_tests_name("list", tests, NULL, NULL);
}
