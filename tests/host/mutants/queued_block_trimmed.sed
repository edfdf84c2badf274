# mm/vmap_pcpu.c: panic,test,hang: an empty block goes back while a remote free has it on the owner's list
/^static void trim_empty(/,/^}/s/LOAD_ACQUIRE(b->remote_queued)/false/
