/*
 * ktap.c: KTAP version 1 lines and the verdict. One writer at a time; uses kprintf, so no NMI.
 */
#include "lib/ktap.h"
#include "lib/printf.h"
#include "lib/string.h"

#define NOTE_MAX_CHARS 960 /* with the prefix it stays below what one kprintf takes */

/* Prints `text` as diagnostics: every line of it begins with "# " and `prefix`. */
static void note_lines(const char *prefix, const char *text)
{
    for (;;) {
        const char *end = strchr(text, '\n');
        size_t n = end ? (size_t)(end - text) : strlen(text);

        kprintf("# %s%.*s\n", prefix, (int)MIN(n, (size_t)NOTE_MAX_CHARS), text);
        if (!end || !end[1])
            return;
        text = end + 1;
    }
}

/* `why` on the result line itself, up to the first line end. */
static void result_line(const char *verdict, unsigned number, const char *name,
                        const char *directive, const char *why)
{
    const char *end;

    if (!directive) {
        kprintf("%s %u %s\n", verdict, number, name);
        return;
    }
    if (!why)
        why = "";
    end = strchr(why, '\n');
    size_t n = end ? (size_t)(end - why) : strlen(why);
    kprintf("%s %u %s # %s%s%.*s\n", verdict, number, name, directive, n ? " " : "",
            (int)MIN(n, (size_t)NOTE_MAX_CHARS), why);
}

static enum ktap_status print_verdict(const struct ktap *k)
{
    static const char *const names[] = {
        [KTAP_PASS] = "PASS", [KTAP_SKIP] = "SKIP", [KTAP_FAIL] = "FAIL", [KTAP_ERROR] = "ERROR"};
    enum ktap_status s = KTAP_PASS;

    if (k->errors)
        s = KTAP_ERROR;
    else if (k->failed)
        s = KTAP_FAIL;
    else if (k->passed == 0)
        s = KTAP_SKIP;
    kprintf("RESULT: %s tests=%u fail=%u skip=%u error=%u\n", names[s], k->run, k->failed,
            k->skipped, k->errors);
    return s;
}

void ktap_begin(struct ktap *k)
{
    memset(k, 0, sizeof(*k));
    kprintf("KTAP version 1\n");
}

void ktap_plan(struct ktap *k, unsigned n)
{
    k->planned = n;
    kprintf("1..%u\n", n);
}

void ktap_result(struct ktap *k, const char *name, enum ktap_status s, const char *why)
{
    unsigned number = ++k->run;

    switch (s) {
    case KTAP_PASS:
        k->passed++;
        result_line("ok", number, name, NULL, NULL);
        break;
    case KTAP_SKIP:
        k->skipped++;
        result_line("ok", number, name, "SKIP", why);
        break;
    case KTAP_FAIL:
        k->failed++;
        result_line("not ok", number, name, NULL, NULL);
        if (why)
            note_lines("", why);
        break;
    case KTAP_ERROR:
        k->errors++;
        result_line("not ok", number, name, "error", why);
        break;
    }
}

void ktap_note(const char *fmt, ...)
{
    char text[NOTE_MAX_CHARS + 1];
    va_list ap;

    va_start(ap, fmt);
    kvsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    note_lines("", text);
}

enum ktap_status ktap_finish(struct ktap *k)
{
    if (k->run == 0) {
        k->errors++;
        ktap_note("error: no test ran");
    } else if (k->run != k->planned) {
        k->errors++;
        ktap_note("error: %u tests ran, %u were planned", k->run, k->planned);
    }
    return print_verdict(k);
}

enum ktap_status ktap_bail(struct ktap *k, const char *why)
{
    k->errors++;
    note_lines("error: ", why);
    return print_verdict(k);
}
