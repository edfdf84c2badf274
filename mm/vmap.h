/*
 * vmap.h: starting, stopping, configuring and looking into the vmap allocator as a whole. The API
 * for users is vmalloc.h.
 */
#ifndef MM_VMAP_H
#define MM_VMAP_H

#include "lib/base.h"

enum vmap_design { DESIGN_2010, DESIGN_2023, DESIGN_2024, DESIGN_METALMAP, DESIGNS };
enum vmap_lock { LOCK_AUTO, LOCK_TAS, LOCK_TICKET, LOCK_MCS, LOCK_RW, LOCK_RWSPIN };

/* All that distinguishes the designs; constant between vmap_init() and vmap_exit(). Booleans are
 * named after the value of their option that is not that of Linux in 2024. */
struct vmap_config {
    unsigned design;     /* enum vmap_design: only names the preset */
    uint64_t range_size; /* bytes of addresses, multiple of 2 MiB */
    unsigned nodes;
    uint64_t lazy_max; /* pages; 0: auto */
    unsigned lock;     /* enum vmap_lock: of the busy trees */
    bool blocks_all;   /* small areas come from per-CPU blocks; else vm_map_ram's only */
    bool index_table;  /* lookups by the wait-free table, areas are whole 2 MiB units; else by the
                          busy trees */
    bool flush_gen;    /* addresses come back by flush generations; else by interrupts */
    bool pools;
    bool search_walk;    /* free addresses are the gaps between areas, freed ones included */
    bool insert_twice;   /* an area goes into its busy tree when it has addresses, and is described
                            later */
    bool vbindex_global; /* one index of vm_map_ram's blocks; else one for each CPU */
    bool purge_eager;    /* every free flushes */
    bool frames_safe;    /* frames of freed areas wait for the flush */
};
extern struct vmap_config vmap_config;        /* in force */
extern const char *const vmap_design_names[]; /* "2010", …, NULL */

/* Value of the option design=, enum vmap_design. */
unsigned vmap_design_wanted(void);
/* Fills c with a design's preset and the options given on the command line. False and a line in msg
 * if the combination is refused. */
bool vmap_config_for(struct vmap_config *c, unsigned design, char *msg, size_t msg_size);
/* Why c cannot be, or NULL. vmap_init() fails with ERR_INVAL where this has something to say. */
const char *vmap_config_refused(const struct vmap_config *c);
/* All of c as options, "design=2010 nodes=1 ...". */
void vmap_config_print(const struct vmap_config *c, char *text, size_t size);
/* Builds the allocator. Boot CPU, other CPUs idle. Permanent areas of an earlier run are taken
 * over. */
err_t vmap_init(const struct vmap_config *c);
/* Takes it down to nothing; every area but the permanent ones must be free. False (and lines) if
 * something was left. */
bool vmap_exit(void);
/* Per-CPU part, once a CPU is online with its final number. */
err_t vmap_cpu_init(unsigned cpu);

/* The values of the `# counter` line. */
struct vmap_counters {
    uint64_t free_pages, pt_pages, va_used /* bytes */, lazy_pages, lazy_limit, purges, tlb_full,
        tlb_range, tlb_ipis, vmap_areas, vmap_blocks, alloc_fail, bad_free, lock_contended,
        pool_hit, pool_miss;
};
void vmap_read_counters(struct vmap_counters *c);
/* Calls fn with each counter's name and value, in the order of the line. */
void vmap_for_each_counter(void (*fn)(const char *name, uint64_t value, void *arg), void *arg);

/* Validates every structure of mm/ that is up: trees, lists, bitmaps, page tables against areas,
 * sums. Prints what is wrong. Only when no other CPU is inside mm. */
bool vmap_selfcheck(void);
/* One line per area in the format of /proc/vmallocinfo, through fn. */
void vmap_info(void (*fn)(const char *line, void *arg), void *arg);
/* Purges everything that waits, empties pools and per-CPU blocks, drains per-CPU caches of this
 * CPU: the state for leak checks. Other CPUs' caches: call on each CPU. */
void vmap_quiesce(void);

/* For tests. */
void vmap_force_purge(void);     /* one purge now, whatever the limit */
uint64_t vmap_tree_visits(void); /* nodes visited by searches since start, this CPU's */
/* Page-table pages fail, as by page_alloc_inject(). */
void vmap_inject_pt(uint64_t after, uint64_t count);
struct vmap_purge_report {
    uint64_t areas, pages; /* of the last purge */
    uint64_t cycles;
    uint64_t worst_cycles; /* longest since start */
    uint64_t locked_worst; /* longest time one lock was held by a purge, cycles */
};
void vmap_last_purge(struct vmap_purge_report *r);
/* Pool lengths of size `pages` over all nodes. */
uint64_t vmap_pool_len(unsigned pages);

#endif
