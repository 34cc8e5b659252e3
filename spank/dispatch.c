/* SPDX-License-Identifier: Apache-2.0
 * The entry points that Slurm calls. One plugin is loaded into five programs; each entry
 * point is a switch on the program (the SPANK context), the work is in the context's file.
 */
#include "coloc.h"

#pragma GCC visibility push(default)
SPANK_PLUGIN(coloc, 1)
#pragma GCC visibility pop

static struct coloc_args plugstack_args;
static bool disabled;

/* First call in every context: options must be registered here or the program refuses them. */
int slurm_spank_init(spank_t spank, int ac, char *argv[])
{
	disabled = !coloc_args_parse(&plugstack_args, ac, argv);

	switch (spank_context()) {
	case S_CTX_ALLOCATOR:
		coloc_allocator_init();
		return coloc_options_register(spank);
	case S_CTX_LOCAL:
		coloc_local_init();
		return coloc_options_register(spank);
	case S_CTX_REMOTE:
		return coloc_options_register(spank);
	case S_CTX_SLURMD:
		/* The one place where an administrator looks; users hear of it only with --coloc. */
		if (disabled)
			slurm_error("coloc: plugin disabled, fix plugstack.conf: "
			            "unknown argument \"%s\"",
			            plugstack_args.bad);
		return 0;
	default:
		return 0;
	}
}

/* All options are known. A job that used none of ours is left here, untouched. */
int slurm_spank_init_post_opt(spank_t spank, int ac, char *argv[])
{
	spank_context_t context = spank_context();

	(void) ac;
	(void) argv;

	if (context == S_CTX_REMOTE && !disabled)
		coloc_remote_post_opt(spank, &plugstack_args);
	if (!coloc_options_given())
		return 0;
	if (disabled && (context == S_CTX_ALLOCATOR || context == S_CTX_LOCAL))
		coloc_fail("--coloc cannot be used, tell your administrator: "
		           "unknown plugstack.conf argument \"%s\"",
		           plugstack_args.bad);

	switch (context) {
	case S_CTX_ALLOCATOR:
		return coloc_allocator_post_opt(spank, &plugstack_args);
	case S_CTX_LOCAL:
		return coloc_local_post_opt(spank, &plugstack_args);
	default:
		return 0;
	}
}

/* In `slurmstepd spank prolog` and `epilog`, as root, before and after the job on this node. There
 * slurm_spank_init is not called (tried 24.11), so the arguments are read here. */
static int node_hook(int ac, char *argv[], const char *name)
{
	if (!coloc_args_parse(&plugstack_args, ac, argv)) {
		slurm_error("coloc: no %s: fix plugstack.conf: unknown argument \"%s\"", name,
		            plugstack_args.bad);
		return 0;
	}
	return coloc_node_hook(&plugstack_args, name);
}

int slurm_spank_job_prolog(spank_t spank, int ac, char *argv[])
{
	(void) spank;

	return node_hook(ac, argv, "prolog");
}

int slurm_spank_job_epilog(spank_t spank, int ac, char *argv[])
{
	(void) spank;

	return node_hook(ac, argv, "epilog");
}

/* In slurmstepd, as the user, in each task just before its exec: the last word on its
 * environment, after Slurm has added the variables of gres and of the task. */
int slurm_spank_task_init(spank_t spank, int ac, char *argv[])
{
	(void) ac;
	(void) argv;

	return coloc_remote_task_init(spank);
}

/* In slurmstepd, as root, for each task that is made and waits: the job's cgroup is there. */
int slurm_spank_task_post_fork(spank_t spank, int ac, char *argv[])
{
	(void) ac;
	(void) argv;

	if (spank_remote(spank) == 1)
		coloc_limit_set(spank);
	return 0;
}
