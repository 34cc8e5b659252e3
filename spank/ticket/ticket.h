/* SPDX-License-Identifier: Apache-2.0
 * What the files of coloc-ticket share. The program runs as the submitting user, with an empty
 * environment, and ends by SIGALRM at its deadline: so its calls may block.
 */
#ifndef COLOC_TICKET_H
#define COLOC_TICKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sha256.h"

#define TICKET_DIGITS 32        /* of a ticket, hexadecimal */
#define NONCE_DIGITS 32         /* of a server's nonce */
#define KEY_BYTES 32            /* of a session's key */
#define REQUEST_MAX (96 * 1024) /* bytes: a forwarded summary is at most 64 KiB */
#define LINE_MAX_BYTES 4096     /* of what a server sends */
#define CREDENTIAL_MAX 4000     /* bytes, as frames.py takes it */
#define TARGETS_MAX 8           /* controllers that are tried */

/* A connection, and what has come on it beyond the last line. */
struct wire {
	int fd;
	size_t have;
	char rest[LINE_MAX_BYTES];
};

/* wire.c: all false or -1 on failure, after limit_ms at most for one call. Name resolution has no
 * limit of its own. */
bool wire_unix(struct wire *wire, const char *path, long limit_ms);
bool wire_tcp(struct wire *wire, const char *target, long limit_ms);
bool wire_limit(const struct wire *wire, long limit_ms);
bool wire_send(struct wire *wire, const char *data, size_t len);
/* The next line without its newline, NUL-terminated; false where there is none, or it is longer. */
bool wire_line(struct wire *wire, char line[LINE_MAX_BYTES]);
void wire_close(struct wire *wire);

/* coloc1.c: coloc/1 as slurm_coloc/adapters/link/frames.py has it. No I/O. */
struct session {
	unsigned char sealing[COLOC_SHA256_BYTES];
	unsigned char opening[COLOC_SHA256_BYTES];
};
bool coloc1_greeting(const char *line, char nonce[NONCE_DIGITS + 1], bool *standby);
/* What goes into the credential; out has 256 bytes. */
void coloc1_payload(const char *nonce, const unsigned char key[KEY_BYTES], char out[256]);
void coloc1_session(struct session *session, const unsigned char key[KEY_BYTES], const char *nonce);
/* The MAC of this side's first line, as hexadecimal digits; and whether a line is the other side's
 * first one: then *text is where its text begins. */
void coloc1_seal(const struct session *session, const char *text, size_t len,
                 char mac[COLOC_SHA256_HEX + 1]);
bool coloc1_open(const struct session *session, const char *line, const char **text);
/* The ticket in an answer's JSON. */
bool coloc1_ticket(const char *answer, char ticket[TICKET_DIGITS + 1]);

/* munge.c: a credential that only for_uid can open; malloc'ed, NULL where there is none. */
char *munge_credential(const char *socket, const char *payload, uid_t for_uid);

/* Why there is no ticket, on standard error: for an admin who runs the program by hand. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
