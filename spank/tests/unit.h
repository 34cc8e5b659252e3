/* SPDX-License-Identifier: Apache-2.0
 * What the files of the unit test share.
 */
#ifndef UNIT_H
#define UNIT_H

#include <stdio.h>

#include "coloc.h"

extern int failures;
extern char error[COLOC_ERROR_MAX];

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			printf("%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition,     \
			       error);                                                             \
			failures++;                                                                \
		}                                                                                  \
	} while (0)

void put(const char *path, const void *bytes, size_t len);

/* unit_options.c */
void test_options(void);
void test_duration(void);

/* unit_sha256.c */
void test_sha256(void);

/* unit_ticket.c */
void test_ticket_args(void);
void test_ticket(void);
void test_coloc1(void);

/* unit_note.c */
bool text_is(const char *path, const char *text);
void test_step_note(void);
void test_note_logs(void);

/* unit_fence.c */
void test_fence(void);

/* unit_fence_levels.c */
void test_limit(void);
void test_frameworks(void);

/* unit_node_hooks.c */
void test_node_hooks(void);

#endif
