/*
 * driver_internal.h: what the driver's files share.
 */
#ifndef TESTS_HOST_SIM_DRIVER_INTERNAL_H
#define TESTS_HOST_SIM_DRIVER_INTERNAL_H

#include "lib/rbtree.h"
#include "mm/vmalloc.h"
#include "tests/host/sim/driver.h"

#define POOL_FRAMES 80 /* that a CPU maps again and again; more than a block's largest mapping */
#define IRQ_SLOTS   3

enum area_type {
    AREA_NONE,
    AREA_ALLOC,
    AREA_MAP,
    AREA_PUT,
    AREA_RAM,
    AREA_IO,
    AREA_PCPU,
    AREA_SMALL
};

struct area {
    enum area_type type;
    uintptr_t va;    /* as returned */
    size_t size;     /* bytes that were asked for */
    size_t reserved; /* bytes of addresses from va's page on, guard included */
    unsigned pages;
    unsigned flags; /* VM_* */
    bool writable, guard;
    uint64_t cookie;       /* each page's first word is cookie + its number */
    struct page **frames;  /* that it must map; NULL: its own */
    phys_addr_t pa;        /* AREA_IO */
    struct vm_area **pcpu; /* AREA_PCPU: one area */
    unsigned mapped;       /* AREA_PCPU: pages mapped from its start */
    bool dirty;            /* AREA_PCPU: unmapped pages may be stale */
    struct rb_node rb;
};

/* One CPU's task, or its interrupt handler. */
struct actor {
    unsigned cpu;
    bool handler;
    struct rng rng, nmi_rng;
    unsigned slot_count;
    bool changing; /* an area of a slot is just being resized */
    struct area slots[DRIVER_SLOTS];
    struct page *pool[POOL_FRAMES];
    uint64_t operations, failed_calls, bad_calls, verified_pages;
};

extern const struct driver_plan *plan;
extern struct actor *actors, *handlers; /* one each per CPU */

/* driver.c */
uint64_t choose(struct actor *a, uint64_t n); /* [0, n) */
bool choices_left(void);
bool chance(struct actor *a, unsigned one_in);
void call_failed(struct actor *a, const char *what);

/* driver_model.c */
void model_reset(void);
void model_insert(struct area *area);
void model_remove(struct area *area);
/* Fills the pages of a fresh area, checks where it lies, and enters it. */
void area_begin(struct actor *a, struct area *area);
/* Every check there is of a live area; `deep`: all pages. */
void area_verify(struct actor *a, struct area *area, bool deep);
void area_fill(struct area *area, unsigned from, unsigned to);
/* What page number `page` holds at each of word_offsets. */
uint64_t area_word(const struct area *area, unsigned page);
#define PAGE_WORDS 3
extern const uint16_t word_offsets[PAGE_WORDS];
void frame_mark(struct page *page, uint64_t word);
bool frame_holds(struct page *page, uint64_t word);

/* driver_ops.c */
void op_any(struct actor *a);
void op_in_handler(struct actor *a);
void op_in_nmi(struct actor *a);
void op_free(struct actor *a, struct area *area);
void op_take_mail(struct actor *a);
void op_reset(void);

#endif
