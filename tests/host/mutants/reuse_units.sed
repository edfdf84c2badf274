# mm/vmap_units.c: address-reuse,frame-owner-stale: freed units are ready before their generation has passed
/^static struct vm_area \*pop_passed(/,/^}/s/!tlb_gen_passed(a->stamp)/!a->stamp/
