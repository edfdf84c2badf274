# mm/vmap_purge.c: flush-cover,address-reuse,frame-owner-stale: the flush ends a page early
/^static bool purge_by_ipi(/,/^}/s/tlb_shootdown_range(f->start, f->end);/tlb_shootdown_range(f->start, f->end - PAGE_SIZE);/
