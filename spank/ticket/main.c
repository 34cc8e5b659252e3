/* SPDX-License-Identifier: Apache-2.0
 * coloc-ticket: hands a model's text to colocd before the submission and prints the ticket for it.
 *
 * The SPANK plugin starts it in sbatch, salloc and srun, as the submitting user: so that the plugin
 * links nothing, and what MUNGE, a name server or the network do happens in a process of its own.
 * Contract in spank/README.md. It asks the Unix socket of this host, then each controller, until one
 * gives a ticket. Exit code 0 with a ticket on standard output; 1 without, and standard error says
 * why; 2 for wrong arguments. At the deadline SIGALRM ends it.
 */
#include <errno.h>
#include <getopt.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "ticket.h"

struct settings {
	const char *socket;
	char *controllers;
	const char *slurm_user;
	const char *munge_socket;
	long deadline_ms;
};

static long end_ms; /* CLOCK_MONOTONIC */

void say(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	fputs("coloc-ticket: ", stderr);
	vfprintf(stderr, format, ap);
	fputc('\n', stderr);
	va_end(ap);
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* At least one: 0 would be no limit at all. */
static long left_ms(void)
{
	long left = end_ms - now_ms();

	return left > 1 ? left : 1;
}

/* What sbatch has open is none of ours. */
static void close_others(void)
{
#ifdef SYS_close_range
	if (syscall(SYS_close_range, 3U, ~0U, 0U) == 0)
		return;
#endif
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
}

static bool set_deadline(long deadline_ms)
{
	struct itimerval timer = { .it_value = { deadline_ms / 1000, deadline_ms % 1000 * 1000 } };

	end_ms = now_ms() + deadline_ms;
	return setitimer(ITIMER_REAL, &timer, NULL) == 0;
}

/* The request on standard input: one line, without its newline. */
static bool read_request(char *out, size_t size, size_t *len)
{
	*len = 0;
	for (;;) {
		ssize_t got = read(STDIN_FILENO, out + *len, size - *len);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return false;
		if (got == 0)
			break;
		*len += (size_t) got;
		if (*len == size)
			return false;
	}
	while (*len > 0 && out[*len - 1] == '\n')
		(*len)--;
	out[*len] = '\0';
	return *len > 0 && !memchr(out, '\n', *len) && !memchr(out, '\0', *len);
}

static bool take_ticket(const char *where, const char *answer, char ticket[TICKET_DIGITS + 1])
{
	if (coloc1_ticket(answer, ticket))
		return true;
	say("%s: no ticket: %.300s", where, answer);
	return false;
}

static bool ask_unix(const char *path, const char *request, size_t len, long limit_ms,
                     char ticket[TICKET_DIGITS + 1])
{
	struct wire wire;
	char line[LINE_MAX_BYTES];
	bool found = false;

	if (!wire_unix(&wire, path, limit_ms))
		return false;
	if (wire_send(&wire, request, len) && wire_send(&wire, "\n", 1) &&
	    wire_limit(&wire, left_ms()) && wire_line(&wire, line))
		found = take_ticket(path, line, ticket);
	else
		say("%s: no answer: %s", path, strerror(errno));
	wire_close(&wire);
	return found;
}

static bool uid_of(const char *user, uid_t *uid)
{
	const struct passwd *found;

	if (user[0] != '\0' && strspn(user, "0123456789") == strlen(user) && strlen(user) < 10) {
		*uid = (uid_t) strtoul(user, NULL, 10);
		return true;
	}
	found = getpwnam(user);
	if (!found) {
		say("no user %s here: the controllers cannot be asked", user);
		return false;
	}
	*uid = found->pw_uid;
	return true;
}

/* The hello in answer to a greeting, and the request under its session. */
static bool speak(struct wire *wire, const struct settings *settings, uid_t server,
                  const char *nonce, struct session *session, const char *request, size_t len)
{
	unsigned char key[KEY_BYTES];
	char payload[256], mac[COLOC_SHA256_HEX + 2];
	char *credential;
	bool sent;

	if (getrandom(key, sizeof(key), 0) != (ssize_t) sizeof(key))
		return false;
	coloc1_payload(nonce, key, payload);
	credential = munge_credential(settings->munge_socket, payload, server);
	if (!credential)
		return false;
	coloc1_session(session, key, nonce);
	coloc1_seal(session, request, len, mac);
	strcat(mac, " ");
	sent = strlen(credential) <= CREDENTIAL_MAX && wire_send(wire, "auth ", 5) &&
	       wire_send(wire, credential, strlen(credential)) && wire_send(wire, "\n", 1) &&
	       wire_send(wire, mac, strlen(mac)) && wire_send(wire, request, len) &&
	       wire_send(wire, "\n", 1);
	free(credential);
	return sent;
}

static bool ask_tcp(const char *target, const struct settings *settings, uid_t server,
                    const char *request, size_t len, long limit_ms, char ticket[TICKET_DIGITS + 1])
{
	char line[LINE_MAX_BYTES], nonce[NONCE_DIGITS + 1];
	struct session session;
	const char *answer;
	struct wire wire;
	bool found = false, standby = false;

	if (!wire_tcp(&wire, target, limit_ms))
		return false;
	if (!wire_line(&wire, line) || !coloc1_greeting(line, nonce, &standby))
		say("%s: it does not greet as coloc/1 does", target);
	else if (standby)
		say("%s: another colocd is the active one", target);
	else if (!speak(&wire, settings, server, nonce, &session, request, len) ||
	         !wire_limit(&wire, left_ms()) || !wire_line(&wire, line))
		say("%s: no answer", target);
	else if (!coloc1_open(&session, line, &answer))
		say("%s: refused, or not colocd's answer: %.300s", target, line);
	else
		found = take_ticket(target, answer, ticket);
	wire_close(&wire);
	return found;
}

/* Each target has an equal part of what is left to be reached; who is reached has all of it. */
static bool ask(const struct settings *settings, const char *request, size_t len,
                char ticket[TICKET_DIGITS + 1])
{
	char *targets[TARGETS_MAX];
	int count = 0;
	uid_t server = 0;

	for (char *save,
	     *one = settings->controllers ? strtok_r(settings->controllers, ",", &save) : NULL;
	     one && count < TARGETS_MAX; one = strtok_r(NULL, ",", &save))
		targets[count++] = one;
	if (settings->socket[0] != '\0' &&
	    ask_unix(settings->socket, request, len, left_ms() / (count + 1) + 1, ticket))
		return true;
	if (count == 0 || !uid_of(settings->slurm_user, &server))
		return false;
	for (int i = 0; i < count; i++)
		if (ask_tcp(targets[i], settings, server, request, len, left_ms() / (count - i) + 1,
		            ticket))
			return true;
	return false;
}

static bool parse(struct settings *settings, int argc, char *argv[])
{
	static const struct option options[] = {
		{ "socket", required_argument, NULL, 's' },
		{ "controllers", required_argument, NULL, 'c' },
		{ "slurm-user", required_argument, NULL, 'u' },
		{ "munge-socket", required_argument, NULL, 'm' },
		{ "deadline-ms", required_argument, NULL, 'd' },
		{ 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 's':
			settings->socket = optarg;
			break;
		case 'c':
			settings->controllers = optarg;
			break;
		case 'u':
			settings->slurm_user = optarg;
			break;
		case 'm':
			settings->munge_socket = optarg;
			break;
		case 'd':
			settings->deadline_ms = atol(optarg);
			break;
		default:
			return false;
		}
	}
	return optind == argc && settings->deadline_ms >= 1 && settings->deadline_ms <= 60000;
}

int main(int argc, char *argv[])
{
	struct settings settings = {
		.socket = "/run/slurm-coloc/colocd.sock",
		.slurm_user = "slurm",
		.munge_socket = "",
		.deadline_ms = 1000,
	};
	char *request = malloc(REQUEST_MAX + 1);
	char ticket[TICKET_DIGITS + 1];
	int status = 1;
	size_t len;

	close_others();
	if (!parse(&settings, argc, argv) || !set_deadline(settings.deadline_ms)) {
		say("usage: coloc-ticket [--socket=PATH] [--controllers=HOST:PORT,...] "
		    "[--slurm-user=NAME] [--munge-socket=PATH] [--deadline-ms=1..60000] <REQUEST");
		status = 2;
	} else if (!request || !read_request(request, REQUEST_MAX, &len)) {
		say("the request on standard input is not one line of at most %d bytes",
		    REQUEST_MAX);
	} else if (ask(&settings, request, len, ticket)) {
		status = puts(ticket) < 0 || fflush(stdout) != 0;
	}
	free(request);
	return status;
}
