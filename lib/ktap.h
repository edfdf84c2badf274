/*
 * ktap.h: writes KTAP version 1 (Linux Documentation/dev-tools/ktap.rst) to the console, and the
 * RESULT line. Lines end in LF here; the serial driver makes CRLF of it. One writer at a time.
 */
#ifndef LIB_KTAP_H
#define LIB_KTAP_H

#include "lib/base.h"

enum ktap_status { KTAP_PASS, KTAP_SKIP, KTAP_FAIL, KTAP_ERROR };

struct ktap {
    unsigned planned, run, passed, failed, skipped, errors;
};

/* "KTAP version 1" */
void ktap_begin(struct ktap *k);
/* "1..n" */
void ktap_plan(struct ktap *k, unsigned n);
/* "ok 3 name", "ok 3 name # SKIP why", "not ok 3 name" (fail: "# why" follows on its own line;
 * error: "not ok 3 name # error why"). `why` may be NULL. */
void ktap_result(struct ktap *k, const char *name, enum ktap_status s, const char *why);
/* "# text": one diagnostic line. */
void ktap_note(const char *fmt, ...) __printf(1, 2);
/* "RESULT: PASS tests=14 fail=0 skip=0 error=0". The verdict: error beats fail beats pass; all
 * skipped is SKIP; nothing run, or not as many as planned, is ERROR. Returns it. */
enum ktap_status ktap_finish(struct ktap *k);
/* "# error: why" and "RESULT: ERROR tests=0 fail=0 skip=0 error=1", for what stops early. */
enum ktap_status ktap_bail(struct ktap *k, const char *why);

#endif
