# arch/x86_64/tlb_gen.c: address-reuse,flush-cover,table-reuse: a CPU that is one generation behind counts as flushed
/^static bool look_at_all(/,/^}/s/LOAD_ACQUIRE(c->seen) >= stamp/LOAD_ACQUIRE(c->seen) + 1 >= stamp/
