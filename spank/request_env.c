/* SPDX-License-Identifier: Apache-2.0
 * The variables by which sbatch and salloc hand the user's GPU request on to the sruns inside
 * the job. After a rewrite to shards they ask for a GPU that the job does not have, and srun
 * ends with "Invalid generic resource (gres) specification".
 * Source: env_vars[] of srun's opt.c, 22.05 and 24.11.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coloc.h"

/* These speak of GPUs only: they go. */
const char *const coloc_gpu_request_vars[] = {
	"SLURM_GPUS",
	"SLURM_GPUS_PER_NODE",
	"SLURM_GPUS_PER_TASK",
	"SLURM_GPUS_PER_SOCKET",
	"SLURM_CPUS_PER_GPU",
	"SLURM_MEM_PER_GPU",
	"SLURM_GPU_BIND",
	"SLURM_GPU_FREQ",
	"SLURM_NTASKS_PER_GPU",
	"SLURM_NTASKS_PER_TRES",
	NULL,
};

/* These are lists that can also name CPUs and licenses: only their GPU items go. */
const char *const coloc_gpu_list_vars[] = {
	"SLURM_TRES_PER_TASK", "SLURM_TRES_BIND", "SLURM_STEP_GRES", "SLURM_GRES", NULL,
};

static bool is_item(const char *item, size_t len, const char *name)
{
	size_t own = strlen(name);

	/* "gres/gpu:1" (24.11), "gres:gpu:1" (22.05), "gpu:1", "gpu:a100=1", "gpu" */
	if (len >= 5 && (strncmp(item, "gres/", 5) == 0 || strncmp(item, "gres:", 5) == 0)) {
		item += 5;
		len -= 5;
	}
	return len >= own && strncmp(item, name, own) == 0 &&
	       (len == own || item[own] == ':' || item[own] == '=');
}

/* Take the items of gres `name` out of "cpu:2,gres/gpu:1", in place. */
void coloc_strip_items(char *list, const char *name)
{
	char *to = list;

	for (char *item = list; *item;) {
		size_t len = strcspn(item, ",");
		char *next = item + len + (item[len] == ',');

		if (!is_item(item, len, name)) {
			if (to != list)
				*to++ = ',';
			memmove(to, item, len);
			to += len;
		}
		item = next;
	}
	*to = '\0';
}

static void forget(const char *const *names)
{
	for (; *names; names++)
		unsetenv(*names);
}

/* In any program inside a job: drop the outer job's options and summary. Slurm would take
 * SLURM_SPANK__SLURM_SPANK_OPTION_coloc_* for options given to this program. */
void coloc_forget_request(void)
{
	static const char *const summary[] = { "SLURM_SPANK_COLOC_SUMMARY", NULL };
	const char *option;
	char name[128];

	forget(summary);
	for (size_t i = 0; (option = coloc_option_env_name(i)); i++) {
		snprintf(name, sizeof(name), "SLURM_SPANK__SLURM_SPANK_OPTION_coloc_%s", option);
		unsetenv(name);
		unsetenv(name + strlen("SLURM_SPANK_"));
	}
}

/* In sbatch and salloc inside a job: drop all that the outer job was told, too. */
void coloc_forget_job(void)
{
	static const char *const told[] = {
		"SLURM_SPANK_COLOC_V",
		"SLURM_SPANK_COLOC_KIND",
		"SLURM_SPANK_COLOC_SEQ_LEN",
		"SLURM_SPANK_COLOC_INPUT",
		"SLURM_SPANK_COLOC_BATCH_SIZE",
		"SLURM_SPANK_COLOC_POLICY",
		"SLURM_SPANK_COLOC_OPTIMIZER",
		"COLOC_SHARDS",
		"SLURM_SPANK_COLOC_PRECISION",
		"SLURM_SPANK_COLOC_TRAINING",
		"SLURM_SPANK_COLOC_MEMORY",
		"SLURM_SPANK_COLOC_SLOT",
		"SLURM_SPANK_COLOC_MAX_SLOWDOWN",
		"COLOC_SLOT",
		NULL,
	};

	const char *shards = getenv("COLOC_SHARDS");
	const char *gres = getenv("SLURM_GRES");

	/* remote.c gave this to the sruns of the outer job; one that the user set stays. */
	if (shards && gres && strncmp(gres, "shard:", 6) == 0 && strcmp(gres + 6, shards) == 0)
		unsetenv("SLURM_GRES");
	coloc_forget_request();
	forget(told);
}
