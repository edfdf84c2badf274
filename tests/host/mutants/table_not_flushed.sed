# mm/vmap_purge.c: table-reuse: table pages go back without a flush of the paging-structure caches
/^void purge_reclaim_tables(/,/^}/s/tlb_shootdown_all();/(void)0;/
