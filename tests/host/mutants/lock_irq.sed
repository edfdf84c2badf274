# mm/vmap_node.c: lock-irq,lock-order,hang: a lock that handlers take is held with interrupts on
/^void node_lazy_add(/,/^}/{
s/unsigned long flags = spin_lock_irqsave(&n->lazy.lock);/spin_lock(\&n->lazy.lock);/
s/spin_unlock_irqrestore(&n->lazy.lock, flags);/spin_unlock(\&n->lazy.lock);/
}
