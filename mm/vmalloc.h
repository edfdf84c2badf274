/*
 * vmalloc.h: kernel addresses: allocate, map, unmap, look up. Names and meaning are Linux's; where
 * they are narrower or wider, the comment says so.
 *
 * Unless said otherwise: sizes in bytes, counts in pages; legal in task and interrupt context, with
 * interrupts on or off, not in NMI, not with a spinlock held; before vmap_init() every call fails
 * cleanly (NULL, 0, false). Failures print one rate-limited line and change nothing.
 */
#ifndef MM_VMALLOC_H
#define MM_VMALLOC_H

#include <arch/page.h>
#include <arch/pte.h>

/* vm_flags: what a caller may ask for. */
#define VM_MAP_PUT_PAGES BIT(0) /* vmap: vfree() also frees the pages */
#define VM_NO_GUARD      BIT(1) /* no guard page behind the area */
#define VM_HUGE          BIT(2) /* 2 MiB leaves where size and alignment allow */
#define VM_ZERO          BIT(3) /* pages are cleared */
#define VM_EXEC          BIT(4) /* executable and not writable */
#define VM_READONLY      BIT(5)
#define VM_PERMANENT     BIT(6) /* survives vmap_exit(), vmap_init(): the kernel's stacks, MMIO */
#define VM_FLAGS_PUBLIC  (BIT(7) - 1)

#define VM_ANY_NODE (-1)

enum vm_kind {
    VM_KIND_NONE,
    VM_KIND_ALLOC,
    VM_KIND_MAP,
    VM_KIND_RAM,
    VM_KIND_IOREMAP,
    VM_KIND_PCPU
};

struct vm_area_info {
    void *start;
    size_t size; /* bytes, without the guard */
    enum vm_kind kind;
    void *caller; /* return address of who allocated it */
};

/* `size` bytes of separate frames mapped side by side; contents undefined. NULL: size 0, more than
 * physical memory, no frames or no addresses. */
void *vmalloc(size_t size);
void *vzalloc(size_t size);
void *vmalloc_node(size_t size, int node);
/* 2 MiB leaves where size and alignment allow; falls back to 4 KiB as a whole. */
void *vmalloc_huge(size_t size);
/* align: power of two, else NULL; below PAGE_SIZE counts as PAGE_SIZE. */
void *__vmalloc(size_t size, size_t align, unsigned vm_flags, int node);
/* Shrinks in place (tail pages are given back), grows by copying. p NULL = vmalloc; size 0 = vfree
 * and NULL. On failure NULL, and p stays as it was. */
void *vrealloc(const void *p, size_t size);
/* p exactly as returned by vmalloc and its kin, or by vmap with VM_MAP_PUT_PAGES; NULL is a no-op.
 * Anything else is reported with the caller, counted in bad_free, and changes nothing. */
void vfree(const void *p);

/* Maps the caller's pages side by side. Writable and executable together is refused. */
void *vmap(struct page **pages, unsigned count, unsigned vm_flags, pgprot_t prot);
void vunmap(const void *p);
/* vmap for short-lived mappings from per-CPU blocks, no guard: up to 64 pages, with blocks=all up
 * to 128; larger ones become areas. */
void *vm_map_ram(struct page **pages, unsigned count, int node);
/* count must be that of vm_map_ram. */
void vm_unmap_ram(const void *p, unsigned count);
/* On return no TLB holds a translation of anything unmapped before the call. */
void vm_unmap_aliases(void);

/* Copies n bytes at addr, clipped at the end of the vmap range; zeros for holes, guards, freed
 * parts and MMIO. Returns the bytes written, 0 if no live area intersects. Never faults. */
size_t vread(void *dst, const void *addr, size_t n);
struct vread_sink {
    /* Takes n bytes at data, NULL: n zero bytes. Returns how many it took; fewer than n ends it. No
     * lock is held; it may allocate and be slow. */
    size_t (*write)(struct vread_sink *s, const void *data, size_t n);
};
size_t vread_iter(struct vread_sink *to, const void *addr, size_t n);

/* Sizes up to KMALLOC_MAX from object caches, else vmalloc. */
void *kvmalloc(size_t size);
void kvfree(const void *p);
/* Frees p later, on this CPU and in task context: when 64 wait, at the next vmalloc or vfree here,
 * or in vm_unmap_aliases. p stays mapped until then; its first 8 bytes are overwritten. Cannot
 * fail. */
void kvfree_deferred(const void *p);

/* One line: what addr is. Any context that may print; takes locks only by trying. */
void vmalloc_dump_obj(const void *addr);
struct vmap_purge_notifier {
    struct vmap_purge_notifier *next;
    /* Addresses run short: give back what you can; returns pages released. Task context, no lock
     * held. */
    unsigned long (*purge)(struct vmap_purge_notifier *n);
};
int register_vmap_purge_notifier(struct vmap_purge_notifier *n);
int unregister_vmap_purge_notifier(struct vmap_purge_notifier *n);

/* True and *out filled for every byte of a live area's pages, guard excluded. With index=table
 * wait-free and legal in NMI; with index=tree it takes the tree's lock, and is not. */
bool find_vm_area(const void *addr, struct vm_area_info *out);
/* Address arithmetic only: does it lie in the vmap range. */
bool is_vmalloc_addr(const void *addr);
/* By the page tables, 2 MiB leaves included; NULL or 0 if nothing is mapped there. Any context. */
struct page *vmalloc_to_page(const void *addr);
unsigned long vmalloc_to_pfn(const void *addr);

/* pa need not be aligned; the result has the same offset in its page. RAM in use is refused. */
void *ioremap(phys_addr_t pa, size_t size, enum cache_mode mode);
void iounmap(void *p);

/*
 * n areas at one base: area i is [base + offsets[i], + sizes[i]), base aligned to `align`; offsets
 * and sizes are multiples of align (a power of two at least PAGE_SIZE), areas do not overlap.
 * Searched from the top down. Nothing is mapped. Returns an array of n areas (free with
 * pcpu_free_vm_areas), or NULL.
 */
struct vm_area;
struct vm_area **pcpu_get_vm_areas(const size_t *offsets, const size_t *sizes, int n, size_t align);
void pcpu_free_vm_areas(struct vm_area **areas, int n);
/* Base address of an area, and mapping of pages into part of it (page-aligned, whole pages). */
void *vm_area_start(const struct vm_area *area);
err_t vm_area_map_pages(struct vm_area *area, size_t offset, struct page **pages, unsigned count);
void vm_area_unmap_pages(struct vm_area *area, size_t offset, unsigned count);

#endif
