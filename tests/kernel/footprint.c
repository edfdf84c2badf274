/*
 * footprint.c: what a task needs beside what it holds does not grow, however long it runs: looked
 * at after each repeat (test_repeat_count=), while all workers wait at a gate. What is left after
 * the task is leak.c's.
 *
 * After the first repeat everything has its size. Later on only what depends on the host's time
 * slices may change: a CPU keeps as many empty blocks as wait for a generation at once, all of them
 * at most a 32nd of memory (mm/vmap_pcpu.c); table pages stay in place up to twice as many as there
 * are 2 MiB units in use, and 256 (mm/vmap_purge.c); ready frames up to VMAP_FRAMES_MAX. A single
 * CPU waits for nobody.
 */
#include "mm/cache.h"
#include "mm/page_alloc.h"
#include "mm/vmalloc.h"
#include "mm/vmap.h"
#include "tests/kernel/runner.h"
#include <arch/smp.h>

#define GROWTH       10   /* a tenth of what there was */
#define SLACK_BLOCKS 16   /* of one CPU: as many as holes may cost on top */
#define SLACK_TABLES 256  /* of several: on top of twice the blocks */
#define READY_FRAMES 1024 /* of a CPU: VMAP_FRAMES_MAX */
#define BLOCK_OWN    2    /* pages of a block: table, slots */
#define BLOCK_CACHED 8    /* descriptions of block and area that fit into a page, at least */

void footprint_read(struct footprint *f, uint64_t held)
{
    vmap_read_counters(&f->c);
    f->used_pages = page_total() - f->c.free_pages - held;
    f->cache_pages = cache_pages();
    f->cache_objects = cache_objects();
}

void footprint_note(const char *test, const char *when, const struct footprint *f)
{
    kt_note("test=%s footprint=%s used_pages=%lu pt_pages=%lu va_used=%lu vmap_blocks=%lu "
            "vmap_areas=%lu lazy_pages=%lu cache_pages=%lu cache_objects=%lu",
            test, when, (unsigned long)f->used_pages, (unsigned long)f->c.pt_pages,
            (unsigned long)f->c.va_used, (unsigned long)f->c.vmap_blocks,
            (unsigned long)f->c.vmap_areas, (unsigned long)f->c.lazy_pages,
            (unsigned long)f->cache_pages, (unsigned long)f->cache_objects);
}

static uint64_t slack_blocks(void)
{
    return smp_cpus() == 1 ? SLACK_BLOCKS : page_total() / 32 / BLOCK_OWN;
}

static unsigned grown(const char *what, uint64_t from, uint64_t to, uint64_t slack, bool say)
{
    if (to <= from + from / GROWTH + slack)
        return 0;
    if (say)
        KT_FAIL("footprint: %s from %lu to %lu, at most a tenth and %lu more", what,
                (unsigned long)from, (unsigned long)to, (unsigned long)slack);
    return 1;
}

unsigned footprint_grown(const struct footprint *from, const struct footprint *to, bool say)
{
    uint64_t blocks = slack_blocks(), tables = blocks;
    uint64_t cached = blocks / BLOCK_CACHED + 2 * smp_cpus();

    if (smp_cpus() > 1)
        tables = 2 * blocks + SLACK_TABLES;
    return grown("page-table pages", from->c.pt_pages, to->c.pt_pages, tables, say) +
           grown("blocks", from->c.vmap_blocks, to->c.vmap_blocks, blocks, say) +
           grown("2 MiB units of addresses", from->c.va_used / PMD_SIZE, to->c.va_used / PMD_SIZE,
                 blocks, say) +
           grown("pages of object caches", from->cache_pages, to->cache_pages, cached, say) +
           grown("pages beside those held", from->used_pages, to->used_pages,
                 tables + blocks + cached + READY_FRAMES * smp_cpus(), say);
}
