/*
 * machine_end.c: ending the machine by the kernel's verdict and the option exit=.
 *
 * Built into the kernel for the PVH door and into BOOTX64.EFI for the UEFI door, so it uses nothing
 * of the kernel but the option registry, and only there.
 */
#include "boot/machine_end.h"

#include "boot/port.h"

/* QEMU's isa-debug-exit as tools/run.py sets it up (iobase=0xf4). */
#define DEBUG_EXIT_PORT 0xf4

static const char *const exit_names[] = {"auto", "halt", "reboot", "poweroff", NULL};

#ifndef BOOT_EFI
#include "lib/options.h"

/* So that the parser knows the key and checks the value; what is used is what the door read. */
static unsigned exit_checked;
OPTION_ENUM(exit, "exit", exit_checked, exit_names,
            "how the machine ends: auto, halt, reboot, poweroff");
#endif

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || c == '\0';
}

static bool token_equals(const char *token, size_t n, const char *s)
{
    size_t i;

    for (i = 0; i < n; i++)
        if (s[i] == '\0' || s[i] != token[i])
            return false;
    return s[n] == '\0';
}

enum machine_exit machine_exit_option(const char *text, size_t n)
{
    static const char key[] = "exit=";
    const size_t key_len = sizeof(key) - 1;
    enum machine_exit found = MACHINE_EXIT_AUTO;
    size_t i = 0, start, v;

    while (i < n) {
        if (text[i] == '#') {
            while (i < n && text[i] != '\n' && text[i] != '\r')
                i++;
        } else if (is_space(text[i])) {
            i++;
        } else {
            for (start = i; i < n && !is_space(text[i]) && text[i] != '#'; i++)
                ;
            if (i - start <= key_len || !token_equals(text + start, key_len, key))
                continue;
            for (v = 0; exit_names[v]; v++)
                if (token_equals(text + start + key_len, i - start - key_len, exit_names[v]))
                    found = (enum machine_exit)v;
        }
    }
    return found;
}

/* CPUID.1:ECX[31], reserved for this by both vendors. */
static bool under_hypervisor(void)
{
    uint32_t a = 1, b, c = 0, d;

    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return c >> 31;
}

void machine_end_debug(uint32_t verdict)
{
    if (under_hypervisor())
        port_out32(DEBUG_EXIT_PORT, verdict);
}

void machine_end(uint32_t verdict, enum machine_exit how, const struct machine_ops *ops)
{
    if (how == MACHINE_EXIT_AUTO && under_hypervisor()) {
        machine_end_debug(verdict);
        how = MACHINE_EXIT_POWEROFF;
    }
    if (how == MACHINE_EXIT_POWEROFF && ops->poweroff)
        ops->poweroff();
    if (how == MACHINE_EXIT_REBOOT && ops->reboot)
        ops->reboot();
    for (;;)
        __asm__ volatile("cli; hlt");
}
