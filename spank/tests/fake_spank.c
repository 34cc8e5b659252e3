/* SPDX-License-Identifier: Apache-2.0
 * The functions of Slurm that the files under test name. options.c registers its table through
 * some, which the unit test never calls; step_note.c asks the others for what fake_job holds.
 * Everything that acts through Slurm is tested in a real one (tests/cluster).
 */
#include <stdarg.h>
#include <stdio.h>

#include "fake_spank.h"

struct fake_job fake_job;

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
	out = va_arg(values, uint32_t *);
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
	default:
		err = ESPANK_BAD_ARG;
	}
	return err;
}

spank_err_t spank_getenv(spank_t spank, const char *name, char *value, int size)
{
	(void) spank;
	(void) name;
	if (!fake_job.name)
		return ESPANK_ENV_NOEXIST;
	if (snprintf(value, (size_t) size, "%s", fake_job.name) >= size)
		return ESPANK_NOSPACE;
	return ESPANK_SUCCESS;
}
