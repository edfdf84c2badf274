# arch/x86_64/tlb_gen.c: hang: who publishes last does not wake those who halt for it
/^void tlb_gen_catch_up(/,/^}/s/wake_waiters();/(void)0;/
