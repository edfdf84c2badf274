/*
 * kmain.h: the kernel's start, and what it expects of the tests that it runs.
 */
#ifndef BOOT_KMAIN_H
#define BOOT_KMAIN_H

#include "boot/boot_info.h"

/* The kernel's entry, called by a front door as boot_info.h says. Returns an enum verdict. */
uint32_t kernel_entry(struct boot_info *bi);

/* Supplied by tests/kernel, which boot/ does not include. */

/* After the options are parsed and before anything runs: false, and a line in msg, if they ask for
 * what is not there. */
bool tests_validate_options(char *msg, size_t n);
/* Everything is up, all CPUs are online and idle. Prints all results; returns an enum verdict. */
uint32_t tests_main(void);

#endif
