# mm/vmap_purge.c: table-reuse: table pages go back without a flush of the paging-structure caches
/^static void reclaim_level(/,/^}/s/tlb_shootdown_all();/(void)0;/
