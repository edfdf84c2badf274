/*
 * gdt.h: each CPU's GDT, TSS and the stacks for #DF, NMI and #MC.
 *
 * The boot CPU's are static, the others' lie in memory that the caller gives. Nothing here waits or
 * allocates.
 */
#ifndef ARCH_GDT_H
#define ARCH_GDT_H

#include "lib/base.h"

/* Selectors; a trampoline must enter the kernel with these in CS and SS, or with its own. */
#define SEL_CODE64 0x08
#define SEL_DATA   0x10
#define SEL_TSS    0x18

/* IST numbers in the IDT; 0 = the stack that was in use. */
#define IST_DF    1
#define IST_NMI   2
#define IST_MC    3
#define IST_COUNT 3

/* Loads the boot CPU's GDT and TSS and all segment registers. Keeps the GS base. */
void gdt_init_boot(void);

/* Bytes that gdt_init_cpu() needs, a multiple of the page size. */
size_t gdt_cpu_size(void);
/*
 * The same for another CPU, called on that CPU after percpu_load(). mem: gdt_cpu_size() bytes,
 * page-aligned, mapped and writable for as long as the CPU runs.
 */
void gdt_init_cpu(void *mem);

/* False if something has run over the end of one of this CPU's IST stacks. Any context. */
bool gdt_stacks_intact(void);
/* Finds the IST stack of this CPU that holds rsp: "#DF", "NMI", "#MC", or NULL. */
const char *gdt_ist_name(uintptr_t rsp);

#endif
