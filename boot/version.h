/*
 * version.h: what the banner says. The Makefile writes the values.
 */
#ifndef BOOT_VERSION_H
#define BOOT_VERSION_H

extern const char metalmap_version[]; /* "0.1.0" */
extern const char metalmap_build[]; /* abbreviated commit, "-dirty" if the tree was; or "unknown" */

#endif
