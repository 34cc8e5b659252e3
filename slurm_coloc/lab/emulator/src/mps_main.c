/* SPDX-License-Identifier: Apache-2.0 */
/* nvidia-cuda-mps-control: its command line. Without -d or -f it passes commands to the daemon. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mps_daemon.h"

/* Commands from stdin, one connection each. */
static int run_commands(void)
{
    char line[MPS_LINE - 8], out[4096];

    while (fgets(line, sizeof(line), stdin) != NULL) {
        char text[MPS_LINE];
        ssize_t n;
        int fd;
        line[strcspn(line, "\n")] = '\0';
        if (*line == '\0')
            continue;
        fd = mps_connect();
        if (fd < 0) {
            printf("Cannot find MPS control daemon process\n");
            return 1;
        }
        snprintf(text, sizeof(text), "cmd %s\n", line);
        if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0) {
            close(fd);
            return 1;
        }
        while ((n = recv(fd, out, sizeof(out), 0)) > 0)
            fwrite(out, 1, (size_t)n, stdout);
        fflush(stdout);
        close(fd);
    }
    return 0;
}

int main(int argc, char **argv)
{
    int i, daemon_mode = 0, foreground = 0, multiuser = 0;

    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-d") == 0)
            daemon_mode = 1;
        else if (strcmp(argv[i], "-f") == 0)
            foreground = 1;
        else if (strcmp(argv[i], "-multiuser-server") == 0)
            multiuser = 1;
        else {
            fprintf(stderr, "usage: nvidia-cuda-mps-control [-d | -f] [-multiuser-server]\n");
            return 1;
        }
    }
    if (daemon_mode || foreground)
        return mps_run_daemon(daemon_mode, multiuser);
    return run_commands();
}
