# mm/vmap_node.c: lock-order: two lock classes are taken in both orders
/^void node_lazy_add(/,/^}/s/list_add_tail(&a->list, &n->lazy.list);/spin_lock(\&n->busy.lock); list_add_tail(\&a->list, \&n->lazy.list); spin_unlock(\&n->busy.lock);/
/^void node_busy_insert(/,/^}/s/busy_link(t, a);/spin_lock(\&node_of_address(a->start)->lazy.lock); busy_link(t, a); spin_unlock(\&node_of_address(a->start)->lazy.lock);/
