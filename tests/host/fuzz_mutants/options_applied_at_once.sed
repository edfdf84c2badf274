# lib/options.c: fuzz_options: options before one that is wrong are set
/^err_t options_parse_table(/,/^}/s/text + n, false)/text + n, true)/
