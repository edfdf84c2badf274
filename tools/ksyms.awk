# ksyms.awk: the output of `nm -n kernel` to the assembler source of ksym_table, ksym_count and
# ksym_names (arch/symbols.h). Of several names at one address a global one is kept.
# NASM's local labels (label.local) are left out; gcc's and clang's clones (f.cold) stay.
# Only the low 32 bits of addresses are used: the image is far smaller, awk's numbers are doubles.

function hex32(s,    i, v) {
    v = 0
    s = tolower(substr(s, length(s) - 7))
    for (i = 1; i <= 8; i++)
        v = v * 16 + index("0123456789abcdef", substr(s, i, 1)) - 1
    return v
}

$3 == "__text_start" { start = hex32($1); inside = 1; next }
$3 == "__text_end"   { inside = 0; next }

$3 ~ /\./ && $3 !~ /\.(part|isra|constprop|cold|llvm|[0-9])/ { next }

inside && $2 ~ /^[tTwW]$/ {
    offset = hex32($1) - start
    if (n && offsets[n] == offset) {
        if ($2 == "T" && types[n] != "T") {
            names[n] = $3
            types[n] = $2
        }
        next
    }
    n++
    offsets[n] = offset
    names[n] = $3
    types[n] = $2
}

END {
    print "    .section .ksyms, \"a\""
    print "    .balign 8"
    print "    .globl ksym_table, ksym_count, ksym_names"
    print "ksym_table:"
    at = 0
    for (i = 1; i <= n; i++) {
        printf "    .long 0x%x, %d\n", offsets[i], at
        at += length(names[i]) + 1
    }
    print "ksym_count:"
    printf "    .long %d\n", n
    print "ksym_names:"
    for (i = 1; i <= n; i++)
        printf "    .asciz \"%s\"\n", names[i]
    if (!n)
        print "    .byte 0"
    print "    .section .note.GNU-stack, \"\", @progbits"
}
