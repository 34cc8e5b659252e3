/* SPDX-License-Identifier: Apache-2.0
 * slurmstepd: which of the job's GPUs is this task's own, where each task has one (lines `task` of
 * the Prolog's file).
 *
 * Under ConstrainDevices every task counts its GPU as 0, so Slurm's number says nothing; but the
 * task may open the device file of that GPU alone, and access() asks the device cgroup without
 * opening the device. Where nothing is held back Slurm's number tells it; so it does where none may
 * be opened, as in a container that was given no devices.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coloc.h"

#define MAX_GPUS 16

#ifndef COLOC_DEV
#define COLOC_DEV "/dev" /* another folder in the unit test */
#endif

static struct coloc_own_gpu gpus[MAX_GPUS];
static size_t count;

void coloc_own_forget(void)
{
	count = 0;
}

void coloc_own_take(const char *value)
{
	struct coloc_own_gpu *gpu = &gpus[count];

	int found;

	if (count >= MAX_GPUS)
		return;
	found =
	    sscanf(value, "%d %127s %199s %d", &gpu->minor, gpu->uuid, gpu->folder, &gpu->number);
	if (found < 3)
		return;
	if (found == 3) /* by the Prolog of an older release */
		gpu->number = gpu->minor;
	count++;
}

bool coloc_own_any(void)
{
	return count > 0;
}

static bool may_open(int minor)
{
	char path[64];

	snprintf(path, sizeof(path), COLOC_DEV "/nvidia%d", minor);
	return access(path, R_OK | W_OK) == 0;
}

static bool is_number(const char *text)
{
	return text[0] != '\0' && text[strspn(text, "0123456789")] == '\0';
}

const struct coloc_own_gpu *coloc_own_gpu(spank_t spank)
{
	const struct coloc_own_gpu *found = NULL;
	size_t open = 0;
	char now[256];

	for (size_t i = 0; i < count; i++)
		if (may_open(gpus[i].minor)) {
			found = &gpus[i];
			open++;
		}
	if (open == 1 && count > 1)
		return found;
	if (spank_getenv(spank, "CUDA_VISIBLE_DEVICES", now, sizeof(now)) != ESPANK_SUCCESS)
		return NULL;
	for (size_t i = 0; i < count; i++)
		if (strcmp(now, gpus[i].uuid) == 0 ||
		    ((open == count || open == 0) && is_number(now) && atoi(now) == gpus[i].number))
			return &gpus[i];
	return NULL; /* several, as in the batch script, or it cannot be told */
}
