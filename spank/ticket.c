/* SPDX-License-Identifier: Apache-2.0
 * sbatch, salloc, srun: the ticket for a text, by coloc-ticket, a program of ours beside the plugin
 * (ticket/). It gets the request in a file without a name, an empty environment and a time limit;
 * one line is read of it, and only a ticket's form is believed. Whatever fails, there is no ticket,
 * and the text itself is forwarded.
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

#define REAP_MS 200       /* for a killed program to end; then it is left to init */
#define ALLOCATOR_MAX 512 /* characters; etc/coloc_request.lua takes as many */

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* What the job's environment says of PyTorch's allocator, as the hook reads it of batch jobs (the first
 * name that is set); NULL where it holds more than letters, digits and punctuation without quotes. */
static const char *allocator(void)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "_-:,.[]<> ";
	const char *value = getenv("PYTORCH_ALLOC_CONF");

	if (!value || value[0] == '\0')
		value = getenv("PYTORCH_CUDA_ALLOC_CONF");
	if (!value || value[0] == '\0' || strlen(value) > ALLOCATOR_MAX ||
	    value[strspn(value, plain)] != '\0')
		return NULL;
	return value;
}

static void put(FILE *out, const char *name, const char *value)
{
	if (value)
		fprintf(out, ",\"%s\":\"%s\"", name, value);
}

/* The request to colocd as one line in a file of memory, read from its start; -1 where there is no
 * memory. The values have been checked (options.c) and need no escapes. */
static int compose(const struct coloc_request *request, const char *summary, bool batch)
{
	int fd = memfd_create("coloc-ticket", MFD_CLOEXEC);
	FILE *out = fd >= 0 ? fdopen(dup(fd), "w") : NULL;
	bool good = false;

	if (out) {
		fprintf(out, "{\"v\":1,\"op\":\"ticket\",\"coloc\":{\"summary\":\"%s\"", summary);
		put(out, "batch_size", request->batch_size);
		put(out, "seq_len", request->seq_len);
		put(out, "input", request->input);
		put(out, "optimizer", request->optimizer);
		put(out, "precision", request->precision);
		put(out, "training", request->training);
		put(out, "alloc_conf", batch ? allocator() : NULL);
		fputs("}}\n", out);
		good = !ferror(out);
		good = fclose(out) == 0 && good;
	}
	if (fd >= 0 && (!good || lseek(fd, 0, SEEK_SET) != 0)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* A descriptor that is none of the three that the program gets. */
static int above_2(int fd)
{
	int moved;

	if (fd < 0 || fd > 2)
		return fd;
	moved = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	close(fd);
	return moved;
}

static pid_t spawn(const struct coloc_args *args, int in, int out)
{
	char socket[sizeof(args->socket) + 16], controllers[sizeof(args->controllers) + 16];
	char user[sizeof(args->slurm_user) + 16], munge[sizeof(args->munge_socket) + 16], limit[40];
	char *argv[] = { (char *) args->ticket,
	                 socket,
	                 user,
	                 munge,
	                 limit,
	                 args->controllers[0] ? controllers : NULL,
	                 NULL };
	char *env[] = { NULL };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none, all;
	pid_t pid;

	snprintf(socket, sizeof(socket), "--socket=%s", args->socket);
	snprintf(controllers, sizeof(controllers), "--controllers=%s", args->controllers);
	snprintf(user, sizeof(user), "--slurm-user=%s", args->slurm_user);
	snprintf(munge, sizeof(munge), "--munge-socket=%s", args->munge_socket);
	snprintf(limit, sizeof(limit), "--deadline-ms=%ld", args->ticket_ms);
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in, 0);
	posix_spawn_file_actions_adddup2(&actions, out, 1);
	posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	if (posix_spawn(&pid, args->ticket, &actions, &attributes, argv, env) != 0)
		pid = -1;
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return pid;
}

/* The first bytes of what comes from fd until its end, at most size; -1 at the deadline. */
static ssize_t read_answer(int fd, char *out, size_t size, long end)
{
	size_t len = 0;

	while (len < size) {
		struct pollfd wait = { .fd = fd, .events = POLLIN };
		long left = end - now_ms();
		int ready = left > 0 ? poll(&wait, 1, (int) left) : 0;
		ssize_t got;

		if (ready < 0 && errno == EINTR)
			continue;
		if (ready <= 0)
			return -1;
		got = read(fd, out + len, size - len);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got == 0 ? (ssize_t) len : -1;
		len += (size_t) got;
	}
	return (ssize_t) len;
}

/* End it, whatever it does, and do not wait for what cannot be ended. */
static void reap(pid_t pid)
{
	long end = now_ms() + REAP_MS;

	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, WNOHANG) == 0 && now_ms() < end)
		poll(NULL, 0, 1);
}

static bool is_ticket(const char *text, ssize_t len)
{
	return len == COLOC_TICKET_DIGITS + 1 && text[COLOC_TICKET_DIGITS] == '\n' &&
	       strspn(text, "0123456789abcdef") == COLOC_TICKET_DIGITS;
}

bool coloc_ticket(const struct coloc_args *args, const struct coloc_request *request,
                  const char *summary, bool batch, char ticket[COLOC_TICKET_DIGITS + 1])
{
	long end = now_ms() + args->ticket_ms;
	char text[COLOC_TICKET_DIGITS + 2];
	int ends[2] = { -1, -1 };
	pid_t pid = -1;
	ssize_t len = 0;
	int in = -1;

	if (args->ticket[0] == '\0' ||
	    (args->controllers[0] == '\0' && access(args->socket, F_OK) != 0))
		return false; /* nobody to ask: the program is not even started */
	in = above_2(compose(request, summary, batch));
	if (in < 0 || pipe2(ends, O_CLOEXEC) != 0)
		goto cleanup;
	ends[0] = above_2(ends[0]);
	ends[1] = above_2(ends[1]);
	if (ends[0] < 0 || ends[1] < 0)
		goto cleanup;
	pid = spawn(args, in, ends[1]);
	close(ends[1]);
	ends[1] = -1;
	if (pid < 0)
		goto cleanup;
	len = read_answer(ends[0], text, sizeof(text), end);
	reap(pid);
	if (is_ticket(text, len)) {
		memcpy(ticket, text, COLOC_TICKET_DIGITS);
		ticket[COLOC_TICKET_DIGITS] = '\0';
	} else {
		len = 0;
	}
cleanup:
	for (int i = 0; i < 2; i++)
		if (ends[i] >= 0)
			close(ends[i]);
	if (in >= 0)
		close(in);
	return len > 0;
}
