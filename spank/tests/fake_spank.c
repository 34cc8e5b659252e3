/* SPDX-License-Identifier: Apache-2.0
 * The functions of Slurm that the files under test name. options.c registers its table through
 * some, which the unit test never calls; step_note.c asks the others for what fake_job holds.
 * Everything that acts through Slurm is tested in a real one (tests/cluster).
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "fake_spank.h"

struct fake_job fake_job;

/* The task's environment as set by the plugin. */
static struct {
	char name[64];
	char value[512];
} task_env[32];

const char *fake_task_env(const char *name)
{
	for (size_t i = 0; i < 32; i++)
		if (strcmp(task_env[i].name, name) == 0)
			return task_env[i].value;
	return NULL;
}

void fake_task_clear(void)
{
	memset(task_env, 0, sizeof(task_env));
}

spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int overwrite)
{
	size_t i = 0;

	(void) spank;
	while (i < 31 && task_env[i].name[0] != '\0' && strcmp(task_env[i].name, name) != 0)
		i++;
	if (task_env[i].name[0] != '\0' && !overwrite)
		return ESPANK_ENV_EXISTS;
	snprintf(task_env[i].name, sizeof(task_env[i].name), "%s", name);
	snprintf(task_env[i].value, sizeof(task_env[i].value), "%s", value);
	return ESPANK_SUCCESS;
}

const char *spank_strerror(spank_err_t err)
{
	(void) err;
	return "no Slurm here";
}

spank_err_t spank_option_register(spank_t spank, struct spank_option *opt)
{
	(void) spank;
	(void) opt;
	return ESPANK_NOT_AVAIL;
}

void slurm_info(const char *format, ...)
{
	(void) format;
}

void slurm_error(const char *format, ...)
{
	(void) format;
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
	spank_err_t err = ESPANK_SUCCESS;
	va_list values;
	uint32_t *out;

	(void) spank;
	va_start(values, item);
	out = va_arg(values, uint32_t *); /* an int * or a pid_t * is as wide */
	if (item == S_JOB_ARGV)
		*va_arg(values, char ***) = fake_job.argv;
	va_end(values);
	switch (item) {
	case S_JOB_ID:
		*out = fake_job.id;
		break;
	case S_JOB_STEPID:
		*out = fake_job.step;
		break;
	case S_JOB_ARRAY_ID:
		*out = fake_job.master;
		break;
	case S_JOB_ARRAY_TASK_ID:
		*out = fake_job.task;
		break;
	case S_JOB_LOCAL_TASK_COUNT:
		*out = fake_job.tasks;
		break;
	case S_JOB_ARGV:
		for (*out = 0; fake_job.argv && fake_job.argv[*out];)
			(*out)++;
		break;
	case S_TASK_GLOBAL_ID:
		*out = 0;
		break;
	case S_TASK_PID:
		*out = (uint32_t) fake_job.pid;
		break;
	default:
		err = ESPANK_BAD_ARG;
	}
	return err;
}

spank_err_t spank_getenv(spank_t spank, const char *name, char *value, int size)
{
	const char *found = fake_task_env(name);

	(void) spank;
	if (!found && strcmp(name, "SLURM_JOB_NAME") == 0)
		found = fake_job.name;
	if (!found)
		return ESPANK_ENV_NOEXIST;
	if (snprintf(value, (size_t) size, "%s", found) >= size)
		return ESPANK_NOSPACE;
	return ESPANK_SUCCESS;
}
