/* SPDX-License-Identifier: Apache-2.0
 * sbatch and salloc. A job submitted from inside a job is a new job: what the outer one
 * asked for, and was told, stays with the outer one.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coloc.h"

#define WORDS_BYTES 65536 /* what is read of a command line; options stand at its begin */

/* SPANK does not say which of the two programs we are in; the kernel does. */
static bool is_salloc(void)
{
	char exe[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	const char *base;

	if (n <= 0)
		return strcmp(program_invocation_short_name, "salloc") == 0;
	exe[n] = '\0';
	base = strrchr(exe, '/');
	return strncmp(base ? base + 1 : exe, "salloc", 6) == 0;
}

/* sbatch reads the script before it asks us about our option. */
static void check_command_line(void)
{
	static char text[WORDS_BYTES + 1];
	static char *words[WORDS_BYTES / 2];
	char error[COLOC_ERROR_MAX];
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t bytes = fd < 0 ? 0 : read(fd, text, WORDS_BYTES);
	size_t count = 0;

	if (fd >= 0)
		close(fd);
	/* The program's own name is passed by, and a last word that was cut. */
	for (char *at = text; bytes > 0 && at < text + bytes; at += strlen(at) + 1)
		if (at != text && at + strlen(at) < text + bytes && count + 1 < WORDS_BYTES / 2)
			words[count++] = at;
	if (!coloc_command_line_check(words, error))
		coloc_fail("%s", error);
}

void coloc_allocator_init(void)
{
	if (getenv("SLURM_JOB_ID"))
		coloc_forget_job();
	if (!is_salloc())
		check_command_line();
}

int coloc_allocator_post_opt(spank_t spank, const struct coloc_args *args)
{
	coloc_forward(spank, args, is_salloc() ? "salloc" : "batch");
	return 0;
}
