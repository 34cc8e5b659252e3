/* SPDX-License-Identifier: Apache-2.0
 * Arguments of our line in plugstack.conf: max_kib=1..16384, run_dir=/DIR, hooks=/DIR or
 * off, quiet. Anything else disables.
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

static bool parse_dir(const char *text, char *out, size_t size)
{
	if (text[0] != '/' || strlen(text) >= size)
		return false;
	strcpy(out, text);
	return true;
}

static bool parse_one(const char *word, struct coloc_args *args)
{
	if (strcmp(word, "quiet") == 0)
		return args->quiet = true;
	if (strncmp(word, "max_kib=", 8) == 0)
		return parse_kib(word + 8, &args->max_bytes);
	if (strncmp(word, "run_dir=", 8) == 0)
		return parse_dir(word + 8, args->run_dir, sizeof(args->run_dir));
	if (strcmp(word, "hooks=off") == 0) {
		args->hooks[0] = '\0';
		return true;
	}
	if (strncmp(word, "hooks=", 6) == 0)
		return parse_dir(word + 6, args->hooks, sizeof(args->hooks));
	return false;
}

bool coloc_args_parse(struct coloc_args *args, int ac, char *argv[])
{
	memset(args, 0, sizeof(*args));
	args->max_bytes = (size_t) COLOC_MAX_KIB * 1024;
	snprintf(args->run_dir, sizeof(args->run_dir), "%s", COLOC_RUN_DIR);
	snprintf(args->hooks, sizeof(args->hooks), "%s", COLOC_HOOKS);

	for (int i = 0; i < ac; i++) {
		if (!parse_one(argv[i], args)) {
			snprintf(args->bad, sizeof(args->bad), "%s", argv[i]);
			return false;
		}
	}
	return true;
}
