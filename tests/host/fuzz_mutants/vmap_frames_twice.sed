# mm/ptmap.c: fuzz_vmap: the frames of an unmapped area go back twice
/^unsigned long ptmap_unmap_noflush(/,/^}/s/^    page_free_bulk(batch, n);/    page_free_bulk(batch, n); page_free_bulk(batch, n);/
