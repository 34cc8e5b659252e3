/* SPDX-License-Identifier: Apache-2.0
 * ticket.c with programs of every kind in coloc-ticket's place, and the lines of coloc/1. What the
 * real program says to a real colocd is tested in tests/unit/link/test_ticket_program.py.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ticket/ticket.h"
#include "unit.h"

#define GOOD "00112233445566778899aabbccddeeff"
#define NONCE "0123456789abcdef0123456789abcdef"

static struct coloc_args args;
static char ticket[COLOC_TICKET_DIGITS + 1];
static bool of_batch = true;

/* Whether a ticket comes of a shell script in the program's place. */
static bool gives(const char *script)
{
	static const struct coloc_request request = { .file = "f",
	                                              .batch_size = "32",
	                                              .optimizer = "adamw-fused" };
	char text[1024];
	int len = snprintf(text, sizeof(text), "#!/bin/sh\n%s\n", script);

	unlink("program");
	put("program", text, (size_t) len);
	if (chmod("program", 0700) != 0)
		abort();
	memset(ticket, 0, sizeof(ticket));
	return coloc_ticket(&args, &request, "eNpLBAA=", of_batch, ticket);
}

static bool holds(const char *path, const char *wanted)
{
	char text[2048] = "";
	FILE *file = fopen(path, "r");
	size_t len = file ? fread(text, 1, sizeof(text) - 1, file) : 0;

	if (file)
		fclose(file);
	text[len] = '\0';
	snprintf(error, sizeof(error), "%.900s", text);
	return strcmp(text, wanted) == 0;
}

static long elapsed_ms(const struct timespec *since)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (now.tv_sec - since->tv_sec) * 1000 + (now.tv_nsec - since->tv_nsec) / 1000000;
}

void test_ticket_args(void)
{
	char *good[] = { "ticket=/p",     "ticket_ms=50",   "socket=/s", "controllers=a:1,[::1]:2",
	                 "slurm_user=me", "munge_socket=/m" };
	char *off[] = { "ticket=off" };
	char *bad[] = { "ticket=",          "ticket=p",       "ticket_ms=0",      "ticket_ms=10001",
	                "socket=s",         "controllers=",   "controllers=a",    "controllers=:1",
	                "controllers=a:1,", "controllers=a:", "controllers=,a:1", "slurm_user=",
	                "munge_socket=m" };

	CHECK(coloc_args_parse(&args, 0, NULL) && args.ticket_ms == COLOC_TICKET_MS &&
	      strcmp(args.ticket, COLOC_TICKET_PROGRAM) == 0 &&
	      strcmp(args.socket, COLOC_SOCKET) == 0 && args.controllers[0] == '\0' &&
	      strcmp(args.slurm_user, "slurm") == 0 && args.munge_socket[0] == '\0');
	CHECK(coloc_args_parse(&args, 6, good) && strcmp(args.ticket, "/p") == 0 &&
	      args.ticket_ms == 50 && strcmp(args.socket, "/s") == 0 &&
	      strcmp(args.controllers, "a:1,[::1]:2") == 0 && strcmp(args.slurm_user, "me") == 0 &&
	      strcmp(args.munge_socket, "/m") == 0);
	CHECK(coloc_args_parse(&args, 1, off) && args.ticket[0] == '\0');
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK(!coloc_args_parse(&args, 1, &bad[i]));
}

static void test_what_the_program_gets(const char *dir)
{
	char script[512], wanted[512];

	setenv("LD_PRELOAD_OF_THE_USER", "x", 1);
	setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64", 1);
	snprintf(script, sizeof(script),
	         "cd %s; env -i /bin/cat >in; /bin/cat /proc/$$/environ >env; echo \"$@\" >argv; "
	         "ls /proc/$$/fd | /usr/bin/tr '\\n' ' ' >fds; echo " GOOD,
	         dir);
	CHECK(gives(script) && strcmp(ticket, GOOD) == 0);
	CHECK(holds("in", "{\"v\":1,\"op\":\"ticket\",\"coloc\":{\"summary\":\"eNpLBAA=\","
	                  "\"batch_size\":\"32\",\"optimizer\":\"adamw-fused\","
	                  "\"alloc_conf\":\"max_split_size_mb:64\"}}\n"));
	CHECK(holds("env", ""));
	snprintf(wanted, sizeof(wanted),
	         "--socket=%s/there --slurm-user=slurm --munge-socket= --deadline-ms=5000\n", dir);
	CHECK(holds("argv", wanted));
	of_batch = false;
	CHECK(gives(script) && !holds("in", "") && !strstr(error, "alloc_conf"));
	of_batch = true;
	setenv("PYTORCH_ALLOC_CONF", "a\"b", 1);
	CHECK(gives(script) && !holds("in", "") && !strstr(error, "alloc_conf"));
	unsetenv("PYTORCH_ALLOC_CONF");
	unsetenv("PYTORCH_CUDA_ALLOC_CONF");
	unsetenv("LD_PRELOAD_OF_THE_USER");
}

void test_ticket(void)
{
	struct timespec begun;
	char dir[96];

	if (mkdir("tickets", 0700) != 0 || chdir("tickets") != 0 ||
	    !getcwd(dir, sizeof(dir) - 16) || !coloc_args_parse(&args, 0, NULL))
		abort();
	args.ticket_ms = 5000;
	snprintf(args.ticket, sizeof(args.ticket), "%s/program", dir);
	snprintf(args.socket, sizeof(args.socket), "%s/there", dir);

	CHECK(!gives("echo " GOOD)); /* no socket, no controllers: nobody to ask */
	put("there", "", 0);
	test_what_the_program_gets(dir);
	CHECK(!gives("printf " GOOD)); /* without its newline */
	CHECK(!gives("echo " GOOD "0"));
	CHECK(!gives("echo " GOOD "; echo"));
	CHECK(!gives("echo 00112233445566778899AABBCCDDEEFF"));
	CHECK(!gives("echo '00112233445566778899aabbccddee f'"));
	CHECK(!gives("exit 1"));
	CHECK(!gives("kill -9 $$"));
	CHECK(!gives("exec /bin/cat /dev/zero"));
	CHECK(!gives("exec /bin/cat"));
	unlink("program");
	strcpy(args.ticket + strlen(args.ticket) - 7, "nowhere");
	CHECK(!gives("echo " GOOD));
	strcpy(args.ticket + strlen(args.ticket) - 7, "program");

	args.ticket_ms = 100;
	clock_gettime(CLOCK_MONOTONIC, &begun);
	CHECK(!gives("trap '' TERM ALRM; exec /bin/sleep 100"));
	/* Two clocks that are cut to milliseconds. It came back at all: the program would last 100 s. */
	CHECK(elapsed_ms(&begun) >= 99);
	CHECK(elapsed_ms(&begun) < 90000);
	args.ticket[0] = '\0';
	CHECK(!gives("echo " GOOD));
	unlink("there");
	strcpy(args.controllers, "a:1");
	snprintf(args.ticket, sizeof(args.ticket), "%s/program", dir);
	args.ticket_ms = 5000;
	CHECK(gives("[ \"$5\" = --controllers=a:1 ] && echo " GOOD));
	if (chdir("..") != 0)
		abort();
}

static bool greets(const char *line)
{
	char nonce[NONCE_DIGITS + 1] = "";
	bool standby;

	return coloc1_greeting(line, nonce, &standby) && strcmp(nonce, NONCE) == 0;
}

static bool names(const char *answer)
{
	char found[TICKET_DIGITS + 1];

	return coloc1_ticket(answer, found) && strcmp(found, GOOD) == 0;
}

/* Vectors made with slurm_coloc/adapters/link/frames.py: Session(bytes(range(32)), NONCE). */
void test_coloc1(void)
{
	static const char sealed[] =
	    "3d752e75450e5ff81f53b902d5380a1159ba948530328800261cfc0f01fe1fbe";
	static const char answer[] = "92dd519656b63cfbbd2519ef029e0db09e20e3d693aec14719367b354b377"
				     "17c {\"v\": 1, \"ok\": true}";
	unsigned char key[KEY_BYTES];
	char mac[COLOC_SHA256_HEX + 1], changed[128], payload[256];
	struct session session;
	const char *text = NULL;

	for (int i = 0; i < KEY_BYTES; i++)
		key[i] = (unsigned char) i;
	coloc1_session(&session, key, NONCE);
	coloc1_seal(&session, "{\"v\":1}", 7, mac);
	CHECK(strcmp(mac, sealed) == 0);
	CHECK(coloc1_open(&session, answer, &text) &&
	      strcmp(text, "{\"v\": 1, \"ok\": true}") == 0);
	for (size_t i = 0; i < strlen(answer); i++) {
		snprintf(changed, sizeof(changed), "%s", answer);
		changed[i] ^= 1;
		CHECK(!coloc1_open(&session, changed, &text));
		changed[i] = '\0';
		CHECK(!coloc1_open(&session, changed, &text));
	}
	coloc1_payload(NONCE, key, payload);
	CHECK(strcmp(payload,
	             "{\"v\":1,\"nonce\":\"" NONCE "\",\"key\":\"000102030405060708090a0b0c"
	             "0d0e0f101112131415161718191a1b1c1d1e1f\",\"cluster\":\"\","
	             "\"node\":null}") == 0);

	CHECK(greets("coloc/1 " NONCE " active") && greets("coloc/1 " NONCE " standby"));
	CHECK(!greets("coloc/1 " NONCE) && !greets("coloc/2 " NONCE " active") && !greets("") &&
	      !greets("coloc/1 " NONCE "0 active") && !greets("coloc/1 " NONCE " passive"));

	CHECK(names("{\"v\": 1, \"ok\": true, \"ticket\": \"" GOOD "\"}"));
	CHECK(names("{\"ticket\":\"" GOOD "\"}"));
	CHECK(!names("{\"ticket\": \"" GOOD "0\"}") && !names("{\"ticket\": " GOOD "}"));
	CHECK(!names("{\"x\": \"\\\"ticket\\\": \\\"" GOOD "\\\"\"}") && !names("{\"ticket\":"));
}
