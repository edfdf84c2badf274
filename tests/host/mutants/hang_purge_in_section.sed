# mm/vmap_purge.c: hang: a handler over a read section waits for a purge that waits for the section
/^static enum lock_result purge_lock(/,/^}/s/PERCPU_READ_(tlb_gen_readers)/false/
