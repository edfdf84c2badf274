# mm/vmap_pcpu.c: crash,panic,hang: a remote free is in no read section between the bit and the push
/^void pblock_free_remote(/,/^}/{
s/tlb_gen_read_begin();/(void)0;/
s/tlb_gen_read_end();/(void)0;/
}
