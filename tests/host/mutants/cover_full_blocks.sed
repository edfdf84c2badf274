# mm/vmap_block.c: flush-cover: vm_unmap_aliases looks only at blocks with free pages (case A1)
/^void block_purge(/,/^}/s/&q->all_list, all_list)/\&q->free_list, free_list)/
