/* SPDX-License-Identifier: Apache-2.0
 * What fuzz.c and fuzz_parts.c share.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define INPUT_MAX 4096

/* What must hold, whatever the input: abort() is reported with it. */
#define HOLDS(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			dprintf(1, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                 \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* A part of the plugin with texts that it takes. */
struct fuzz_part {
	void (*run)(char *text, size_t len);
	const char *examples[4];
};
extern const struct fuzz_part fuzz_parts[];
extern const size_t fuzz_parts_count;

/* As libFuzzer calls them. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#endif
