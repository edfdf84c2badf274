# mm/vmap_purge.c: hang: who waits for a purge is not woken
/^static void purge_unlock(/,/^}/s/smp_wake(cpu);/(void)cpu;/
