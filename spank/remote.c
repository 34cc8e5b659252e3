/* SPDX-License-Identifier: Apache-2.0
 * slurmstepd: the environment of the task, as the user, in the task's own process, just before
 * its exec; and, as root before that, the note for the Epilog. Whatever goes wrong here, the
 * task runs.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/slurm.h> /* SLURM_BATCH_SCRIPT */

#include "coloc.h"

/* Slurm's lists hold at most 1024 characters. */
#define VALUE_MAX 4096

static bool has(spank_t spank, const char *name, char *value, int size)
{
	spank_err_t err = spank_getenv(spank, name, value, size);

	if (err == ESPANK_NOSPACE)
		return true; /* cut to size, which is all that the callers need */
	return err == ESPANK_SUCCESS;
}

/* The job, or a job around it, was submitted with one of our options. */
static bool asked(spank_t spank)
{
	char value[8];

	return coloc_options_given() || has(spank, "SLURM_SPANK_COLOC_V", value, sizeof(value));
}

/* Whether the task runs on shards. Slurm's shard plugin itself sets this variable, from the
 * allocation that was made, so it holds for the first run, and also for a restart on a whole
 * GPU, where it is absent (22.05 to 24.11, in the batch step and in steps of srun). */
static bool on_shards(spank_t spank, char *shards, int size)
{
	return has(spank, "SLURM_SHARDS_ON_NODE", shards, size) && atol(shards) > 0;
}

static void drop_forwarded(spank_t spank)
{
	const char *option;
	char name[128];

	/* Up to 64 KiB that job_submit has read: tasks and the jobs they submit do not carry it. */
	spank_unsetenv(spank, "SLURM_SPANK_COLOC_SUMMARY");
	spank_unsetenv(spank, "SLURM_SPANK_COLOC_TICKET");
	spank_unsetenv(spank, "SLURM_SPANK_COLOC_TEXT_SHA256");
	/* An sbatch or srun inside the job would take these for options of its own. */
	for (size_t i = 0; (option = coloc_option_env_name(i)); i++) {
		snprintf(name, sizeof(name), "SLURM_SPANK__SLURM_SPANK_OPTION_coloc_%s", option);
		spank_unsetenv(spank, name);
		spank_unsetenv(spank, name + strlen("SLURM_SPANK_"));
	}
}

/* On shards no request for a GPU may be handed on to the sruns inside. Elsewhere the user's
 * request stands; only what job_submit could merely empty goes, for srun stumbles over an
 * empty SLURM_CPUS_PER_GPU. */
static void mend_request(spank_t spank, bool shards)
{
	char value[VALUE_MAX];

	for (const char *const *var = coloc_gpu_request_vars; *var; var++)
		if (has(spank, *var, value, sizeof(value)) && (shards || value[0] == '\0'))
			spank_unsetenv(spank, *var);
	for (const char *const *var = coloc_gpu_list_vars; *var; var++) {
		if (!has(spank, *var, value, sizeof(value)))
			continue;
		if (shards)
			coloc_strip_items(value, "gpu");
		if (value[0] == '\0')
			spank_unsetenv(spank, *var);
		else if (shards)
			spank_setenv(spank, *var, value, 1);
	}
	/* job_submit made --mem-per-gpu a figure per node, and so it stays on a whole GPU. With
	 * both, srun 26.05 refuses ("mutually exclusive"); 24.11 takes the one per node. */
	if (has(spank, "SLURM_MEM_PER_NODE", value, sizeof(value)))
		spank_unsetenv(spank, "SLURM_MEM_PER_GPU");
}

/* Shards that the job, or this step of it, holds on each of its GPUs on this node, from what
 * Slurm's own plugins set for the allocation. */
static long shards_per_gpu(spank_t spank, const char *shards, long *gpus)
{
	char value[32];

	*gpus = has(spank, "SLURM_GPUS_ON_NODE", value, sizeof(value)) ? atol(value) : 1;
	if (*gpus < 1)
		*gpus = 1;
	return atol(shards) / *gpus;
}

/* Replace the shards in a list of what each task gets by `item`, "" for none. */
static void set_task_item(spank_t spank, const char *name, const char *item)
{
	char value[VALUE_MAX];
	size_t len;

	if (!has(spank, name, value, VALUE_MAX))
		value[0] = '\0';
	coloc_strip_items(value, "shard");
	len = strlen(value);
	if (item[0] != '\0')
		snprintf(value + len, sizeof(value) - len, "%s%s", len ? "," : "", item);
	if (value[0] == '\0')
		spank_unsetenv(spank, name);
	else
		spank_setenv(spank, name, value, 1);
}

/* An srun without a request asks for the very text of the job's request. Where that names a
 * type (shard:a100:11), Slurm then refuses the step ("Invalid generic resource (gres)
 * specification", tried 22.05 and 24.11): give srun the same request without the type. Of the
 * batch script only, on one node: elsewhere a step's share is not that of the node. */
/* With shards of several GPUs, one GPU for each task: the request is per task, as sbatch's own
 * --tres-per-task would have handed it on (26.05 sets SLURM_TRES_PER_TASK from the job, typed;
 * 24.11 leaves the user's --gpus-per-task there). */
static void give_step_default(spank_t spank, const char *shards)
{
	uint32_t step = 0;
	char value[VALUE_MAX];
	long gpus;
	long each = shards_per_gpu(spank, shards, &gpus);

	if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS ||
	    step != SLURM_BATCH_SCRIPT ||
	    !has(spank, "SLURM_JOB_NUM_NODES", value, sizeof(value)) || strcmp(value, "1") != 0)
		return;
	if (gpus > 1) {
		snprintf(value, sizeof(value), "gres/shard:%ld", each);
		set_task_item(spank, "SLURM_TRES_PER_TASK", value);
		snprintf(value, sizeof(value), "gres/shard:per_task:%ld", each);
		set_task_item(spank, "SLURM_TRES_BIND", value);
		return;
	}
	set_task_item(spank, "SLURM_TRES_PER_TASK", "");
	set_task_item(spank, "SLURM_TRES_BIND", "");
	if (has(spank, "SLURM_TRES_PER_TASK", value, sizeof(value)) && strstr(value, "gres"))
		return;
	snprintf(value, sizeof(value), "shard:%s", shards);
	spank_setenv(spank, "SLURM_GRES", value, 0);
}

/* What the user's program may want to know: its shards of a GPU. */
static void set_facts(spank_t spank, const char *shards)
{
	char value[32];
	long gpus;

	if (!shards) {
		spank_unsetenv(spank, "COLOC_SHARDS");
		return;
	}
	snprintf(value, sizeof(value), "%ld", shards_per_gpu(spank, shards, &gpus));
	spank_setenv(spank, "COLOC_SHARDS", value, 1);
}

void coloc_remote_post_opt(spank_t spank, const struct coloc_args *args)
{
	if (spank_remote(spank) != 1 || !asked(spank))
		return;
	coloc_step_note(spank, args);
	coloc_fence_read(spank, args);
	coloc_node_hook_look(args);
}

int coloc_remote_task_init(spank_t spank)
{
	char shards[32];
	bool shared;
	long gpus;

	if (spank_remote(spank) != 1 || !asked(spank))
		return 0;
	coloc_note_logs(STDOUT_FILENO, STDERR_FILENO);
	shared = on_shards(spank, shards, sizeof(shards));
	drop_forwarded(spank);
	mend_request(spank, shared);
	set_facts(spank, shared ? shards : NULL);
	if (shared)
		give_step_default(spank, shards);
	shards_per_gpu(spank, shared ? shards : "0", &gpus);
	coloc_fence_join(spank, shared ? atol(shards) : 0, shared ? gpus : 1);
	return 0;
}
