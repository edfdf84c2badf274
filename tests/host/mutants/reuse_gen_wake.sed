# arch/x86_64/tlb_gen.c: address-reuse,table-reuse: a CPU comes out of HLT without flushing
/^void tlb_gen_idle_exit(/,/^}/s/tlb_gen_catch_up();/(void)0;/
