# mm/ptmap.c: overwrite,mapped-free,panic,test: the first entry of a range is not cleared
/^unsigned long ptmap_unmap_noflush(/,/^}/s/if (!pte_present(e))/if (!pte_present(e) || va == start)/
