/*
 * An area is seen whole or not at all (F6).
 *
 * Another CPU asks for the address that the next allocation will have, again and again. Whenever it
 * gets an answer, all of it must be right; and reading must not find half of the pages.
 */
#include "lib/string.h"
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"
#include <arch/atomic.h>

#define PAGES 5

static struct {
    uint32_t stop;
    char *addr;
    uint64_t looks, seen;
} look;

static void look_until_stopped(void *arg)
{
    uint64_t words[2];
    struct vm_area_info info;

    (void)arg;
    while (!LOAD_ACQUIRE(look.stop)) {
        char *addr = READ_ONCE(look.addr);
        size_t n;

        if (find_vm_area(addr + 2 * PAGE_SIZE, &info)) {
            size_t offset = (size_t)(addr + 2 * PAGE_SIZE - (char *)info.start);

            ADD_ONCE(look.seen, 1);
            /* If the guess was wrong it lies in the area beside, which is one of ours too. */
            if (offset >= info.size || info.size != PAGES * PAGE_SIZE ||
                info.kind != VM_KIND_ALLOC || !info.caller)
                KT_FAIL("%p: start %p size 0x%lx kind %u caller %p", (void *)addr, info.start,
                        (unsigned long)info.size, info.kind, info.caller);
        }
        n = vread(words, addr + (PAGES - 1) * PAGE_SIZE, sizeof(words));
        if (n != 0 && n != sizeof(words))
            KT_FAIL("vread returned %lu", (unsigned long)n);
        STORE_RELEASE(look.looks, look.looks + 1);
        kt_alive();
    }
}

KTEST(half_built, "F6: no lookup sees an area half made")
{
    uint64_t same = 0, rounds = kt_scaled_flushes(200);
    char *last;

    if (kt_cpus() == 1)
        KT_SKIP("one CPU");
    /* Enough for the other CPU to have looked at the right moment. */
    if (vmap_config.blocks_all)
        rounds = MAX(rounds, 128UL);
    kt_quiesce();
    memset(&look, 0, sizeof(look));
    look.addr = vmalloc(PAGES * PAGE_SIZE);
    KT_ASSERT(look.addr);
    last = look.addr;
    vfree(look.addr);
    vm_unmap_aliases();
    kt_start(1, look_until_stopped, NULL);
    for (uint64_t i = 0; i < rounds; i++) {
        char *p = vmalloc(PAGES * PAGE_SIZE);

        KT_EXPECT(p);
        same += p == look.addr;
        /* Now and then it stays until it must have been seen. */
        if (p == look.addr && i % 8 == 0)
            KT_EXPECT(kt_wait_for(&look.looks, READ_ONCE(look.looks) + 2));
        vfree(p);
        vm_unmap_aliases();
        /* The same address again, or the same step further. */
        WRITE_ONCE(look.addr, p + (p - last));
        last = p;
        kt_progress((unsigned)(i * 100 / rounds));
    }
    STORE_RELEASE(look.stop, 1u);
    kt_join(1);
    kt_note("test=half_built rounds=%lu same_address=%lu looks=%lu seen=%lu", (unsigned long)rounds,
            (unsigned long)same, (unsigned long)look.looks, (unsigned long)look.seen);
    KT_EXPECT(same != 0 && look.seen != 0);
}
