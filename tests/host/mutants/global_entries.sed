# mm/vmalloc.c: global-entry: writable areas are mapped global
/^static pgprot_t flags_to_prot(/,/^}/s/PAGE_KERNEL_RO : PAGE_KERNEL;/PAGE_KERNEL_RO : PAGE_KERNEL | PTE_G;/
