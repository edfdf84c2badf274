/*
 * string_names.h: gives the functions of lib/string.c names that can live beside libc's. Included
 * before everything else when that file is compiled for its test.
 */
#ifndef TESTS_HOST_STRING_NAMES_H
#define TESTS_HOST_STRING_NAMES_H

#define memcpy  k_memcpy
#define memmove k_memmove
#define memset  k_memset
#define memcmp  k_memcmp
#define strlen  k_strlen
#define strnlen k_strnlen
#define strcmp  k_strcmp
#define strncmp k_strncmp
#define strchr  k_strchr
#define strstr  k_strstr

#endif
