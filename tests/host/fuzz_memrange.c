/*
 * fuzz_memrange.c: maps made of the fuzzer's bytes, in any room, against the model.
 */
#include <stdlib.h>

#include "tests/host/memrange_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct mem_range in[MODEL_MAX];

    if (n == 0)
        return 0;
    size_t count = memrange_from_bytes(data + 1, n - 1, in);
    if (!memrange_compare(in, count, 0) || !memrange_compare(in, count, count + data[0] % 16))
        abort();
    return 0;
}
