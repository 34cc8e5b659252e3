/* SPDX-License-Identifier: Apache-2.0
 * FILE with %a. An array is one job record with one request, made before the indexes exist,
 * and SPANK does not tell the plugin what --array says. So every file that FILE can stand for
 * is read, those with the same text count once, and all distinct texts are forwarded, the
 * largest first, with a line that holds one form feed between them: colocd sizes the array
 * for the largest of its models. README.md, "Job arrays", is the contract.
 *
 * %a is the index as Slurm prints it; %4a pads it with zeros to four digits.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coloc.h"

/* All files together; the default max_kib allows 256 MiB: a second from a page cache. */
#define TOTAL_READ_FACTOR 64

static const char separator[] = "\f\n";

struct distinct {
	struct coloc_text *texts;
	size_t count;
	size_t bytes;      /* of the texts kept */
	size_t bytes_read; /* of all files */
};

/* At a "%a" or "%4a": its length, and the width; else 0. */
static size_t index_mark(const char *p, int *width)
{
	size_t digits;

	if (p[0] != '%')
		return 0;
	digits = strspn(p + 1, "0123456789");
	if (digits > 2 || p[1 + digits] != 'a')
		return 0;
	*width = digits ? atoi(p + 1) : 0;
	/* Slurm pads to at most ten digits. */
	if (*width > 10)
		*width = 10;
	return digits + 2;
}

bool coloc_array_pattern(const char *path)
{
	int width;

	for (const char *p = strchr(path, '%'); p; p = strchr(p + 1, '%'))
		if (index_mark(p, &width) || strncmp(p, "%A", 2) == 0)
			return true;
	return false;
}

/* FILE for one index. False when it does not fit. */
static bool expand(const char *pattern, size_t len, unsigned long index, char *out, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; i < len;) {
		int width = 0;
		size_t mark = index_mark(pattern + i, &width);
		int n;

		if (mark && i + mark <= len) {
			n = snprintf(out + used, size - used, "%0*lu", width ? width : 1, index);
			i += mark;
		} else {
			n = snprintf(out + used, size - used, "%c", pattern[i]);
			i++;
		}
		if (n < 0 || (size_t) n >= size - used)
			return false;
		used += (size_t) n;
	}
	out[used] = '\0';
	return true;
}

/* Add the text unless it is there already; takes it over either way. */
static bool keep(struct distinct *all, struct coloc_text *text, size_t max_bytes, char *error)
{
	struct coloc_text *grown;

	for (size_t i = 0; i < all->count; i++) {
		if (all->texts[i].len == text->len &&
		    memcmp(all->texts[i].text, text->text, text->len) == 0) {
			free(text->text);
			return true;
		}
	}
	if (all->bytes + text->len > max_bytes) {
		snprintf(error, COLOC_ERROR_MAX,
		         "the different summaries together are larger than %zu KiB",
		         max_bytes / 1024);
		goto refuse;
	}
	grown = realloc(all->texts, (all->count + 1) * sizeof(*grown));
	if (!grown) {
		snprintf(error, COLOC_ERROR_MAX, "%s", strerror(ENOMEM));
		goto refuse;
	}
	all->texts = grown;
	all->texts[all->count++] = *text;
	all->bytes += text->len;
	return true;
refuse:
	free(text->text);
	return false;
}

static bool read_one(const char *path, size_t max_bytes, struct distinct *all, char *error)
{
	struct coloc_text text;
	char why[COLOC_ERROR_MAX / 2];
	char full[COLOC_ERROR_MAX];
	char shown[256];

	if (!coloc_summary_read(path, max_bytes, &text, full)) {
		snprintf(why, sizeof(why), "%.500s", full);
		snprintf(error, COLOC_ERROR_MAX, "%s: %s", coloc_printable(path, shown), why);
		return false;
	}
	all->bytes_read += text.len;
	if (all->bytes_read > max_bytes * TOTAL_READ_FACTOR) {
		free(text.text);
		snprintf(error, COLOC_ERROR_MAX, "its files together are larger than %zu MiB",
		         max_bytes / 1024 * TOTAL_READ_FACTOR / 1024);
		return false;
	}
	return keep(all, &text, max_bytes, error);
}

/* Read the file of every index for which the component [start, start + len) of the pattern
 * has an entry in dir. */
static bool read_matches(DIR *dir, const char *pattern, size_t start, size_t len, size_t max_bytes,
                         struct distinct *all, char *error)
{
	const char *component = pattern + start;
	const char *mark = component;
	size_t matches = 0;
	struct dirent *entry;
	int width;

	while (!index_mark(mark, &width))
		mark++;
	while ((entry = readdir(dir))) {
		const char *digits = entry->d_name + (mark - component);
		char name[NAME_MAX + 1];
		char path[PATH_MAX];
		unsigned long index;

		if (strncmp(entry->d_name, component, (size_t) (mark - component)) != 0 ||
		    !isdigit((unsigned char) digits[0]))
			continue;
		errno = 0;
		index = strtoul(digits, NULL, 10);
		/* Slurm's own array indexes are below 4,000,001. */
		if (errno || index > UINT_MAX ||
		    !expand(component, len, index, name, sizeof(name)) ||
		    strcmp(name, entry->d_name) != 0 ||
		    !expand(pattern, strlen(pattern), index, path, sizeof(path)))
			continue;
		/* %a in a directory's name: a directory without the file is not one of ours. */
		if (pattern[start + len] && access(path, F_OK) != 0 && errno == ENOENT)
			continue;
		if (++matches > COLOC_ARRAY_FILES_MAX) {
			snprintf(error, COLOC_ERROR_MAX, "more than %d files match it",
			         COLOC_ARRAY_FILES_MAX);
			return false;
		}
		if (!read_one(path, max_bytes, all, error))
			return false;
	}
	if (matches == 0) {
		snprintf(error, COLOC_ERROR_MAX, "no file matches it with a number for %%a");
		return false;
	}
	return true;
}

static int by_size(const void *a, const void *b)
{
	size_t x = ((const struct coloc_text *) a)->len;
	size_t y = ((const struct coloc_text *) b)->len;

	return x < y ? 1 : x > y ? -1 : 0;
}

static bool join(struct distinct *all, struct coloc_text *out, char *error)
{
	size_t size = all->bytes + all->count * sizeof(separator);
	char *at = malloc(size);

	if (!at) {
		snprintf(error, COLOC_ERROR_MAX, "%s", strerror(ENOMEM));
		return false;
	}
	qsort(all->texts, all->count, sizeof(*all->texts), by_size);
	out->text = at;
	for (size_t i = 0; i < all->count; i++) {
		if (i) {
			if (at[-1] != '\n')
				*at++ = '\n';
			memcpy(at, separator, sizeof(separator) - 1);
			at += sizeof(separator) - 1;
		}
		memcpy(at, all->texts[i].text, all->texts[i].len);
		at += all->texts[i].len;
	}
	out->len = (size_t) (at - out->text);
	return true;
}

bool coloc_array_read(const char *path, size_t max_bytes, struct coloc_text *out,
                      char error[COLOC_ERROR_MAX])
{
	struct distinct all = { 0 };
	const char *mark = path;
	char parent[PATH_MAX];
	size_t start;
	size_t len;
	DIR *dir = NULL;
	bool ok = false;
	int width;

	out->text = NULL;
	out->len = 0;
	if (strstr(path, "%A")) {
		snprintf(error, COLOC_ERROR_MAX, "%%A is not known before the job is submitted");
		return false;
	}
	while (!index_mark(mark, &width))
		mark++;
	for (start = (size_t) (mark - path); start > 0 && path[start - 1] != '/'; start--)
		;
	len = strcspn(path + start, "/");
	if (start >= sizeof(parent)) {
		snprintf(error, COLOC_ERROR_MAX, "%s", strerror(ENAMETOOLONG));
		return false;
	}
	memcpy(parent, path, start);
	parent[start] = '\0';
	dir = opendir(start ? parent : ".");
	if (!dir) {
		snprintf(error, COLOC_ERROR_MAX, "%s", strerror(errno));
		return false;
	}
	ok = read_matches(dir, path, start, len, max_bytes, &all, error) && join(&all, out, error);
	closedir(dir);
	for (size_t i = 0; i < all.count; i++)
		free(all.texts[i].text);
	free(all.texts);
	return ok;
}
