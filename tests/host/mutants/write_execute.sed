# mm/vmalloc.c: write-execute: executable areas are writable
/^static pgprot_t flags_to_prot(/,/^}/s/PAGE_KERNEL_RX;/PAGE_KERNEL_RX | PTE_W;/
