# arch/x86_64/tlb_gen.c: address-reuse,table-reuse: at the wake-up the generation is read before the idle flag goes down
/^void tlb_gen_idle_exit(/,/^}/{
s/WRITE_ONCE(c->idle, 0);/bool late = READ_ONCE(c->seen) != READ_ONCE(tlb_gen.now); WRITE_ONCE(c->idle, 0);/
s/if (READ_ONCE(c->seen) != READ_ONCE(tlb_gen.now))/if (late)/
}
