# mm/vmalloc.c: frame-owner-stale: frames=safe does as frames=early
s/vmap_config.frames_safe ? PTMAP_SAFE : PTMAP_FREE/PTMAP_FREE/
