/* SPDX-License-Identifier: Apache-2.0
 * sbatch and salloc. A job submitted from inside a job is a new job: what the outer one
 * asked for, and was told, stays with the outer one.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coloc.h"

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

void coloc_allocator_init(void)
{
	if (getenv("SLURM_JOB_ID"))
		coloc_forget_job();
}

int coloc_allocator_post_opt(spank_t spank, const struct coloc_args *args)
{
	coloc_forward(spank, args, is_salloc() ? "salloc" : "batch");
	return 0;
}
