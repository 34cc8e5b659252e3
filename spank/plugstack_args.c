/* SPDX-License-Identifier: Apache-2.0
 * Arguments of our line in plugstack.conf: max_kib=1..16384, quiet. Anything else disables.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coloc.h"

#define MAX_KIB_LIMIT 16384 /* four times the default; a summary of a model is a few hundred KiB */

static bool parse_kib(const char *text, size_t *bytes)
{
	char *end = NULL;
	unsigned long kib;

	if (text[0] < '0' || text[0] > '9')
		return false;
	kib = strtoul(text, &end, 10);
	if (*end != '\0' || kib < 1 || kib > MAX_KIB_LIMIT)
		return false;
	*bytes = (size_t) kib * 1024;
	return true;
}

bool coloc_args_parse(struct coloc_args *args, int ac, char *argv[])
{
	memset(args, 0, sizeof(*args));
	args->max_bytes = (size_t) COLOC_MAX_KIB * 1024;

	for (int i = 0; i < ac; i++) {
		if (strcmp(argv[i], "quiet") == 0)
			args->quiet = true;
		else if (strncmp(argv[i], "max_kib=", 8) != 0 ||
		         !parse_kib(argv[i] + 8, &args->max_bytes)) {
			snprintf(args->bad, sizeof(args->bad), "%s", argv[i]);
			return false;
		}
	}
	return true;
}
