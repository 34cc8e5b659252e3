/* SPDX-License-Identifier: Apache-2.0
 * The client's side of coloc/1, for one request and one answer. slurm_coloc/adapters/link/frames.py
 * has the whole protocol, docs/adr/0004 its reasons.
 */
#include <stdio.h>
#include <string.h>

#include "ticket.h"

static const char hex_digits[] = "0123456789abcdef";

bool coloc1_greeting(const char *line, char nonce[NONCE_DIGITS + 1], bool *standby)
{
	static const char head[] = "coloc/1 ";
	const char *word;

	if (strncmp(line, head, sizeof(head) - 1) != 0)
		return false;
	line += sizeof(head) - 1;
	if (strspn(line, hex_digits) != NONCE_DIGITS || line[NONCE_DIGITS] != ' ')
		return false;
	memcpy(nonce, line, NONCE_DIGITS);
	nonce[NONCE_DIGITS] = '\0';
	word = line + NONCE_DIGITS + 1;
	*standby = strcmp(word, "standby") == 0;
	return *standby || strcmp(word, "active") == 0;
}

void coloc1_payload(const char *nonce, const unsigned char key[KEY_BYTES], char out[256])
{
	char hex[2 * KEY_BYTES + 1];

	coloc_hex(key, KEY_BYTES, hex);
	snprintf(out, 256,
	         "{\"v\":1,\"nonce\":\"%s\",\"key\":\"%s\",\"cluster\":\"\",\"node\":null}", nonce,
	         hex);
}

static void derive(const unsigned char key[KEY_BYTES], const char *direction, const char *nonce,
                   unsigned char out[COLOC_SHA256_BYTES])
{
	struct coloc_hmac mac;
	char text[128];
	int len = snprintf(text, sizeof(text), "coloc/1 %s %s", direction, nonce);

	coloc_hmac_begin(&mac, key, KEY_BYTES);
	coloc_hmac_add(&mac, text, (size_t) len);
	coloc_hmac_end(&mac, out);
}

void coloc1_session(struct session *session, const unsigned char key[KEY_BYTES], const char *nonce)
{
	derive(key, "to-server", nonce, session->sealing);
	derive(key, "to-client", nonce, session->opening);
}

/* Of line number 0: there is one of each direction. */
static void mac_of(const unsigned char key[COLOC_SHA256_BYTES], const char *text, size_t len,
                   char out[COLOC_SHA256_HEX + 1])
{
	static const unsigned char number[8];
	unsigned char raw[COLOC_SHA256_BYTES];
	struct coloc_hmac mac;

	coloc_hmac_begin(&mac, key, COLOC_SHA256_BYTES);
	coloc_hmac_add(&mac, number, sizeof(number));
	coloc_hmac_add(&mac, text, len);
	coloc_hmac_end(&mac, raw);
	coloc_hex(raw, sizeof(raw), out);
}

void coloc1_seal(const struct session *session, const char *text, size_t len,
                 char mac[COLOC_SHA256_HEX + 1])
{
	mac_of(session->sealing, text, len, mac);
}

bool coloc1_open(const struct session *session, const char *line, const char **text)
{
	char mac[COLOC_SHA256_HEX + 1];
	unsigned char differs = 0;

	if (strspn(line, hex_digits) != COLOC_SHA256_HEX || line[COLOC_SHA256_HEX] != ' ')
		return false;
	*text = line + COLOC_SHA256_HEX + 1;
	mac_of(session->opening, *text, strlen(*text), mac);
	for (int i = 0; i < COLOC_SHA256_HEX; i++)
		differs |= (unsigned char) (mac[i] ^ line[i]);
	return differs == 0;
}

/* A quote within a string of JSON has a backslash before it, so the name and its colon stand for
 * the key alone. */
bool coloc1_ticket(const char *answer, char ticket[TICKET_DIGITS + 1])
{
	static const char name[] = "\"ticket\":";
	const char *value = strstr(answer, name);

	if (!value)
		return false;
	value += sizeof(name) - 1;
	value += strspn(value, " ");
	if (*value++ != '"' || strspn(value, hex_digits) != TICKET_DIGITS ||
	    value[TICKET_DIGITS] != '"')
		return false;
	memcpy(ticket, value, TICKET_DIGITS);
	ticket[TICKET_DIGITS] = '\0';
	return true;
}
