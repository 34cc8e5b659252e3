/* SPDX-License-Identifier: Apache-2.0 */
#include "mps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int mps_path(char *buf, unsigned long len, const char *name)
{
    const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY");
    int n;

    if (dir == NULL || *dir == '\0')
        dir = "/tmp/nvidia-mps";
    n = snprintf(buf, len, "%s/%s", dir, name);
    return n > 0 && (unsigned long)n < len ? 0 : -1;
}

int mps_connect(void)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd;

    if (mps_path(addr.sun_path, sizeof(addr.sun_path), "control") < 0) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        int err = errno;
        close(fd);
        errno = err;
        return -1;
    }
    return fd;
}
