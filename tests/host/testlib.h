/*
 * testlib.h: what every host test needs: cmocka, the seed, the console and panic() of lib/.
 *
 * Linked from build/host/libhost.a. console_write, log_seconds, symbol_format and panic are weak
 * there: a test program that wants its own simply defines it.
 */
#ifndef TESTS_HOST_TESTLIB_H
#define TESTS_HOST_TESTLIB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lib/base.h"
#include "lib/rng.h"

/* The run's seed: from the environment variable MM_SEED, else from the clock. Printed once. */
uint64_t test_seed(void);
/* A generator seeded with test_seed() and `stream`, so that tests do not disturb each other. */
struct rng test_rng(uint64_t stream);

/* From capture_start() on, console_write() collects (up to 64 KiB); capture_text() ends that and
 * returns the text, valid until the next start. */
void capture_start(void);
const char *capture_text(void);

/* What log_seconds() returns. */
extern uint64_t test_seconds;

/* Used by EXPECT_PANIC. */
extern jmp_buf *test_panic_to;
extern char test_panic_text[512];

/* Runs `statement`, which must panic with a message that contains `part`. */
#define EXPECT_PANIC(statement, part)                                                              \
    do {                                                                                           \
        jmp_buf panic_to_;                                                                         \
        test_panic_to = &panic_to_;                                                                \
        if (setjmp(panic_to_) == 0) {                                                              \
            statement;                                                                             \
            test_panic_to = NULL;                                                                  \
            fail_msg("no panic from %s", #statement);                                              \
        }                                                                                          \
        test_panic_to = NULL;                                                                      \
        if (!strstr(test_panic_text, part))                                                        \
            fail_msg("panic said \"%s\", expected \"%s\"", test_panic_text, part);                 \
    } while (0)

/* assert_true with the values that a random test failed on. */
#define CHECK_MSG(cond, ...)                                                                       \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            print_error("%s: ", #cond);                                                            \
            print_error(__VA_ARGS__);                                                              \
            print_error("\n");                                                                     \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

#endif
