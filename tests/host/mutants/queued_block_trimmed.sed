# mm/vmap_pcpu.c: crash,panic,hang: an empty block goes back while a remote free has it on the owner's list
/^static void trim_empty(/,/^}/s/pblock_is_queued(b)/false/
