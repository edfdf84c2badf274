# mm/vmalloc.c: test,frame-owner,overwrite,panic: a huge area is one leaf short (case D2)
/^static bool populate_huge(/,/^}/s/done < pages; done += PTE_COUNT/done + PTE_COUNT < pages; done += PTE_COUNT/
