# mm/vmalloc.c: fuzz_vmap: freed addresses do not wait for a flush
/^void vmap_retire(/,/^}/s/node_lazy_add(a);/area_space_give(a); return;/
