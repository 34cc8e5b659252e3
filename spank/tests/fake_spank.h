/* SPDX-License-Identifier: Apache-2.0
 * The job that fake_spank.c tells of.
 */
#ifndef FAKE_SPANK_H
#define FAKE_SPANK_H

#include <stdint.h>
#include <sys/types.h>

#include "coloc.h"

struct fake_job {
	uint32_t id;
	uint32_t step;
	uint32_t master;
	uint32_t task;
	const char *name; /* NULL = the environment has none */
	uint32_t tasks;   /* of the step on this node */
	char **argv;      /* of the task, NULL at its end; NULL = not told */
	pid_t pid;        /* of the task */
};

extern struct fake_job fake_job;

/* What the plugin has set for the task, NULL = nothing; and none of it. */
const char *fake_task_env(const char *name);
void fake_task_clear(void);

#endif
