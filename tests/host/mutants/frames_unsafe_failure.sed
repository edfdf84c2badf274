# mm/vmalloc.c: frame-owner-stale: frames=safe: what was mapped by an allocation that failed goes back at once
/^void vmap_unmap_owned(/,/^}/s/vmap_frames_of_freed()/PTMAP_FREE/
