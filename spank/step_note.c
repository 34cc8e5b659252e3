/* SPDX-License-Identifier: Apache-2.0
 * slurmstepd, batch step: what Prolog and Epilog are not told (22.05 to 24.11), for the Epilog
 * to find this run's text in the job's log. Two files in the hooks' folder:
 *
 * <run_dir>/<job id>.step: "MASTER TASK" of an array or "none", then the job's name, where it
 * has one.
 * <run_dir>/<job id>.logs: "INODE BYTES" of standard output, then of standard error, "0 0" for
 * what is no regular file: the length just before the program starts, so after slurmstepd
 * opened, cut or kept the file.
 *
 * Both are made as root, before the logs are open. The second is filled in the task's process
 * as the user, by the descriptor that root left open. They are written only beside the state
 * that the Prolog wrote for a job of ours, so that there is an Epilog to remove them. On any
 * fault nothing is written and the job runs.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <slurm/slurm.h> /* SLURM_BATCH_SCRIPT, NO_VAL */

#include "coloc.h"

#define JOB_NAME_MAX 600

/* <job id>.logs, open from root's part to the task's */
static struct coloc_kept logs = { .fd = -1 };

/* The file in its place by temporary name and rename; its descriptor, or -1. */
static int put(int dir, uint32_t job, const char *suffix, const char *text, size_t len)
{
	char name[48];
	char temporary[64];
	int fd;

	snprintf(name, sizeof(name), "%" PRIu32 ".%s", job, suffix);
	snprintf(temporary, sizeof(temporary), ".%s.tmp", name);
	unlinkat(dir, temporary, 0); /* of a slurmstepd that was killed */
	fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -1;
	if (write(fd, text, len) == (ssize_t) len && renameat(dir, temporary, dir, name) == 0)
		return fd;
	unlinkat(dir, temporary, 0);
	close(fd);
	return -1;
}

static bool batch_step(spank_t spank, uint32_t *job)
{
	uint32_t step = 0;

	return spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS &&
	       step == SLURM_BATCH_SCRIPT && spank_get_item(spank, S_JOB_ID, job) == ESPANK_SUCCESS;
}

static bool has_state(int dir, uint32_t job)
{
	char name[48];
	struct stat st;

	snprintf(name, sizeof(name), "%" PRIu32 ".json", job);
	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	       st.st_uid == geteuid();
}

void coloc_step_note(spank_t spank, const struct coloc_args *args)
{
	char path[sizeof(args->run_dir) + 256];
	char name[JOB_NAME_MAX];
	char text[JOB_NAME_MAX + 64];
	uint32_t job = 0;
	uint32_t master = 0;
	uint32_t task = NO_VAL;
	int dir;
	int fd;
	int len;

	if (!batch_step(spank, &job) || !coloc_node_dir(args->run_dir, path, sizeof(path)))
		return;
	dir = coloc_open_dir(path);
	if (dir < 0)
		return;
	if (!has_state(dir, job) ||
	    spank_get_item(spank, S_JOB_ARRAY_ID, &master) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_ARRAY_TASK_ID, &task) != ESPANK_SUCCESS)
		goto done;
	if (spank_getenv(spank, "SLURM_JOB_NAME", name, sizeof(name)) != ESPANK_SUCCESS)
		name[0] = '\0';
	if (master != 0 && task != NO_VAL)
		len = snprintf(text, sizeof(text), "%" PRIu32 " %" PRIu32 "\n", master, task);
	else
		len = snprintf(text, sizeof(text), "none\n");
	if (name[0] != '\0')
		len += snprintf(text + len, sizeof(text) - (size_t) len, "%s\n", name);
	fd = put(dir, job, "step", text, (size_t) len);
	if (fd >= 0)
		close(fd);
	coloc_keep(&logs, put(dir, job, "logs", "", 0));
done:
	close(dir);
}

/* A stream's inode and length; zeros for what is no regular file. */
static void look(int stream, uintmax_t *inode, uintmax_t *bytes)
{
	struct stat st;
	bool regular = fstat(stream, &st) == 0 && S_ISREG(st.st_mode);

	*inode = regular ? (uintmax_t) st.st_ino : 0;
	*bytes = regular ? (uintmax_t) st.st_size : 0;
}

void coloc_note_logs(int out, int err)
{
	uintmax_t out_inode;
	uintmax_t out_bytes;
	uintmax_t err_inode;
	uintmax_t err_bytes;
	int fd = coloc_take(&logs);

	if (fd < 0)
		return;
	look(out, &out_inode, &out_bytes);
	look(err, &err_inode, &err_bytes);
	dprintf(fd, "%ju %ju %ju %ju\n", out_inode, out_bytes, err_inode, err_bytes);
	close(fd);
}
