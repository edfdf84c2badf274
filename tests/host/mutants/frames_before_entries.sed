# mm/ptmap.c: mapped-free: frames go back and their entries stay
/^unsigned long ptmap_unmap_noflush(/,/^}/s/page = clear_entry(entry, e, frames);/page = frames == PTMAP_FREE ? phys_to_page(pte_phys(e)) : clear_entry(entry, e, frames);/
