/* SPDX-License-Identifier: Apache-2.0
 * Arguments of our line in plugstack.conf: max_kib=1..16384, run_dir=/DIR, hooks=/DIR or off,
 * and who gives the ticket for a text: ticket=/PROGRAM|off, ticket_ms=1..10000, socket=/PATH,
 * controllers=HOST:PORT,..., slurm_user=NAME, munge_socket=/PATH. Anything else disables.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coloc.h"

#define MAX_KIB_LIMIT 16384 /* four times the default; a summary of a model is a few hundred KiB */
#define TICKET_MS_LIMIT 10000

static bool parse_number(const char *text, unsigned long most, unsigned long *out)
{
	char *end = NULL;

	if (text[0] < '0' || text[0] > '9')
		return false;
	*out = strtoul(text, &end, 10);
	return *end == '\0' && *out >= 1 && *out <= most;
}

static bool parse_text(const char *text, char *out, size_t size)
{
	if (text[0] == '\0' || strlen(text) >= size)
		return false;
	strcpy(out, text);
	return true;
}

static bool parse_path(const char *text, char *out, size_t size)
{
	return text[0] == '/' && parse_text(text, out, size);
}

/* HOST:PORT,HOST:PORT: each with both; what they name is the program's to find out. */
static bool parse_controllers(const char *text, char *out, size_t size)
{
	if (!parse_text(text, out, size))
		return false;
	for (const char *at = text; at; at = strchr(at, ',')) {
		size_t len;

		at += at > text;
		len = strcspn(at, ",");
		if (len < 3 || at[0] == ':' || at[len - 1] < '0' || at[len - 1] > '9' ||
		    !memchr(at, ':', len))
			return false;
	}
	return true;
}

static bool parse_ticket(const char *word, struct coloc_args *args)
{
	unsigned long number;

	if (strcmp(word, "ticket=off") == 0) {
		args->ticket[0] = '\0';
		return true;
	}
	if (strncmp(word, "ticket=", 7) == 0)
		return parse_path(word + 7, args->ticket, sizeof(args->ticket));
	if (strncmp(word, "ticket_ms=", 10) == 0) {
		if (!parse_number(word + 10, TICKET_MS_LIMIT, &number))
			return false;
		args->ticket_ms = (long) number;
		return true;
	}
	if (strncmp(word, "socket=", 7) == 0)
		return parse_path(word + 7, args->socket, sizeof(args->socket));
	if (strncmp(word, "controllers=", 12) == 0)
		return parse_controllers(word + 12, args->controllers, sizeof(args->controllers));
	if (strncmp(word, "slurm_user=", 11) == 0)
		return parse_text(word + 11, args->slurm_user, sizeof(args->slurm_user));
	if (strncmp(word, "munge_socket=", 13) == 0)
		return parse_path(word + 13, args->munge_socket, sizeof(args->munge_socket));
	return false;
}

static bool parse_one(const char *word, struct coloc_args *args)
{
	unsigned long number;

	if (strncmp(word, "max_kib=", 8) == 0) {
		if (!parse_number(word + 8, MAX_KIB_LIMIT, &number))
			return false;
		args->max_bytes = (size_t) number * 1024;
		return true;
	}
	if (strncmp(word, "run_dir=", 8) == 0)
		return parse_path(word + 8, args->run_dir, sizeof(args->run_dir));
	if (strcmp(word, "hooks=off") == 0) {
		args->hooks[0] = '\0';
		return true;
	}
	if (strncmp(word, "hooks=", 6) == 0)
		return parse_path(word + 6, args->hooks, sizeof(args->hooks));
	return parse_ticket(word, args);
}

bool coloc_args_parse(struct coloc_args *args, int ac, char *argv[])
{
	memset(args, 0, sizeof(*args));
	args->max_bytes = (size_t) COLOC_MAX_KIB * 1024;
	snprintf(args->run_dir, sizeof(args->run_dir), "%s", COLOC_RUN_DIR);
	snprintf(args->hooks, sizeof(args->hooks), "%s", COLOC_HOOKS);
	snprintf(args->ticket, sizeof(args->ticket), "%s", COLOC_TICKET_PROGRAM);
	snprintf(args->socket, sizeof(args->socket), "%s", COLOC_SOCKET);
	snprintf(args->slurm_user, sizeof(args->slurm_user), "slurm");
	args->ticket_ms = COLOC_TICKET_MS;

	for (int i = 0; i < ac; i++) {
		if (!parse_one(argv[i], args)) {
			snprintf(args->bad, sizeof(args->bad), "%s", argv[i]);
			return false;
		}
	}
	return true;
}
