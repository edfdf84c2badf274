# mm/vmap_lookup.c: test: vread ignores the offset in the page (case F1)
/^static size_t next_piece(/,/^}/s/ptmap_translate(addr, NULL, NULL)/ptmap_translate(addr \& PAGE_MASK, NULL, NULL)/
