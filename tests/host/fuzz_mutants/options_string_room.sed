# lib/options.c: fuzz_options: a text may fill its buffer without room for the end
/^static err_t set_option(/,/^}/s/t->value_len >= o->max/t->value_len > o->max/
