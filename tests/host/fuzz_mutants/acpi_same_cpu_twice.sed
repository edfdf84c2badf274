# arch/x86_64/madt.c: fuzz_acpi: a CPU that the MADT has twice is listed twice (case G6)
/^static void add(/,/^}/s/listed(out, r->usable, cpu->apic_id)/listed(out, r->usable, cpu->apic_id) \&\& !cap/
