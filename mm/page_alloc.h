/*
 * page_alloc.h: frames. A buddy allocator (orders 0..10) with per-CPU lists of single pages.
 *
 * All functions are legal in any context but NMI, unless said otherwise. A page given out has
 * undefined contents. Source of the scheme: Knuth, TAOCP 1, 2.5 (buddies); Linux mm/page_alloc.c's
 * per-CPU lists with batches.
 */
#ifndef MM_PAGE_ALLOC_H
#define MM_PAGE_ALLOC_H

#include <arch/page.h>

#define PAGE_MAX_ORDER 10 /* 4 MiB */
#define PAGE_ANY_NODE  (-1)

/* Takes all MEM_USABLE ranges (and MEM_BOOT_RECLAIM if `use_boot_services`); the struct page array
 * for them is mapped and zero. One call, boot CPU. */
struct mem_range;
void page_alloc_init(const struct mem_range *map, size_t count, bool use_boot_services);
/* Prepares the lists of CPU `cpu`, on that CPU or before it runs. CPU 0 is done by page_alloc_init.
 */
err_t page_alloc_cpu_init(unsigned cpu);

/* The node whose memory CPU `cpu` prefers (0 until told). While that CPU does not allocate. */
void page_alloc_set_home(unsigned cpu, unsigned node);

/*
 * 2^order contiguous pages, aligned to their size. NULL when there are none: pages in other CPUs'
 * lists (at most 1/16 of memory, or 16 a CPU if that is more) are asked back, but not waited for.
 * Freeing twice, a page inside of a block, with another order than it was allocated with, or (debug
 * builds) a page that is still mapped is reported, counted, and changes nothing.
 */
struct page *alloc_pages(unsigned order);
void free_pages(struct page *page, unsigned order);
struct page *alloc_page(void);
void free_page(struct page *page);
/* Prefers memory of the NUMA node (PAGE_ANY_NODE: no preference), takes others when it is out. */
struct page *alloc_pages_node(unsigned order, int node);

/* Single pages, up to `n`, into out[]; returns how many. Fewer than n means out of memory, and what
 * was got stays the caller's. */
unsigned page_alloc_bulk(struct page **out, unsigned n, int node);
void page_free_bulk(struct page **pages, unsigned n);
/* One block of 2^order pages becomes 2^order single pages that are freed one by one. */
void page_split(struct page *page, unsigned order);

/* Zeroed page, through the direct map. */
struct page *alloc_page_zeroed(void);

/* Pages under management and pages free now (per-CPU lists included; exact when nobody allocates).
 */
uint64_t page_total(void);
uint64_t page_free_count(void);
/* Highest node with memory, plus 1. */
unsigned page_nodes(void);
/* Frees that were refused, and free pages found damaged (debug builds), since page_alloc_init(). */
uint64_t page_bad_frees(void);
uint64_t page_damaged(void);
/* Gives the per-CPU lists of this CPU back to the buddy lists. */
void page_drain_local(void);

/* Fault injection: after `after` more successful requests of this kind on any CPU, `count` requests
 * fail (UINT64_MAX: all). Off by default; costs a predicted branch on a read-mostly word. */
void page_alloc_inject(uint64_t after, uint64_t count);

/* Walks everything: lists, orders, buddies merged, flags, counts. True if sound; prints what is
 * not. Only when nobody allocates. */
bool page_alloc_check(void);

/* Frames held by the caller on purpose, for tests: takes free pages until only `leave` are left,
 * and gives them back. Not concurrent. */
void page_hog(uint64_t leave);
void page_unhog(void);

#endif
