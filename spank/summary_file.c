/* SPDX-License-Identifier: Apache-2.0
 * Open, check and read one summary. This runs in the submitter's own process with the
 * submitter's own rights; the checks are there to give a clear line in place of a hang
 * (FIFO, device) or of a job that carries megabytes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coloc.h"

/* A summary is text. Progress bars bring \b and colours bring ESC; past 5 % of other control
 * characters it is no text (random bytes hold 9 %, and a NUL in the first 256 of them). */
#define CONTROL_PERCENT_MAX 5

const char *coloc_printable(const char *path, char out[256])
{
	size_t i;

	for (i = 0; path[i] && i < 200; i++) {
		unsigned char c = (unsigned char) path[i];

		out[i] = (char) (c < 32 || c == 127 ? '?' : c);
	}
	out[i] = '\0';
	if (path[i])
		strcpy(out + i, "...");
	return out;
}

static const char *kind_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return "it is a directory";
	case S_IFIFO:
		return "it is a FIFO";
	case S_IFSOCK:
		return "it is a socket";
	case S_IFCHR:
	case S_IFBLK:
		return "it is a device";
	default:
		return "it is not a regular file";
	}
}

static bool too_large(size_t max_bytes, char *error)
{
	snprintf(error, COLOC_ERROR_MAX, "it is larger than %zu KiB", max_bytes / 1024);
	return false;
}

/* stat before open: opening a device can have effects of its own. fstat after: what was
 * opened is what counts. O_NONBLOCK: should a FIFO slip in between, open must not wait. */
static int open_regular(const char *path, size_t max_bytes, char *error)
{
	struct stat st;
	int fd;

	if (stat(path, &st) != 0) {
		snprintf(error, COLOC_ERROR_MAX, "%s", strerror(errno));
		return -1;
	}
	if (!S_ISREG(st.st_mode)) {
		snprintf(error, COLOC_ERROR_MAX, "%s", kind_of(st.st_mode));
		return -1;
	}
	fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0) {
		snprintf(error, COLOC_ERROR_MAX, "%s", strerror(errno));
		goto refuse;
	}
	if (!S_ISREG(st.st_mode)) {
		snprintf(error, COLOC_ERROR_MAX, "%s", kind_of(st.st_mode));
		goto refuse;
	}
	if (st.st_size > 0 && (unsigned long long) st.st_size > max_bytes) {
		too_large(max_bytes, error);
		goto refuse;
	}
	return fd;
refuse:
	if (fd >= 0)
		close(fd);
	return -1;
}

/* The size that fstat told is only a hint (files of /proc say 0, a file may grow): read until
 * the end, but never more than one byte past the limit. */
static bool read_all(int fd, size_t max_bytes, struct coloc_text *out, char *error)
{
	size_t room = 0;

	for (;;) {
		ssize_t n;

		if (out->len == room) {
			size_t grown = room ? room * 2 : 65536;
			char *text;

			if (grown > max_bytes + 1)
				grown = max_bytes + 1;
			text = realloc(out->text, grown);
			if (!text) {
				snprintf(error, COLOC_ERROR_MAX, "%s", strerror(ENOMEM));
				return false;
			}
			out->text = text;
			room = grown;
		}
		n = read(fd, out->text + out->len, room - out->len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			snprintf(error, COLOC_ERROR_MAX, "%s", strerror(errno));
			return false;
		}
		if (n == 0)
			return true;
		out->len += (size_t) n;
		if (out->len > max_bytes)
			return too_large(max_bytes, error);
	}
}

static bool check_text(const struct coloc_text *in, char *error)
{
	size_t control = 0;
	size_t blank = 0;

	for (size_t i = 0; i < in->len; i++) {
		unsigned char c = (unsigned char) in->text[i];

		if (c == '\0') {
			snprintf(error, COLOC_ERROR_MAX,
			         "it is binary or UTF-16 (a NUL byte at offset %zu)", i);
			return false;
		}
		if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f')
			blank++;
		else if ((c < 32 && c != 27 && c != '\b') || c == 127)
			control++;
	}
	if (blank == in->len) {
		snprintf(error, COLOC_ERROR_MAX, "it is empty");
		return false;
	}
	if (control * 100 > in->len * CONTROL_PERCENT_MAX) {
		snprintf(error, COLOC_ERROR_MAX,
		         "it is binary (%zu control characters in %zu bytes)", control, in->len);
		return false;
	}
	return true;
}

bool coloc_is_script(const char *path)
{
	char ignored[COLOC_ERROR_MAX];
	char begin[2];
	int fd = open_regular(path, SIZE_MAX, ignored);
	bool found = fd >= 0 && read(fd, begin, 2) == 2 && memcmp(begin, "#!", 2) == 0;

	if (fd >= 0)
		close(fd);
	return found;
}

bool coloc_summary_read(const char *path, size_t max_bytes, struct coloc_text *out,
                        char error[COLOC_ERROR_MAX])
{
	bool ok = false;
	int fd;

	out->text = NULL;
	out->len = 0;
	fd = open_regular(path, max_bytes, error);
	if (fd < 0)
		return false;
	ok = read_all(fd, max_bytes, out, error) && check_text(out, error);
	close(fd);
	if (!ok) {
		free(out->text);
		out->text = NULL;
		out->len = 0;
	}
	return ok;
}
