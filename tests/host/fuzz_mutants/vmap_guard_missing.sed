# mm/vmalloc.c: fuzz_vmap: areas have no guard page
/^static uint64_t guard_size(/,/^}/s/? 0 : PAGE_SIZE/? 0 : 0/
