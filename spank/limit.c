/* SPDX-License-Identifier: Apache-2.0
 * slurmstepd: the kernel's limit of device memory on the job's cgroup, before its first task runs.
 *
 * Here the job's cgroup is there for the first time. `coloc fence JOB PID` does the work, as root,
 * in a process of its own: a driver that hangs costs LIMIT_MS and nothing else. Its program and
 * configuration are named by the Prolog's file. What it said is kept in memory that the tasks, made
 * already and waiting, share with slurmstepd.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "coloc.h"

#define LIMIT_MS 3000
#define END_MS 500 /* after its output has ended, or after SIGKILL */

static struct {
	bool done;
	uint32_t job;
	char program[256];
	char config[256 + sizeof("COLOC_CONFIG=")];
	bool *held; /* shared with the tasks; NULL: nothing is wanted */
} limit;

void coloc_limit_prepare(uint32_t job, const char *program, const char *config)
{
	void *page;

	if (limit.held)
		munmap(limit.held, sizeof(*limit.held));
	memset(&limit, 0, sizeof(limit));
	if (program[0] != '/' || strlen(program) >= sizeof(limit.program) || strlen(config) >= 256)
		return;
	page = mmap(NULL, sizeof(*limit.held), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
	            -1, 0);
	if (page == MAP_FAILED)
		return;
	limit.held = page;
	limit.job = job;
	strcpy(limit.program, program);
	if (config[0] != '\0')
		snprintf(limit.config, sizeof(limit.config), "COLOC_CONFIG=%s", config);
}

bool coloc_limit_held(void)
{
	return limit.held && *limit.held;
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* All that comes from fd until its end or the deadline; what has no room is passed over. */
static bool read_all(int fd, char *out, size_t size)
{
	long end = now_ms() + LIMIT_MS;
	char rest[256];
	size_t len = 0;

	for (;;) {
		struct pollfd wait = { .fd = fd, .events = POLLIN };
		long left = end - now_ms();
		size_t room = size - 1 - len;
		ssize_t got;

		if (left <= 0 || poll(&wait, 1, (int) left) <= 0)
			return false;
		got = room ? read(fd, out + len, room) : read(fd, rest, sizeof(rest));
		if (got <= 0)
			return got == 0;
		len += room ? (size_t) got : 0;
		out[len] = '\0';
	}
}

/* Wait for the program, END_MS at most: one that the kernel holds in the driver stays behind, and
 * is its own new parent's when slurmstepd ends. */
static bool ended(pid_t pid, int *status)
{
	long end = now_ms() + END_MS;
	struct timespec pause = { 0, 2000000 };

	for (;;) {
		pid_t done = waitpid(pid, status, WNOHANG);

		if (done == pid)
			return true;
		if ((done < 0 && errno != EINTR) || now_ms() > end)
			return false;
		nanosleep(&pause, NULL);
	}
}

/* Start the program with its output in *out; -1 where it cannot be started. */
static pid_t start(const char *job, const char *task, int *out)
{
	char *argv[] = { limit.program, "fence", (char *) job, (char *) task, NULL };
	char *env[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8",
	                limit.config[0] ? limit.config : NULL, NULL };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none;
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) != 0)
		return -1;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
	posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
	/* slurmstepd holds signals back; the program shall not. */
	sigemptyset(&none);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	if (posix_spawn(&pid, limit.program, &actions, &attributes, argv, env) != 0)
		pid = -1;
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	if (pid < 0)
		close(ends[0]);
	*out = ends[0];
	return pid;
}

void coloc_limit_set(spank_t spank)
{
	char job[16], task[16], said[512] = "";
	pid_t task_pid = 0;
	int status = 0;
	bool in_time;
	int out;
	pid_t pid;

	if (!limit.held || limit.done ||
	    spank_get_item(spank, S_TASK_PID, &task_pid) != ESPANK_SUCCESS)
		return;
	limit.done = true; /* once a step: its tasks are in one cgroup of the job */
	snprintf(job, sizeof(job), "%u", limit.job);
	snprintf(task, sizeof(task), "%d", (int) task_pid);
	pid = start(job, task, &out);
	if (pid < 0)
		return;
	in_time = read_all(out, said, sizeof(said));
	close(out);
	if (!in_time)
		kill(pid, SIGKILL);
	if (!ended(pid, &status)) {
		kill(pid, SIGKILL);
		in_time = false;
		ended(pid, &status);
	}
	*limit.held = in_time && WIFEXITED(status) && WEXITSTATUS(status) == 0 &&
	              strncmp(said, "cgroup ", 7) == 0;
	if (!*limit.held)
		slurm_info("coloc: job %u has no limit by its cgroup: %s", limit.job,
		           in_time ? said : "no answer in time");
}
