/*
 * memrange_model.c: see memrange_model.h. The model cuts the address space at every end point of
 * every range, and asks for each piece which of the given ranges is the strongest there.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/host/memrange_model.h"

struct model {
    struct mem_range piece[2 * MODEL_MAX];
    size_t n;
};

static bool valid(const struct mem_range *r)
{
    return r->size && r->base + r->size > r->base;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static const struct mem_range *strongest_at(const struct mem_range *in, size_t n, uint64_t addr)
{
    const struct mem_range *best = NULL;

    for (size_t i = 0; i < n; i++) {
        if (!valid(&in[i]) || addr < in[i].base || addr - in[i].base >= in[i].size)
            continue;
        if (!best || in[i].kind > best->kind ||
            (in[i].kind == best->kind && in[i].node < best->node))
            best = &in[i];
    }
    return best;
}

/* Pieces in order, those of one sort that touch made one; not yet shrunk to pages. */
static void model_cut(struct model *m, const struct mem_range *in, size_t n)
{
    uint64_t point[2 * MODEL_MAX];
    size_t points = 0;

    m->n = 0;
    for (size_t i = 0; i < n; i++) {
        if (valid(&in[i])) {
            point[points++] = in[i].base;
            point[points++] = in[i].base + in[i].size;
        }
    }
    qsort(point, points, sizeof(point[0]), compare);
    for (size_t i = 0; i + 1 < points; i++) {
        const struct mem_range *owner = strongest_at(in, n, point[i]);
        struct mem_range *last = m->n ? &m->piece[m->n - 1] : NULL;
        uint64_t size = point[i + 1] - point[i];

        if (!owner || size == 0)
            continue;
        if (last && last->base + last->size == point[i] && last->kind == owner->kind &&
            last->node == owner->node)
            last->size += size;
        else
            m->piece[m->n++] = (struct mem_range){point[i], size, owner->kind, owner->node};
    }
}

static void model_shrink(struct model *m)
{
    size_t kept = 0;

    for (size_t i = 0; i < m->n; i++) {
        struct mem_range r = m->piece[i];

        if (r.kind == MEM_USABLE || r.kind == MEM_BOOT_RECLAIM) {
            uint64_t first = r.base / 4096 + (r.base % 4096 != 0);
            uint64_t last = (r.base + r.size) / 4096;
            if (first == 0)
                first = 1;
            if (first >= last)
                continue;
            r.base = first * 4096;
            r.size = (last - first) * 4096;
        }
        m->piece[kept++] = r;
    }
    m->n = kept;
}

static void print_list(const char *title, const struct mem_range *r, size_t n)
{
    fprintf(stderr, "%s:\n", title);
    for (size_t i = 0; i < n; i++)
        fprintf(stderr, "  %#" PRIx64 " +%#" PRIx64 " %s node %u\n", r[i].base, r[i].size,
                memrange_kind_name(r[i].kind), r[i].node);
}

static bool same_list(const struct mem_range *r, size_t n, const struct model *m)
{
    if (n != m->n)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (r[i].base != m->piece[i].base || r[i].size != m->piece[i].size ||
            r[i].kind != m->piece[i].kind || r[i].node != m->piece[i].node)
            return false;
    }
    return true;
}

/* With too little room pieces may be missing, but what is there must be in order and of the kind
 * that the model has in all of it. */
static bool nothing_wrong(const struct mem_range *r, size_t n, const struct model *cut)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t at = r[i].base, end = r[i].base + r[i].size;

        if (end <= at || (i && r[i - 1].base + r[i - 1].size > at))
            return false;
        for (size_t j = 0; j < cut->n && at < end; j++) {
            const struct mem_range *p = &cut->piece[j];
            if (at < p->base || at - p->base >= p->size)
                continue;
            if (p->kind != r[i].kind)
                return false;
            at = p->base + p->size;
        }
        if (at < end)
            return false;
        if ((r[i].kind == MEM_USABLE || r[i].kind == MEM_BOOT_RECLAIM) &&
            (r[i].base == 0 || r[i].base % 4096 || r[i].size % 4096))
            return false;
    }
    return true;
}

/* Ranges stronger than usable need at most 2 k - 1 entries themselves: if that much room was there,
 * each of them must be in the result, whole. */
static bool strong_ones_kept(const struct mem_range *in, size_t n_in, const struct mem_range *r,
                             size_t n, const struct model *m, size_t room)
{
    size_t strong = 0, j = 0;

    for (size_t i = 0; i < n_in; i++)
        strong += in[i].kind > MEM_USABLE;
    if (2 * strong > room + 1)
        return true;
    for (size_t i = 0; i < m->n; i++) {
        if (m->piece[i].kind <= MEM_USABLE)
            continue;
        while (j < n && r[j].kind <= MEM_USABLE)
            j++;
        if (j == n || memcmp(&r[j++], &m->piece[i], sizeof(r[0])) != 0)
            return false;
    }
    return true;
}

bool memrange_compare(const struct mem_range *in, size_t n, size_t cap)
{
    struct model cut, whole;
    size_t room = cap ? MAX(cap, n) : MAX(2 * n, (size_t)1);
    struct mem_range *r = malloc(room * sizeof(*r)); /* exact, so that ASan sees an overrun */
    bool ok;

    memcpy(r, in, n * sizeof(*r));
    size_t got = memrange_sanitise(r, n, room);
    model_cut(&cut, in, n);
    whole = cut;
    model_shrink(&whole);
    if (got > room)
        ok = false;
    else if (2 * n <= room + 1)
        ok = same_list(r, got, &whole);
    else
        ok = nothing_wrong(r, got, &cut) && strong_ones_kept(in, n, r, got, &whole, room);
    for (uint32_t kind = 0; ok && kind <= MEM_KIND_COUNT; kind++) {
        uint64_t total = 0;
        for (size_t i = 0; i < got; i++)
            total += r[i].kind == kind ? r[i].size : 0;
        ok = memrange_total(r, got, (enum mem_kind)kind) == total;
    }
    if (!ok) {
        print_list("given", in, n);
        print_list("got", r, MIN(got, room));
        print_list("should be", whole.piece, whole.n);
        fprintf(stderr, "room for %zu\n", room);
    }
    free(r);
    return ok;
}

size_t memrange_from_bytes(const uint8_t *data, size_t n, struct mem_range *out)
{
    /* Mostly page-like steps in a small space, so that ends meet; some odd, huge or wrapping. */
    static const uint64_t unit[] = {0x1000, 0x1000, 0x800, 1, 0x10000000000ULL, 0x1234};
    size_t count = 0;

    for (; n >= 5 && count < MODEL_MAX; n -= 5, data += 5) {
        uint64_t u = unit[data[0] % ARRAY_SIZE(unit)];
        struct mem_range *r = &out[count++];

        r->base = data[1] % 48 * u;
        r->size = data[2] % 24 * u;
        r->kind = data[3] % (MEM_KIND_COUNT + 1);
        r->node = data[3] / 64;
        if (data[4] > 250)
            r->base = 0 - r->base;
        else if (data[4] > 248)
            r->size = 0 - r->size;
        else if (data[4] > 235)
            r->base += data[4];
        else if (data[4] > 200)
            r->kind = MEM_USABLE;
    }
    return count;
}
