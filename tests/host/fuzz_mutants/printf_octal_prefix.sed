# lib/printf.c: fuzz_printf: '#' adds no 0 to an octal number of just the precision's length
/^static void put_number(/,/^}/s/least <= n)/least < n)/
