/*
 * console_list.h: the value of option console= as a list of ports. Private to arch/x86_64.
 */
#ifndef ARCH_X86_64_CONSOLE_LIST_H
#define ARCH_X86_64_CONSOLE_LIST_H

#include "lib/base.h"
#include <arch/serial.h>

struct console_list {
    struct serial_port port[SERIAL_PORTS_MAX]; /* as far as they were described */
    unsigned ports;
    bool fb;
};

/* False if s is not a list of what arch/console.h describes. */
bool console_list_parse(const char *s, struct console_list *list);

#endif
