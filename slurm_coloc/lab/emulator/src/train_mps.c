/* SPDX-License-Identifier: Apache-2.0 */
/* emu-train as a client of an MPS control daemon. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mps.h"
#include "train.h"

/* As the CUDA driver: no daemon in the pipe directory means no MPS. Unlike it, only a directory
 * that the environment names is looked at: a stray daemon in /tmp must not capture a lab. */
int mps_join(struct mps_link *m)
{
    char line[MPS_LINE * 2], limits[1024];
    size_t used = 0;

    m->fd = -1;
    m->server_pid = 0;
    m->uuids[0] = m->limits[0] = '\0';
    if (getenv("CUDA_MPS_PIPE_DIRECTORY") == NULL)
        return 0;
    m->fd = mps_connect();
    if (m->fd < 0)
        return 0;
    if (send(m->fd, "client\n", 7, MSG_NOSIGNAL) != 7)
        return -1;
    for (;;) {
        ssize_t n = recv(m->fd, line + used, sizeof(line) - 1 - used, 0);
        if (n < 0 && errno == EINTR && !train_stopped())
            continue;
        if (n <= 0)
            return -1;
        used += (size_t)n;
        line[used] = '\0';
        if (strchr(line, '\n') != NULL || used == sizeof(line) - 1)
            break;
    }
    if (sscanf(line, "ok %d %1023s %1023s", &m->server_pid, limits, m->uuids) != 3) {
        fputs(strncmp(line, "full", 4) == 0
                  ? "RuntimeError: CUDA error: MPS client limit reached\n"
                  : "RuntimeError: CUDA error: the MPS server is not ready\n",
              stderr);
        return -1;
    }
    if (strcmp(limits, "-") != 0)
        snprintf(m->limits, sizeof(m->limits), "%s", limits);
    return 1;
}

int mps_ended(const struct mps_link *m)
{
    char line[64];
    ssize_t n;

    if (m->fd < 0)
        return 0;
    n = recv(m->fd, line, sizeof(line) - 1, MSG_DONTWAIT);
    if (n < 0)
        return errno != EAGAIN && errno != EINTR ? MPS_FAULT : 0;
    line[n] = '\0';
    return n > 0 && strncmp(line, "terminate", 9) == 0 ? MPS_TERMINATED : MPS_FAULT;
}

void mps_leave(struct mps_link *m)
{
    if (m->fd >= 0)
        close(m->fd);
    m->fd = -1;
}
