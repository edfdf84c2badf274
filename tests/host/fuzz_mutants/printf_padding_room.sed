# lib/printf.c: fuzz_printf: padding is written behind the buffer
/^static void put_fill(/,/^}/s/MIN(n, out->size - out->len)/n/
