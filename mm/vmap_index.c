/*
 * vmap_index.c: from an address to the block of vm_map_ram that holds it.
 *
 * vbindex=percpu: one hash table per possible CPU, each under its own lock; which one, follows from
 * the block's number. CPUs are numbered without holes, so every number names a table that exists
 * (case A3). vbindex=global: one table under one lock. A lookup takes the block's lock before it
 * leaves the table's, so an erased block is free of lookups once its lock was had; Linux's lookups
 * go by RCU and take the index's lock only to change it. Source: Linux 6.5 "mm: vmalloc: remove a
 * global vmap_blocks xarray"; before it, one tree since 2.6.28.
 */
#include "lib/assert.h"
#include "lib/string.h"
#include "mm/cache.h"
#include "mm/vmap_internal.h"
#include <arch/smp.h>

#define INDEX_BUCKETS 32

struct block_index {
    struct spinlock lock;
    struct vmap_block *bucket[INDEX_BUCKETS];
} __cacheline;

static struct lock_class index_class = {.name = "vmap_index"};
static struct cache *table_cache;
static struct block_index **tables;
static unsigned table_count;

static struct vmap_block **bucket_of(uintptr_t addr, struct block_index **t)
{
    uint64_t number = addr / BLOCK_SIZE;

    *t = tables[number % table_count];
    return &(*t)->bucket[number / table_count % INDEX_BUCKETS];
}

err_t index_init(void)
{
    unsigned n = vmap_config.vbindex_global ? 1 : smp_cpus_possible();

    if (!table_cache)
        table_cache = cache_create("block_index", sizeof(struct block_index), CACHE_LINE);
    tables = table_cache ? kzalloc(n * sizeof(*tables)) : NULL;
    if (!tables)
        return ERR_NOMEM;
    for (table_count = 0; table_count < n; table_count++) {
        tables[table_count] = cache_alloc(table_cache);
        if (!tables[table_count]) {
            index_exit();
            return ERR_NOMEM;
        }
        memset(tables[table_count], 0, sizeof(struct block_index));
        spin_init(&tables[table_count]->lock, &index_class);
    }
    return OK;
}

void index_exit(void)
{
    for (unsigned i = 0; i < table_count; i++)
        cache_free(table_cache, tables[i]);
    kfree(tables);
    tables = NULL;
    table_count = 0;
}

void index_insert(struct vmap_block *b)
{
    struct block_index *t;
    struct vmap_block **bucket = bucket_of(b->area->start, &t);
    unsigned long flags = spin_lock_irqsave(&t->lock);

    b->hash_next = *bucket;
    *bucket = b;
    spin_unlock_irqrestore(&t->lock, flags);
}

void index_erase(struct vmap_block *b)
{
    struct block_index *t;
    struct vmap_block **p = bucket_of(b->area->start, &t);
    unsigned long flags = spin_lock_irqsave(&t->lock);

    while (*p != b) {
        ASSERT(*p);
        p = &(*p)->hash_next;
    }
    *p = b->hash_next;
    spin_unlock_irqrestore(&t->lock, flags);
}

struct vmap_block *index_lock_block(uintptr_t addr, unsigned long *flags)
{
    struct block_index *t;
    struct vmap_block **bucket = bucket_of(addr, &t), *b;

    *flags = spin_lock_irqsave(&t->lock);
    for (b = *bucket; b; b = b->hash_next)
        if (addr - b->area->start < BLOCK_SIZE)
            break;
    if (b)
        spin_lock(&b->lock);
    spin_unlock(&t->lock);
    if (!b)
        irq_restore(*flags);
    return b;
}
