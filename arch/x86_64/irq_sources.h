/*
 * irq_sources.h: interrupt sources outside of the CPU that firmware may have left live: 8259s,
 * I/O APICs, HPET timers. The kernel uses none of them. Boot CPU, interrupts masked. Private to the
 * APIC code.
 */
#ifndef IRQ_SOURCES_H
#define IRQ_SOURCES_H

/* Masks everything and keeps what was unmasked. */
void irq_sources_mask(void);
/* Unmasks what irq_sources_mask() found unmasked. */
void irq_sources_restore(void);

#endif
