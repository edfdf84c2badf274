# mm/vmap_node.c: lock-order: two lock classes are taken in both orders
/^void node_lazy_add(/,/^}/s/list_add_tail(&a->list, &n->lazy.list);/spin_lock(\&n->busy.lock); list_add_tail(\&a->list, \&n->lazy.list); spin_unlock(\&n->busy.lock);/
/^void node_busy_insert(/,/^}/s/n->busy.count++;/spin_lock(\&n->lazy.lock); n->busy.count++; spin_unlock(\&n->lazy.lock);/
