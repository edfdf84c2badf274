# arch/x86_64/tlb_gen.c: address-reuse,flush-cover,table-reuse: the stamp is the present generation, which some have flushed before the entries were cleared
/^uint64_t tlb_gen_stamp(/,/^}/s/READ_ONCE(tlb_gen.now) + 1/READ_ONCE(tlb_gen.now)/
