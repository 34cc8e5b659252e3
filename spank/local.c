/* SPDX-License-Identifier: Apache-2.0
 * srun. Outside a job it makes an allocation of its own, like salloc. Inside one it only
 * starts a step: nothing is read again, nothing is forwarded, nothing can fail.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coloc.h"

static bool inside_job; /* as the process was started, before srun sets variables itself */

/* A request for one GPU: "1", "a100:1", "a100", "gpu:1". */
static bool asks_one(const char *value)
{
	const char *count = strrchr(value, ':');

	count = count ? count + 1 : value;
	return count[0] < '0' || count[0] > '9' || strcmp(count, "1") == 0;
}

/* Is a GPU asked for each task? From 24.11 on --gpus-per-task is handed on as tres_per_task. */
static bool asks_per_task(void)
{
	const char *value = getenv("SLURM_TRES_PER_TASK");
	char *list = value ? strdup(value) : NULL;
	bool found = getenv("SLURM_GPUS_PER_TASK") != NULL;

	if (list) {
		coloc_strip_items(list, "gpu");
		found = found || strcmp(list, value) != 0;
		free(list);
	}
	return found;
}

/* salloc leaves the request in its own environment, where no slurmstepd can mend it, and
 * nothing there says whether the job was rewritten to shards. A step without a request gets
 * all that the job has: for a job that asked for one GPU that is the same, rewritten or not,
 * so the request can always go. A request for several GPUs is left to slurmstepd: it stays. */
static void mend_salloc_request(void)
{
	static const char *const counts[] = { "SLURM_GPUS", "SLURM_GPUS_PER_NODE",
	                                      "SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET",
	                                      NULL };
	const char *tasks = getenv("SLURM_NTASKS");

	for (const char *const *var = counts; *var; var++) {
		const char *value = getenv(*var);

		if (value && value[0] && !asks_one(value))
			return;
	}
	if (tasks && strcmp(tasks, "1") != 0 && asks_per_task())
		return;
	for (const char *const *var = coloc_gpu_request_vars; *var; var++)
		unsetenv(*var);
	for (const char *const *var = coloc_gpu_list_vars; *var; var++) {
		const char *value = getenv(*var);
		char *list = value ? strdup(value) : NULL;

		if (!list)
			continue;
		coloc_strip_items(list, "gpu");
		if (list[0] == '\0')
			unsetenv(*var);
		else
			setenv(*var, list, 1);
		free(list);
	}
}

void coloc_local_init(void)
{
	inside_job = getenv("SLURM_JOB_ID") || getenv("SLURM_JOBID");
	if (!inside_job)
		return;
	if (getenv("SLURM_SPANK_COLOC_V") && !getenv("SLURM_STEP_ID"))
		mend_salloc_request();
	coloc_forget_request();
}

int coloc_local_post_opt(spank_t spank, const struct coloc_args *args)
{
	if (inside_job)
		return 0;
	coloc_forward(spank, args, "srun");
	return 0;
}
