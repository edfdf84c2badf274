# mm/vmap_purge.c: lock-held: a flush is asked for with a lock held
/^static bool purge_by_ipi(/,/^}/s/tlb_shootdown_range(f->start, f->end);/{ spin_lock(\&purge.pending_lock); tlb_shootdown_range(f->start, f->end); spin_unlock(\&purge.pending_lock); }/
