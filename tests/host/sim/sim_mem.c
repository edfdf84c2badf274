/*
 * sim_mem.c: the simulated machine's memory: RAM, the struct page array, per-CPU copies, and the
 * variables of mm/.
 *
 * RAM is one mapping; it starts with a megabyte that is not RAM to mm/ (page 0, and the root
 * table), and with several nodes it has a hole between each two. A new machine finds in it what
 * looks like live entries. The variables of mm/ are put back by copying: the linker script
 * mm_data.ld gathers them.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/bitmap.h"
#include "lib/memrange.h"
#include "tests/host/sim/internal.h"
#include <arch/percpu.h>

#define LOW_MEMORY SZ_1M
#define HOLE       (2 * SZ_1M)
#define NODES_MAX  8

char *sim_ram;
struct page *sim_memmap;

static size_t ram_size, ram_mapped;
static uint64_t *touched; /* bitmap of frames that were given out */
static bool hooks_seen;   /* they are reported; else every frame counts */
static struct mem_range map[NODES_MAX];
static size_t map_count;

/* Bounds of section percpu_vars and of mm's variables; absent where nothing is in them. */
extern char __start_percpu_vars[] __weak, __stop_percpu_vars[] __weak;
extern char sim_mm_data_start[] __weak, sim_mm_data_end[] __weak;
extern char sim_mm_bss_start[] __weak, sim_mm_bss_end[] __weak;

static char *percpu_copies, *mm_data_saved, *mm_bss_saved;
static size_t percpu_bytes;

static void *must_map(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);

    if (p == MAP_FAILED) {
        perror("memory of the simulated machine");
        exit(2);
    }
    return p;
}

/* memcpy without a sanitizer's eyes: the red zones between variables are copied, too. */
static void copy_raw(char *to, const char *from, size_t n)
{
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n)::"memory");
}

static void restore_variables(char *start, const char *end, char **saved)
{
    size_t n = (size_t)(end - start);

    if (!start || n == 0)
        return;
    if (!*saved) {
        *saved = must_map(n);
        copy_raw(*saved, start, n);
    }
    copy_raw(start, *saved, n);
}

static void reset_percpu(void)
{
    size_t n = (size_t)(__stop_percpu_vars - __start_percpu_vars);

    if (!__start_percpu_vars)
        return;
    if (!percpu_copies) {
        percpu_bytes = ALIGN_UP(n, 2 * (size_t)CACHE_LINE);
        percpu_copies = must_map(percpu_bytes * SIM_MAX_CPUS + PAGE_SIZE);
    }
    memset(percpu_copies, 0, percpu_bytes * sim_opt.cpus);
    for (unsigned i = 0; i < SIM_MAX_CPUS; i++)
        sim_cpus[i].percpu_offset =
            (uintptr_t)percpu_copies + i * percpu_bytes - (uintptr_t)__start_percpu_vars;
}

uintptr_t percpu_offset_of(unsigned cpu)
{
    if (cpu >= sim_opt.cpus)
        sim_fail(SIM_TEST, "per-CPU data of CPU %u, there are %u", cpu, sim_opt.cpus);
    return sim_cpus[cpu].percpu_offset;
}

/* Node i has an equal part of the memory, which ends with a hole. */
static void make_map(void)
{
    uint64_t part = ALIGN_DOWN((ram_size - LOW_MEMORY) / sim_opt.nodes, (uint64_t)PAGE_SIZE);

    map_count = 0;
    for (unsigned i = 0; i < sim_opt.nodes; i++)
        map[map_count++] = (struct mem_range){
            .base = LOW_MEMORY + i * part,
            .size = part - (i + 1 < sim_opt.nodes ? HOLE : 0),
            .kind = MEM_USABLE,
            .node = i,
        };
}

/* All that was ever used looks again as it did at first: like entries that are present and lead
 * astray. */
static void make_undefined(uint64_t from, uint64_t to)
{
    memset(sim_ram + from * PAGE_SIZE, 0xa5, (to - from) * PAGE_SIZE);
}

void sim_frames_touched(uint64_t pfn, uint64_t n)
{
    for (uint64_t i = pfn; i < pfn + n; i++)
        touched[i / 64] |= 1ULL << (i % 64);
    hooks_seen = true;
}

static void reset_ram(void)
{
    uint64_t frames = ram_mapped / PAGE_SIZE;

    if (!hooks_seen) {
        make_undefined(0, frames);
    } else {
        for (uint64_t i = bitmap_next_set(touched, (unsigned)frames, 0); i < frames;
             i = bitmap_next_set(touched, (unsigned)frames, (unsigned)i + 1))
            make_undefined(i, i + 1);
    }
    memset(touched, 0, BITMAP_WORDS(frames) * sizeof(*touched));
    hooks_seen = false;
    memset(phys_to_virt(PAGE_SIZE), 0, PAGE_SIZE); /* the root table */
    memset(sim_memmap, 0, (ram_size / PAGE_SIZE) * sizeof(struct page));
}

/* Grows only, so that addresses of a machine do not depend on those before it. */
static void map_ram(size_t size)
{
    if (sim_ram) {
        munmap(sim_ram, ram_mapped);
        munmap(sim_memmap, ram_mapped / PAGE_SIZE * sizeof(struct page));
        free(touched);
    }
    ram_mapped = size;
    sim_ram = must_map(size);
    sim_memmap = must_map(size / PAGE_SIZE * sizeof(struct page));
    touched = calloc(BITMAP_WORDS(size / PAGE_SIZE), sizeof(*touched));
    if (!touched)
        abort();
    hooks_seen = false;
}

void sim_mem_reset(void)
{
    if (sim_opt.nodes == 0 || sim_opt.nodes > NODES_MAX || sim_opt.ram < 2 * sim_opt.nodes * HOLE) {
        fprintf(stderr, "sim: %u nodes in %zu bytes\n", sim_opt.nodes, sim_opt.ram);
        exit(2);
    }
    ram_size = sim_opt.ram;
    if (ram_size > ram_mapped)
        map_ram(ram_size);
    reset_ram();
    make_map();
    reset_percpu();
    restore_variables(sim_mm_data_start, sim_mm_data_end, &mm_data_saved);
    restore_variables(sim_mm_bss_start, sim_mm_bss_end, &mm_bss_saved);
}

uint64_t sim_frames(void)
{
    return ram_size / PAGE_SIZE;
}

const struct mem_range *sim_memory_map(size_t *count)
{
    *count = map_count;
    return map;
}

/* The root table lies in frame 1, which mm/ never sees. */
pte_t *kernel_pml4(void)
{
    return phys_to_virt(PAGE_SIZE);
}
