/*
 * memrange_model.h: what memrange_sanitise() should give, worked out the slow and obvious way.
 */
#ifndef TESTS_HOST_MEMRANGE_MODEL_H
#define TESTS_HOST_MEMRANGE_MODEL_H

#include "lib/memrange.h"

#define MODEL_MAX 64 /* ranges given */

/* Runs memrange_sanitise() on a copy with room for `cap` entries (0: as many as it may need) and
 * compares with the model. Prints what is wrong to stderr and returns false. */
bool memrange_compare(const struct mem_range *in, size_t n, size_t cap);
/* Makes up to MODEL_MAX ranges from bytes, dense enough to overlap, touch and nest; returns how
 * many. */
size_t memrange_from_bytes(const uint8_t *data, size_t n, struct mem_range *out);

#endif
