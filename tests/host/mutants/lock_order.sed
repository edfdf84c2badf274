# mm/vmap_node.c: lock-order: two lock classes are taken in both orders
/^void node_lazy_add(/,/^}/s/list_add_tail(&a->list, &n->lazy.list);/spin_lock(\&n->busy.lock); list_add_tail(\&a->list, \&n->lazy.list); spin_unlock(\&n->busy.lock);/
/^void node_busy_insert(/,/^}/s/WRITE_ONCE(n->busy.count, n->busy.count + 1);/spin_lock(\&n->lazy.lock); WRITE_ONCE(n->busy.count, n->busy.count + 1); spin_unlock(\&n->lazy.lock);/
