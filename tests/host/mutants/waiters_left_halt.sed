# arch/x86_64/tlb_gen.c: hang: who halts last does not wake those who halt for it
/^void tlb_gen_idle_enter(/,/^}/s/wake_waiters();/(void)0;/
