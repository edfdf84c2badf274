# arch/x86_64/acpi_tables.c: fuzz_acpi: an address structure is read that the table ends in
/^static struct acpi_gas gas_at(/,/^}/s/at + 12 <= len/at <= len/
