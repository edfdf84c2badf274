# arch/x86_64/tlb_gen.c: address-reuse,flush-cover,table-reuse: the generation that is published is read after the flush (case E13)
/^void tlb_gen_catch_up(/,/^}/s/->seen, now);/->seen, READ_ONCE(tlb_gen.now)); (void)now;/
