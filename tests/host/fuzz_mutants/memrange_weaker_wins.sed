# lib/memrange.c: fuzz_memrange: where two kinds overlap and the stronger ends first, the other one ends, too
/^static size_t cut_pair(/,/^}/s/if (a_end > b_end)/if (false)/
