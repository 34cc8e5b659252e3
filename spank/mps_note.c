/* SPDX-License-Identifier: Apache-2.0
 * slurmstepd: the note for the Epilog that a task could not use the MPS daemon that the Prolog set
 * up, and so was not fenced by it: <run_dir>/<job id>.nomps, the reason. It is empty where all
 * tasks could.
 *
 * It is made as root with each step, before its tasks, and filled in a task's process as the user,
 * by the descriptor that root left open. On any fault nothing is written and the job runs.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include <slurm/slurm.h> /* SLURM_BATCH_SCRIPT */

#include "coloc.h"

static struct coloc_kept note = { .fd = -1 };

void coloc_mps_note_open(spank_t spank, int dir, uint32_t job)
{
	uint32_t step = 0;
	char name[48];
	bool first = spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS &&
	             step == SLURM_BATCH_SCRIPT;

	snprintf(name, sizeof(name), "%" PRIu32 ".nomps", job);
	if (first)
		unlinkat(dir, name, 0); /* of a run before this one, which had no Epilog */
	coloc_keep(&note,
	           openat(dir, name,
	                  O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
	                  0600));
}

void coloc_mps_note(const char *why)
{
	int fd = coloc_take(&note);

	if (fd < 0)
		return;
	if (note.seen.st_size == 0) /* one is enough, of however many tasks */
		dprintf(fd, "%s\n", why);
	close(fd);
}
