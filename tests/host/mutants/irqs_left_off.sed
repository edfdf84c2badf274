# mm/vmap_area.c: context: interrupts stay off when addresses run out
/^static err_t take(/,/^}/s/^    irq_restore(flags);/    if (f) irq_restore(flags);/
