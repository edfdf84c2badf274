# mm/vmalloc.c: frame-owner-stale: frames=safe does as frames=early
/^enum ptmap_frames vmap_frames_of_freed(/,/^}/s/vmap_config.frames_safe ? PTMAP_SAFE : PTMAP_FREE/PTMAP_FREE/
