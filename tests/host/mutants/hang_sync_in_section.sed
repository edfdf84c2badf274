# arch/x86_64/tlb_gen.c: hang: a handler over a read section waits for the generation that the section holds up
/^void tlb_gen_sync(/,/^}/s/PERCPU_READ_(tlb_gen_readers)/false/
