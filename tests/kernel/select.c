/*
 * select.c: the options of the test runner, and which tests and designs they select, in which
 * order.
 *
 * Runs before anything else is up: no memory, one CPU. Order: the test_vmalloc family by mask bit,
 * the other measured tasks by name, the correctness tests by name, whatever order the linker gave
 * them.
 */
#include "boot/kmain.h"
#include "lib/options.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/vmap.h"
#include "tests/kernel/runner.h"
#include <arch/clock.h>

#define LIST_CHARS 512
#define NAME_CHARS 64

struct kt_options kt_options = {
    .profile = PROFILE_QUICK,
    .seed = 1,
    .repeat = 1,
    .test_repeat_count = 1,
    .sequential = true,
};
struct kt_selection kt_selection;

static const char *const profile_names[] = {"smoke", "quick", "full", NULL};
static const char *const counters_names[] = {"end", "each", NULL};
static char tests_list[LIST_CHARS];
static char designs_list[LIST_CHARS];
static uint64_t run_test_mask;
static bool tests_given, mask_given, designs_given;

/* Made by the linker. */
extern const struct ktest __start_ktests[] __weak;
extern const struct ktest __stop_ktests[] __weak;

/* A number, or "auto" for 0. */
static bool parse_auto(const char *value, void *target)
{
    uint64_t v = 0;

    if (strcmp(value, "auto") != 0) {
        if (!*value)
            return false;
        for (; *value; value++) {
            if (*value < '0' || *value > '9' || v > 100000000)
                return false;
            v = v * 10 + (uint64_t)(*value - '0');
        }
    }
    *(uint64_t *)target = v;
    return true;
}
static bool parse_threads(const char *value, void *target)
{
    uint64_t v;

    if (!parse_auto(value, &v) || v > 65535)
        return false;
    *(uint64_t *)target = v;
    return true;
}

OPTION_ENTRY_(tests, .key = "tests", .type = OPT_STRING, .value = tests_list,
              .max = sizeof(tests_list), .given = &tests_given,
              .help = "tests to run: names, globs, or test_vmalloc, workloads, correctness, all");
OPTION_ENTRY_(run_test_mask, .key = "run_test_mask", .type = OPT_UINT, .value = &run_test_mask,
              .min = 0, .max = UINT32_MAX, .given = &mask_given,
              .help = "tests of the test_vmalloc family by Linux's mask bits");
OPTION_ENTRY_(designs, .key = "designs", .type = OPT_STRING, .value = designs_list,
              .max = sizeof(designs_list), .given = &designs_given,
              .help = "run the tests for each of these designs in turn");
OPTION_ENUM(profile, "profile", kt_options.profile, profile_names, "how much is done");
OPTION_ENUM(counters, "counters", kt_options.counters, counters_names,
            "print the counters at the end, or after each test");
OPTION_BOOL(vmallocinfo, "vmallocinfo", kt_options.vmallocinfo,
            "print the areas that live at the end, as /proc/vmallocinfo does");
OPTION_UINT(seed, "seed", kt_options.seed, 0, UINT64_MAX,
            "seed of all random numbers; 0 = from the time stamp counter");
OPTION_UINT(repeat, "repeat", kt_options.repeat, 1, 100000, "run all tests so many times");
OPTION_ENTRY_(nr_threads, .key = "nr_threads", .type = OPT_UINT, .value = &kt_options.nr_threads,
              .max = 65535, .custom = parse_threads,
              .help = "workers of a measured task; auto or 0 = one on each CPU");
OPTION_UINT(test_repeat_count, "test_repeat_count", kt_options.test_repeat_count, 1, 1000000,
            "how often a worker repeats a measured task");
OPTION_ENTRY_(test_loop_count, .key = "test_loop_count", .type = OPT_UINT,
              .value = &kt_options.test_loop_count, .max = 100000000, .custom = parse_auto,
              .help = "operations of each worker; auto or 0 = by profile and number of CPUs");
OPTION_ENTRY_(samples, .key = "samples", .type = OPT_UINT, .value = &kt_options.samples,
              .max = 100000000, .custom = parse_auto,
              .help = "operations of each worker that get a time of their own; auto or 0 = all");
OPTION_UINT(nr_pages, "nr_pages", kt_options.nr_pages, 0, 1048576,
            "pages of fix_size_alloc_test, no_block_alloc_test and vm_map_ram_test; 0 = 1");
OPTION_BOOL(use_huge, "use_huge", kt_options.use_huge, "fix_size_alloc_test uses vmalloc_huge");
OPTION_BOOL(sequential, "sequential_test_order", kt_options.sequential,
            "off: each worker runs the test_vmalloc family in its own random order, as Linux does");
OPTION_ENTRY_(nr_pcpu_objects, .key = "nr_pcpu_objects", .type = OPT_UINT,
              .value = &kt_options.nr_pcpu_objects, .max = 100000000, .custom = parse_auto,
              .help = "objects of pcpu_alloc_test; auto or 0 = 35000, less with many CPUs");

static bool is_family(const struct ktest *t)
{
    return t->mask != 0;
}

/* True if one element of tests= means t: a group, a name or a glob. */
static bool element_matches(const char *e, const struct ktest *t)
{
    if (!strcmp(e, "all"))
        return true;
    if (!strcmp(e, "test_vmalloc"))
        return is_family(t);
    if (!strcmp(e, "workloads"))
        return t->kind == KT_BENCH && !is_family(t);
    if (!strcmp(e, "correctness"))
        return t->kind == KT_CORRECTNESS;
    return str_in_list(e, t->name);
}

/* Copies the next element of a comma-separated list; false at its end. */
static bool next_element(const char **p, char out[NAME_CHARS])
{
    size_t n = 0;

    while (**p == ',')
        (*p)++;
    if (!**p)
        return false;
    for (; **p && **p != ','; (*p)++) {
        if (n + 1 < NAME_CHARS)
            out[n++] = **p;
    }
    out[n] = '\0';
    return true;
}

static bool selected(const struct ktest *t)
{
    char e[NAME_CHARS];
    const char *p = tests_list;

    if (mask_given)
        return (t->mask & run_test_mask) != 0;
    if (!tests_given)
        return true;
    while (next_element(&p, e)) {
        if (element_matches(e, t))
            return true;
    }
    return false;
}

static int group_of(const struct ktest *t)
{
    return t->kind == KT_CORRECTNESS ? 2 : is_family(t) ? 0 : 1;
}

static bool goes_before(const struct ktest *a, const struct ktest *b)
{
    if (group_of(a) != group_of(b))
        return group_of(a) < group_of(b);
    if (a->mask != b->mask)
        return a->mask < b->mask;
    return strcmp(a->name, b->name) < 0;
}

/* Common characters in order, from the left: enough to find what was meant. */
static unsigned likeness(const char *a, const char *b)
{
    unsigned n = 0;

    for (; *a; a++) {
        const char *hit = strchr(b, *a);
        if (hit) {
            n++;
            b = hit + 1;
        }
    }
    return n;
}

static const char *nearest(const char *name)
{
    const char *best = "all";
    unsigned best_score = 0;

    for (const struct ktest *t = __start_ktests; t < __stop_ktests; t++) {
        unsigned score = 2 * likeness(name, t->name) + 64 - (unsigned)MIN(strlen(t->name), 64UL);
        if (score > best_score) {
            best = t->name;
            best_score = score;
        }
    }
    return best;
}

static bool check_names(char *msg, size_t n)
{
    char e[NAME_CHARS];
    const char *p = tests_list;

    while (next_element(&p, e)) {
        const struct ktest *t = __start_ktests;

        while (t < __stop_ktests && !element_matches(e, t))
            t++;
        if (t < __stop_ktests)
            continue;
        ksnprintf(msg, n, "tests=%s: there is no such test; the nearest is %s", e, nearest(e));
        return false;
    }
    return true;
}

static bool select_designs(char *msg, size_t n)
{
    struct kt_selection *s = &kt_selection;
    char e[NAME_CHARS];
    const char *p = designs_list;

    s->designs = 0;
    if (!designs_given) {
        s->design[s->designs++] = vmap_design_wanted();
        return true;
    }
    while (next_element(&p, e)) {
        struct vmap_config c;
        unsigned d = 0;

        while (vmap_design_names[d] && strcmp(vmap_design_names[d], e) != 0)
            d++;
        if (!vmap_design_names[d]) {
            ksnprintf(msg, n, "designs=%s: there is no such design; the nearest is %s", e,
                      vmap_design_names[vmap_design_wanted()]);
            return false;
        }
        if (!vmap_config_for(&c, d, msg, n))
            return false;
        if (s->designs == KT_DESIGNS_MAX) {
            ksnprintf(msg, n, "designs=: more than %u", KT_DESIGNS_MAX);
            return false;
        }
        s->design[s->designs++] = d;
    }
    if (!s->designs)
        ksnprintf(msg, n, "designs=: no design is named");
    return s->designs != 0;
}

static bool select_tests(char *msg, size_t n)
{
    struct kt_selection *s = &kt_selection;

    s->tests = 0;
    for (const struct ktest *t = __start_ktests; t < __stop_ktests; t++) {
        unsigned at = s->tests;

        if (!selected(t))
            continue;
        if (s->tests == KT_TESTS_MAX) {
            ksnprintf(msg, n, "more than %u tests", KT_TESTS_MAX);
            return false;
        }
        for (; at > 0 && goes_before(t, s->test[at - 1]); at--)
            s->test[at] = s->test[at - 1];
        s->test[at] = t;
        s->tests++;
    }
    if (!s->tests)
        ksnprintf(msg, n, "%s selects no test", mask_given ? "run_test_mask=" : "tests=");
    return s->tests != 0;
}

bool tests_validate_options(char *msg, size_t n)
{
    if (tests_given && mask_given) {
        ksnprintf(msg, n, "tests= and run_test_mask= exclude each other");
        return false;
    }
    if (!check_names(msg, n) || !select_tests(msg, n) || !select_designs(msg, n))
        return false;
    if (kt_options.seed == 0)
        kt_options.seed = rdtsc() | 1;
    return true;
}
