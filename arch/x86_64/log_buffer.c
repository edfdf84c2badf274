/*
 * log_buffer.c: the log in memory: its beginning for good, its end in a ring, and a note of what is
 * missing in between. Pure C. Written under the console's lock; readers are alone.
 */
#include "arch/x86_64/log_buffer.h"
#include "lib/base.h"
#include "lib/printf.h"
#include "lib/string.h"
#include <arch/console.h>

#define LOG_HEAD (64u * 1024)  /* the beginning of the log, kept for good */
#define LOG_RING (256u * 1024) /* its end */

static struct {
    char head[LOG_HEAD];
    char ring[LOG_RING];
    uint64_t written; /* bytes ever; the first LOG_HEAD lie in head */
} log_buffer;

void log_append(const char *s, size_t n)
{
    while (n) {
        uint64_t at = log_buffer.written;
        char *dst;
        size_t room;

        if (at < LOG_HEAD) {
            dst = log_buffer.head + at;
            room = LOG_HEAD - at;
        } else {
            dst = log_buffer.ring + (at - LOG_HEAD) % LOG_RING;
            room = LOG_RING - (at - LOG_HEAD) % LOG_RING;
        }
        room = MIN(room, n);
        memcpy(dst, s, room);
        s += room;
        n -= room;
        log_buffer.written = at + room;
    }
}

/* Bytes between the head and what the ring still holds. */
static uint64_t log_missing(void)
{
    uint64_t kept = (uint64_t)LOG_HEAD + LOG_RING;

    return log_buffer.written > kept ? log_buffer.written - kept : 0;
}

static size_t log_note(char *buf, size_t size)
{
    if (!log_missing())
        return 0;
    return (size_t)ksnprintf(buf, size, "\n# log: %lu bytes are missing here\n", log_missing());
}

size_t console_log_size(void)
{
    char note[64];

    return (size_t)(log_buffer.written - log_missing()) + log_note(note, sizeof(note));
}

/* A run of bytes at `offset` that lie together, at most n: its length, and where it is. */
static size_t log_run(size_t offset, size_t n, const char *note, size_t note_len, const char **at)
{
    uint64_t pos;
    size_t run;

    if (offset < LOG_HEAD) {
        *at = log_buffer.head + offset;
        run = (size_t)MIN(log_buffer.written, (uint64_t)LOG_HEAD);
        return offset < run ? MIN(n, run - offset) : 0;
    }
    offset -= LOG_HEAD;
    if (offset < note_len) {
        *at = note + offset;
        return MIN(n, note_len - offset);
    }
    pos = LOG_HEAD + log_missing() + (offset - note_len);
    if (pos >= log_buffer.written)
        return 0;
    *at = log_buffer.ring + (pos - LOG_HEAD) % LOG_RING;
    run = LOG_RING - (size_t)((pos - LOG_HEAD) % LOG_RING);
    run = (size_t)MIN((uint64_t)run, log_buffer.written - pos);
    return MIN(n, run);
}

size_t console_log_read(size_t offset, char *dst, size_t n)
{
    char note[64];
    size_t note_len = log_note(note, sizeof(note));
    size_t done = 0, run;
    const char *at;

    while (done < n && (run = log_run(offset + done, n - done, note, note_len, &at)) != 0) {
        memcpy(dst + done, at, run);
        done += run;
    }
    return done;
}
