/*
 * testlib.c: the host's console, clock, symbols and panic, and the seed. See testlib.h.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/host/testlib.h"
#include "lib/assert.h"
#include "lib/printf.h"

uint64_t test_seconds;
jmp_buf *test_panic_to;
char test_panic_text[512];

static pthread_mutex_t console_lock = PTHREAD_MUTEX_INITIALIZER;
static bool capturing;
static size_t captured;
static char capture_buf[64 * 1024];

static uint64_t seed_value;
static pthread_once_t seed_once = PTHREAD_ONCE_INIT;

static void seed_init(void)
{
    static const char *const names[] = {"MM_SEED", "MM_FIRST_SEED"};
    const char *env = NULL, *name = NULL;

    for (unsigned i = 0; i < 2 && !(env && *env); i++)
        env = getenv(name = names[i]);
    if (env && *env) {
        char *end;
        seed_value = strtoull(env, &end, 0);
        if (*end) {
            fprintf(stderr, "%s=%s is not a number\n", name, env);
            exit(2);
        }
    } else {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        seed_value = (uint64_t)now.tv_sec * 1000000007u ^ (uint64_t)now.tv_nsec;
    }
    fprintf(stderr, "seed: MM_SEED=0x%" PRIx64 "\n", seed_value);
}

uint64_t test_seed(void)
{
    pthread_once(&seed_once, seed_init);
    return seed_value;
}

struct rng test_rng(uint64_t stream)
{
    struct rng r;

    rng_seed(&r, test_seed() ^ (stream * 0x9e3779b97f4a7c15ULL));
    return r;
}

void capture_start(void)
{
    pthread_mutex_lock(&console_lock);
    capturing = true;
    captured = 0;
    pthread_mutex_unlock(&console_lock);
}

const char *capture_text(void)
{
    pthread_mutex_lock(&console_lock);
    capturing = false;
    capture_buf[captured] = '\0';
    pthread_mutex_unlock(&console_lock);
    return capture_buf;
}

__weak void console_write(const char *s, size_t n)
{
    pthread_mutex_lock(&console_lock);
    if (capturing) {
        size_t room = sizeof(capture_buf) - 1 - captured;
        size_t take = MIN(n, room);
        memcpy(capture_buf + captured, s, take);
        captured += take;
    } else {
        fwrite(s, 1, n, stdout);
    }
    pthread_mutex_unlock(&console_lock);
}

__weak uint64_t log_seconds(void)
{
    return test_seconds;
}

/* One made-up symbol: 256 bytes from 0x1000 on. */
__weak bool symbol_format(uintptr_t addr, char *buf, size_t size)
{
    if (addr < 0x1000 || addr >= 0x1100)
        return false;
    snprintf(buf, size, "test_symbol+0x%" PRIxPTR, addr - 0x1000);
    return true;
}

__weak void panic(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    kvsnprintf(test_panic_text, sizeof(test_panic_text), fmt, ap);
    va_end(ap);
    if (test_panic_to)
        longjmp(*test_panic_to, 1);
    fprintf(stderr, "panic: %s\n", test_panic_text);
    abort();
}
