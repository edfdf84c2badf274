/*
 * helpers_locks.c: lock statistics for tests, see helpers.h.
 *
 * Boot CPU, all others idle.
 */
#include "lib/string.h"
#include "tests/kernel/helpers.h"
#include "tests/kernel/runner.h"

static struct {
    char *memory; /* NULL: the run's own is used */
    size_t size;
    bool was_on;
} counting;

bool kt_lockstat_begin(void)
{
    size_t each = lockstat_cpu_size();

    counting.was_on = lockstat_on;
    if (!counting.was_on) {
        counting.size = kt_cpus() * each;
        counting.memory = kt_pages_alloc(counting.size);
        if (!counting.memory) {
            KT_FAIL("no memory for the lock statistics of %u CPUs", kt_cpus());
            return false;
        }
        for (unsigned cpu = 0; cpu < kt_cpus(); cpu++)
            lockstat_attach(cpu, counting.memory + cpu * each);
    }
    lockstat_on = true;
    return true;
}

void kt_lockstat_end(void)
{
    lockstat_on = counting.was_on;
    for (unsigned cpu = 0; counting.memory && cpu < kt_cpus(); cpu++)
        lockstat_attach(cpu, NULL);
    kt_pages_free(counting.memory, counting.size);
    counting.memory = NULL;
}

struct lockstat kt_lockstat(const char *name)
{
    struct lockstat s;
    const char *n;

    for (unsigned i = 0; (n = lockstat_read(i, &s)) != NULL; i++)
        if (strcmp(n, name) == 0)
            return s;
    return (struct lockstat){0};
}
