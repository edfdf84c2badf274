# mm/vrealloc.c: frame-owner-stale: frames=safe: the frames of a shrunk area go back without a flush
/^static void shrink_in_place(/,/^}/s/purge_flush_now(cut, end);/(void)0;/
