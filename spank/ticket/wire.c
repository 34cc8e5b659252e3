/* SPDX-License-Identifier: Apache-2.0
 * Connections to colocd and the lines on them. Each call has a time limit by the socket's own
 * options (Linux counts SO_SNDTIMEO for connect too).
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "ticket.h"

bool wire_limit(const struct wire *wire, long limit_ms)
{
	struct timeval limit = { limit_ms / 1000, limit_ms % 1000 * 1000 };

	return setsockopt(wire->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) == 0 &&
	       setsockopt(wire->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0;
}

static bool reach(struct wire *wire, int family, const struct sockaddr *where, socklen_t size,
                  long limit_ms)
{
	wire->have = 0;
	wire->fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (wire->fd < 0)
		return false;
	if (wire_limit(wire, limit_ms) && connect(wire->fd, where, size) == 0)
		return true;
	wire_close(wire);
	return false;
}

bool wire_unix(struct wire *wire, const char *path, long limit_ms)
{
	struct sockaddr_un where = { .sun_family = AF_UNIX };

	if (strlen(path) >= sizeof(where.sun_path)) {
		say("%s: the path is too long for a socket", path);
		return false;
	}
	strcpy(where.sun_path, path);
	if (reach(wire, AF_UNIX, (struct sockaddr *) &where, sizeof(where), limit_ms))
		return true;
	say("%s: %s", path, strerror(errno));
	return false;
}

/* "host:port", "[v6]:port" into host and port. */
static bool split(const char *target, char host[256], char port[8])
{
	const char *colon = strrchr(target, ':');
	size_t len = colon ? (size_t) (colon - target) : 0;

	if (!colon || strlen(colon + 1) >= 8 || len >= 256)
		return false;
	if (target[0] == '[' && len > 2 && target[len - 1] == ']') {
		target++;
		len -= 2;
	}
	memcpy(host, target, len);
	host[len] = '\0';
	strcpy(port, colon + 1);
	return len > 0 && port[0] != '\0';
}

bool wire_tcp(struct wire *wire, const char *target, long limit_ms)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	char host[256], port[8];
	bool reached = false;
	int failed, one = 1;

	if (!split(target, host, port)) {
		say("%s is not HOST:PORT", target);
		return false;
	}
	failed = getaddrinfo(host, port, &hints, &found);
	if (failed) {
		say("%s: %s", target, gai_strerror(failed));
		return false;
	}
	for (struct addrinfo *at = found; at && !reached; at = at->ai_next)
		reached = reach(wire, at->ai_family, at->ai_addr, at->ai_addrlen, limit_ms);
	if (reached)
		setsockopt(wire->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	else
		say("%s: %s", target, strerror(errno));
	freeaddrinfo(found);
	return reached;
}

bool wire_send(struct wire *wire, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t sent = send(wire->fd, data, len, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return false;
		data += sent;
		len -= (size_t) sent;
	}
	return true;
}

bool wire_line(struct wire *wire, char line[LINE_MAX_BYTES])
{
	for (;;) {
		char *end = memchr(wire->rest, '\n', wire->have);
		ssize_t got;

		if (end) {
			size_t len = (size_t) (end - wire->rest);

			memcpy(line, wire->rest, len);
			line[len] = '\0';
			wire->have -= len + 1;
			memmove(wire->rest, end + 1, wire->have);
			return memchr(line, '\0', len) == NULL;
		}
		if (wire->have == sizeof(wire->rest))
			return false;
		got = recv(wire->fd, wire->rest + wire->have, sizeof(wire->rest) - wire->have, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		wire->have += (size_t) got;
	}
}

void wire_close(struct wire *wire)
{
	int before = errno;

	if (wire->fd >= 0)
		close(wire->fd);
	wire->fd = -1;
	errno = before;
}
