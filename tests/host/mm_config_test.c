/*
 * mm_config_test.c: options of the allocator: what each design makes of them, every combination
 * that is refused and why, and that what vmap_config_print() says leads to the same allocator.
 */
#include <stdio.h>
#include <string.h>

#include "lib/options.h"
#include "mm/vmap.h"
#include "tests/host/sim/boot.h"
#include "tests/host/testlib.h"

static char msg[200];

/* A machine whose options are `text`; the configuration of `design`. */
static bool config_of(const char *text, unsigned design, unsigned cpus, struct vmap_config *c)
{
    sim_machine(&(struct sim_options){.seed = 1, .cpus = cpus});
    if (options_parse(text, strlen(text), msg, sizeof(msg)) != OK)
        fail_msg("\"%s\": %s", text, msg);
    msg[0] = '\0';
    return vmap_config_for(c, design, msg, sizeof(msg));
}

static void test_presets(void **state)
{
    static const char *const expected[DESIGNS] = {
        [DESIGN_2010] = "design=2010 nodes=1 lock=auto lazy=0 blocks=ram index=tree pools=off "
                        "search=walk insert=twice vbindex=global purge=lazy flush=ipi frames=early",
        [DESIGN_2023] = "design=2023 nodes=1 lock=auto lazy=0 blocks=ram index=tree pools=off "
                        "search=tree insert=twice vbindex=global purge=lazy flush=ipi frames=early",
        [DESIGN_2024] = "design=2024 nodes=4 lock=auto lazy=0 blocks=ram index=tree pools=on "
                        "search=tree insert=once vbindex=percpu purge=lazy flush=ipi frames=early",
        [DESIGN_METALMAP] =
            "design=metalmap nodes=4 lock=auto lazy=0 blocks=all index=table pools=off "
            "search=tree insert=once vbindex=percpu purge=lazy flush=gen frames=early",
    };
    struct vmap_config c;
    char text[300];

    (void)state;
    for (unsigned d = 0; d < DESIGNS; d++) {
        assert_true(config_of("", d, 4, &c));
        vmap_config_print(&c, text, sizeof(text));
        assert_string_equal(text, expected[d]);
        assert_int_equal(c.range_size, VMAP_SIZE_MAX);
    }
    assert_int_equal(vmap_design_wanted(), DESIGN_METALMAP);
    config_of("design=2010", DESIGN_2010, 1, &c);
    assert_int_equal(vmap_design_wanted(), DESIGN_2010);
    /* Text that does not fit is cut, and nothing is written behind it. */
    for (size_t size = 1; size < strlen(expected[DESIGN_2010]); size++) {
        memset(text, 'x', sizeof(text));
        vmap_config_print(&c, text, size);
        assert_int_equal(strlen(text), size - 1);
        assert_memory_equal(text, expected[DESIGN_2010], size - 1);
        assert_int_equal(text[size], 'x');
    }
}

static void test_options(void **state)
{
    static const struct {
        unsigned design;
        const char *options, *says;
    } cases[] = {
        {DESIGN_2024, "nodes=3", " nodes=3 "},
        {DESIGN_2024, "nodes=128", " nodes=128 "},
        {DESIGN_2024, "nodes=2 nodes=auto", " nodes=4 "},
        {DESIGN_2024, "lazy=77", " lazy=77 "},
        {DESIGN_2024, "lazy=77 lazy=auto", " lazy=0 "},
        {DESIGN_2024, "lazy=1099511627776", " lazy=1099511627776 "},
        {DESIGN_2024, "lock=rw", " lock=rw "},
        {DESIGN_2024, "lock=ticket", " lock=ticket "},
        {DESIGN_2024, "insert=twice", " insert=twice "},
        {DESIGN_2024, "vbindex=global", " vbindex=global "},
        {DESIGN_2024, "purge=eager", " purge=eager "},
        {DESIGN_2024, "frames=safe", " frames=safe"},
        {DESIGN_2024, "pools=off", " pools=off "},
        {DESIGN_2024, "search=walk pools=off", " nodes=1 "}, /* auto: as many as can be */
        {DESIGN_2024, "flush=gen index=table", " pools=off "},
        {DESIGN_2023, "search=walk", " search=walk "},
        {DESIGN_2010, "search=tree", " search=tree "},
        {DESIGN_METALMAP, "blocks=ram index=tree flush=ipi", " blocks=ram index=tree pools=off "},
    };
    struct vmap_config c;
    char text[300];

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        if (!config_of(cases[i].options, cases[i].design, 4, &c))
            fail_msg("\"%s\" is refused: %s", cases[i].options, msg);
        vmap_config_print(&c, text, sizeof(text));
        if (!strstr(text, cases[i].says))
            fail_msg("\"%s\" leads to \"%s\", not \"%s\"", cases[i].options, text, cases[i].says);
        assert_null(vmap_config_refused(&c));
    }
    assert_true(config_of("vmalloc=1G", DESIGN_2024, 4, &c));
    assert_int_equal(c.range_size, SZ_1G);
}

static void test_refused(void **state)
{
    static const struct {
        unsigned design;
        const char *options, *why;
    } cases[] = {
        {DESIGN_2024, "vmalloc=33M", "vmalloc= must be a multiple of 2M"},
        {DESIGN_2024, "nodes=129", "nodes= must be at most 128"},
        {DESIGN_METALMAP, "index=tree", "blocks=all needs index=table"},
        {DESIGN_METALMAP, "flush=ipi", "blocks=all needs flush=gen"},
        {DESIGN_METALMAP, "purge=eager", "purge=eager needs blocks=ram"},
        {DESIGN_2024, "index=table", "index=table needs flush=gen"},
        {DESIGN_METALMAP, "pools=on", "pools=on needs index=tree"},
        {DESIGN_2024, "search=walk nodes=2", "search=walk needs nodes=1"},
        {DESIGN_METALMAP, "vbindex=global", "vbindex= needs blocks=ram"},
        {DESIGN_2023, "pools=on", "pools=on needs more than one node"},
        {DESIGN_2024, "purge=eager lazy=100", "lazy= needs purge=lazy"},
        {DESIGN_METALMAP, "vmalloc=254M", "blocks=all needs vmalloc= of at least 256M for 4 CPUs"},
    };
    struct vmap_config c;

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        char design[40];

        if (config_of(cases[i].options, cases[i].design, 4, &c))
            fail_msg("\"%s\" is not refused", cases[i].options);
        snprintf(design, sizeof(design), "design %s: ", vmap_design_names[cases[i].design]);
        if (strncmp(msg, design, strlen(design)) != 0 || !strstr(msg, cases[i].why))
            fail_msg("\"%s\" is refused by \"%s\", not \"%s\"", cases[i].options, msg,
                     cases[i].why);
    }
    assert_true(config_of("vmalloc=512M", DESIGN_METALMAP, 4, &c));
}

/* Numbers with `auto`: what is none is an error that names the option. */
static void test_bad_numbers(void **state)
{
    static const char *const bad[] = {"nodes=0",  "nodes=",    "nodes=-1",
                                      "nodes=2x", "lazy=none", "lazy=1099511627777"};

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
        char key[8];

        sim_machine(&(struct sim_options){.seed = 1});
        snprintf(key, sizeof(key), "%.*s", (int)strcspn(bad[i], "="), bad[i]);
        if (options_parse(bad[i], strlen(bad[i]), msg, sizeof(msg)) == OK)
            fail_msg("\"%s\" was taken", bad[i]);
        if (!strstr(msg, key))
            fail_msg("\"%s\": \"%s\" does not name the option", bad[i], msg);
    }
}

static void start_refused(void *arg)
{
    struct vmap_config c = {.range_size = SZ_1G + PAGE_SIZE, .nodes = 1};

    (void)arg;
    SIM_CHECK(vmap_init(&c) == ERR_INVAL, "vmap_init took a range of half a unit");
    c.range_size = SZ_1G;
    c.search_walk = true;
    c.nodes = 2;
    SIM_CHECK(vmap_init(&c) == ERR_INVAL, "vmap_init took search=walk with two nodes");
}

static void test_start(void **state)
{
    (void)state;
    sim_machine(&(struct sim_options){.seed = 1});
    assert_true(sim_do(start_refused, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_presets), cmocka_unit_test(test_options),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_bad_numbers),
        cmocka_unit_test(test_start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
