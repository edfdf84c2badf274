# mm/vmap_node.c: lock-irq,lock-order,hang: a lock that handlers take is held with interrupts on
/^void node_lazy_add(/,/^}/{
s/flags = spin_lock_irqsave(&n->lazy.lock);/flags = 0, spin_lock(\&n->lazy.lock);/
s/spin_unlock_irqrestore(&n->lazy.lock, flags);/spin_unlock(\&n->lazy.lock), (void)flags;/
}
