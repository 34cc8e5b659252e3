/* SPDX-License-Identifier: Apache-2.0
 * slurmd's Prolog and Epilog of a job, by way of the plugin: slurmd starts `slurmstepd spank prolog`
 * as root, which loads the plugins that plugstack.conf names and that are there. This one starts
 * <hooks>/coloc-prolog, with the environment that a Prolog= script has, and waits for its end.
 *
 * It always answers 0, so no node is drained by it. A Prolog= line of slurm.conf whose file is missing
 * drains every node that reads that line: 22.05 to 26.05 fail where its pattern matches no file
 * (prep_script_slurmd.c). A plugin that is missing, or that is of another release, is passed over
 * where plugstack.conf says `optional`.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "coloc.h"

/* The scripts end `coloc prolog` after 10 s and `coloc epilog` after 12 s themselves. */
#ifndef COLOC_HOOK_MS
#define COLOC_HOOK_MS 16000
#endif
#define LONGEST_PAUSE_MS 16

extern char **environ;

/* Why a job of this node has nothing from the Prolog; for the job's output. */
static char missed[sizeof(((struct coloc_args *) 0)->hooks) + 64] = "its Prolog is not known";

static bool path_of(const struct coloc_args *args, const char *name, char *out, size_t size)
{
	int len = snprintf(out, size, "%s/coloc-%s", args->hooks, name);

	return len > 0 && (size_t) len < size;
}

static void pause_ms(long ms)
{
	struct timespec wait = { .tv_nsec = ms * 1000000 };

	nanosleep(&wait, NULL);
}

/* Its process group is its own: at the deadline it ends with all that it started. */
static int start(const char *path, pid_t *pid)
{
	char *argv[] = { (char *) path, NULL };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none;
	int rc;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	sigemptyset(&none);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setpgroup(&attributes, 0);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
	rc = posix_spawn(pid, path, &actions, &attributes, argv, environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return rc;
}

/* Wait for the script, COLOC_HOOK_MS at most; false where it had to be ended. */
static bool ended(pid_t pid, int *status)
{
	long waited_ms = 0;

	for (long step_ms = 1; waited_ms < COLOC_HOOK_MS; waited_ms += step_ms) {
		pid_t found = waitpid(pid, status, WNOHANG);

		if (found == pid || (found < 0 && errno != EINTR))
			return true;
		if (waited_ms > step_ms && step_ms < LONGEST_PAUSE_MS)
			step_ms *= 2;
		pause_ms(step_ms);
	}
	kill(-pid, SIGKILL);
	while (waitpid(pid, status, 0) < 0 && errno == EINTR)
		;
	return false;
}

int coloc_node_hook(const struct coloc_args *args, const char *name)
{
	char path[sizeof(args->hooks) + 32];
	const char *job = getenv("SLURM_JOB_ID");
	int status = 0;
	pid_t pid;
	int rc;

	/* Jobs without --coloc end here. The value is the user's: it is looked for only. */
	if (args->hooks[0] == '\0' || !getenv("SPANK_COLOC_V") ||
	    !path_of(args, name, path, sizeof(path)))
		return 0;
	rc = start(path, &pid);
	if (rc != 0)
		slurm_error("coloc: job %s: %s: %s: the job goes on without it", job ? job : "?",
		            path, strerror(rc));
	else if (!ended(pid, &status))
		slurm_error("coloc: job %s: %s did not end in %d s and was ended: the job goes on",
		            job ? job : "?", path, COLOC_HOOK_MS / 1000);
	else if (status != 0)
		slurm_error("coloc: job %s: %s ended with status 0x%04x: the job goes on",
		            job ? job : "?", path, (unsigned) status);
	return 0;
}

void coloc_node_hook_look(const struct coloc_args *args)
{
	char path[sizeof(args->hooks) + 32];

	if (args->hooks[0] != '\0' && path_of(args, "prolog", path, sizeof(path)) &&
	    access(path, X_OK) != 0)
		snprintf(missed, sizeof(missed), "%s: %s", path, strerror(errno));
	else
		snprintf(missed, sizeof(missed), "coloc prolog did not run, see slurmd's log");
}

void coloc_node_hook_missed(void)
{
	dprintf(STDERR_FILENO,
	        "coloc: not fenced and not measured, this node was not set up for the job: %s\n",
	        missed);
}
