/*
 * symbols.c: from a code address to a name. Any context.
 */
#include "arch/x86_64/symbols.h"
#include "lib/base.h"
#include "lib/printf.h"
#include <arch/symbols.h>

extern const char __text_start[], __text_end[];

bool symbol_is_text(uintptr_t addr)
{
    return addr >= (uintptr_t)__text_start && addr < (uintptr_t)__text_end;
}

const char *symbol_lookup(uintptr_t addr, uint32_t *offset)
{
    uint32_t from_text = (uint32_t)(addr - (uintptr_t)__text_start);
    uint32_t lo = 0, hi = ksym_count;

    if (!symbol_is_text(addr))
        return NULL;
    /* Below lo: entries at or before the address; from hi on: behind it. */
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (ksym_table[mid].offset <= from_text)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == 0)
        return NULL;
    *offset = from_text - ksym_table[lo - 1].offset;
    return ksym_names + ksym_table[lo - 1].name;
}

bool symbol_format(uintptr_t addr, char *buf, size_t size)
{
    uint32_t offset;
    const char *name = symbol_lookup(addr, &offset);

    if (!name)
        return false;
    ksnprintf(buf, size, "%s+0x%x", name, offset);
    return true;
}
