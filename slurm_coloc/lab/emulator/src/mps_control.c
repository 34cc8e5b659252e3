/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvidia-cuda-mps-control -d: a real daemon with a pid file and a socket in the pipe directory, and
 * one server process at a time for one user (or, with -multiuser-server, for all).
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mps_daemon.h"

#define PID_FILE "nvidia-cuda-mps-control.pid"

static volatile sig_atomic_t stopping;

static void on_signal(int sig)
{
    if (sig != SIGCHLD)
        stopping = 1;
}

static void say(struct mps_daemon *d, const char *format, long a, long b)
{
    time_t now = time(NULL);
    struct tm tm;
    char stamp[64];

    if (d->log == NULL)
        return;
    localtime_r(&now, &tm);
    strftime(stamp, sizeof(stamp), "%Y-%m-%d %H:%M:%S", &tm);
    fprintf(d->log, "[%s.000 Control %5d] ", stamp, (int)getpid());
    fprintf(d->log, format, a, b);
    fputc('\n', d->log);
    fflush(d->log);
}

int mps_clients(const struct mps_daemon *d, enum peer_state state)
{
    int i, n = 0;

    for (i = 0; i < MPS_MAX_PEERS; i++)
        n += d->peers[i].state == state;
    return n;
}

static void drop(struct peer *p)
{
    close(p->fd);
    memset(p, 0, sizeof(*p));
    p->fd = -1;
}

void mps_end_client(struct mps_daemon *d, struct peer *p, const char *word)
{
    (void)d;
    if (send(p->fd, word, strlen(word), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        drop(p);
}

/* The server does nothing here but be there: to be listed, signalled, and killed. */
static void start_server(struct mps_daemon *d, uid_t uid)
{
    pid_t parent = getpid(), pid;
    sigset_t term, before;

    /* A SIGTERM that came before the child has its own handling would be lost on it. */
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, &before);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_NAME, "nvidia-cuda-mps-server");
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGTERM, SIG_DFL);
        sigprocmask(SIG_SETMASK, &before, NULL);
        close(d->listener);
        if (getppid() != parent || (getuid() == 0 && !d->multiuser && setuid(uid) < 0))
            _exit(1);
        for (;;)
            pause();
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (pid > 0) {
        memcpy(d->server_limits, d->limits, sizeof(d->server_limits));
        d->server = pid;
        d->server_uid = uid;
        say(d, "Starting new server %ld for user %ld", (long)pid, (long)uid);
    }
}

static void stop_server(struct mps_daemon *d)
{
    if (d->server == 0)
        return;
    kill(d->server, SIGTERM);
    waitpid(d->server, NULL, 0);
    say(d, "Server %ld exited", (long)d->server, 0);
    d->server = 0;
}

/* A server that died under its clients takes them with it. */
static void reap_server(struct mps_daemon *d)
{
    int i;

    if (d->server == 0 || waitpid(d->server, NULL, WNOHANG) != d->server)
        return;
    say(d, "Server %ld died", (long)d->server, 0);
    d->server = 0;
    for (i = 0; i < MPS_MAX_PEERS; i++)
        if (d->peers[i].state == PEER_CLIENT)
            mps_end_client(d, &d->peers[i], "fault\n");
}

/* Lets waiting clients in, oldest slot first, as far as the one-user rule allows. */
static void admit(struct mps_daemon *d)
{
    char line[MPS_LINE * 2];
    int i;

    for (i = 0; i < MPS_MAX_PEERS; i++) {
        struct peer *p = &d->peers[i];
        if (p->state != PEER_WAITING)
            continue;
        if (d->quitting) {
            snprintf(line, sizeof(line), "closing\n");
        } else {
            if (d->server != 0 && d->server_uid != p->uid && !d->multiuser) {
                if (mps_clients(d, PEER_CLIENT) > 0)
                    continue; /* waits, perhaps for hours: that is real MPS too */
                stop_server(d);
            }
            if (d->server == 0)
                start_server(d, p->uid);
            if (mps_clients(d, PEER_CLIENT) >= MPS_MAX_CLIENTS)
                snprintf(line, sizeof(line), "full\n");
            else
                snprintf(line, sizeof(line), "ok %d %s %s\n", (int)d->server,
                         d->server_limits[0] ? d->server_limits : "-", d->uuids);
        }
        p->state = PEER_CLIENT;
        say(d, "NEW CLIENT %ld from user %ld", (long)p->pid, (long)p->uid);
        if (send(p->fd, line, strlen(line), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            drop(p);
    }
}

static void accept_peer(struct mps_daemon *d)
{
    struct ucred who;
    socklen_t len = sizeof(who);
    int i, fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC);

    if (fd < 0)
        return;
    for (i = 0; i < MPS_MAX_PEERS && d->peers[i].state != PEER_FREE; i++)
        ;
    if (i == MPS_MAX_PEERS || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0) {
        close(fd);
        return;
    }
    d->peers[i] = (struct peer){.state = PEER_NEW, .fd = fd, .pid = who.pid, .uid = who.uid};
}

static void read_peer(struct mps_daemon *d, struct peer *p)
{
    ssize_t n = recv(p->fd, p->line + p->used, sizeof(p->line) - 1 - p->used, MSG_DONTWAIT);
    char *end;

    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            drop(p);
        return;
    }
    if (p->state != PEER_NEW)
        return;
    p->used += (size_t)n;
    p->line[p->used] = '\0';
    end = strchr(p->line, '\n');
    if (end == NULL) {
        if (p->used == sizeof(p->line) - 1)
            drop(p);
        return;
    }
    *end = '\0';
    if (strncmp(p->line, "cmd ", 4) == 0 && p->uid != 0 && p->uid != getuid()) {
        drop(p); /* any user may be a client; only the owner and root give orders */
    } else if (strncmp(p->line, "cmd ", 4) == 0) {
        char text[MPS_LINE];
        int fd = p->fd;
        snprintf(text, sizeof(text), "%s", p->line + 4);
        memset(p, 0, sizeof(*p));
        say(d, "Accepting connection for a command", 0, 0);
        mps_command(d, text, fd);
    } else {
        p->state = PEER_WAITING;
    }
}

static void serve(struct mps_daemon *d)
{
    struct pollfd fds[MPS_MAX_PEERS + 1];
    int which[MPS_MAX_PEERS + 1], i, n;

    while (!stopping) {
        reap_server(d);
        admit(d);
        if (d->quitting && mps_clients(d, PEER_CLIENT) == 0)
            break;
        if (d->quit_at_s > 0 && (double)emu_now_ns() / 1e9 > d->quit_at_s)
            break;
        fds[0] = (struct pollfd){.fd = d->listener, .events = POLLIN};
        for (i = 0, n = 1; i < MPS_MAX_PEERS; i++) {
            if (d->peers[i].state == PEER_FREE)
                continue;
            fds[n] = (struct pollfd){.fd = d->peers[i].fd, .events = POLLIN};
            which[n++] = i;
        }
        if (poll(fds, (nfds_t)n, 200) <= 0)
            continue;
        for (i = 1; i < n; i++)
            if (fds[i].revents != 0)
                read_peer(d, &d->peers[which[i]]);
        if (fds[0].revents & POLLIN)
            accept_peer(d);
    }
    for (i = 0; i < MPS_MAX_PEERS; i++)
        if (d->peers[i].state == PEER_CLIENT)
            mps_end_client(d, &d->peers[i], "fault\n");
    stop_server(d);
}

/* The devices that the daemon sees, in its own numbering. */
static int visible_uuids(struct mps_daemon *d)
{
    const char *env = getenv("CUDA_VISIBLE_DEVICES");
    char list[1024], *save = NULL, *word;
    struct emu_ledger l;
    uint32_t i;
    int mig;

    emu_open_or_die(&l, NULL, "nvidia-cuda-mps-control");
    if (env == NULL) {
        for (i = 0; i < l.st->n_devices; i++) {
            size_t n = strlen(d->uuids);
            snprintf(d->uuids + n, sizeof(d->uuids) - n, "%s%s", n ? "," : "", l.st->dev[i].uuid);
        }
    } else {
        snprintf(list, sizeof(list), "%s", env);
        for (word = strtok_r(list, ",", &save); word != NULL; word = strtok_r(NULL, ",", &save)) {
            int dev = emu_device_by_name(l.st, word, &mig);
            size_t n = strlen(d->uuids);
            if (dev < 0)
                break;
            snprintf(d->uuids + n, sizeof(d->uuids) - n, "%s%s", n ? "," : "",
                     mig >= 0 ? l.st->dev[dev].mig[mig].uuid : l.st->dev[dev].uuid);
        }
    }
    emu_close(&l);
    return d->uuids[0] != '\0' ? 0 : -1;
}

static int listen_here(void)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd;

    if (mps_path(addr.sun_path, sizeof(addr.sun_path), "control") < 0) {
        fputs("nvidia-cuda-mps-control: the pipe directory's name is too long\n", stderr);
        return -1;
    }
    unlink(addr.sun_path); /* left by a daemon that was killed: it did not answer */
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, 64) < 0) {
        perror("nvidia-cuda-mps-control: control socket");
        if (fd >= 0)
            close(fd);
        return -1;
    }
    chmod(addr.sun_path, 0666);
    return fd;
}

static void write_pid(void)
{
    char path[4096];
    FILE *f = mps_path(path, sizeof(path), PID_FILE) == 0 ? fopen(path, "we") : NULL;

    if (f == NULL)
        return;
    fprintf(f, "%d\n", (int)getpid());
    fclose(f);
}

/* Goes on in a child; the caller's process ends only when the pid file is there. */
static int go_background(void)
{
    int ready[2], null;
    char byte = 0;
    pid_t pid;

    if (pipe2(ready, O_CLOEXEC) < 0)
        return -1;
    pid = fork();
    if (pid < 0)
        return -1;
    if (pid > 0) {
        close(ready[1]);
        _exit(read(ready[0], &byte, 1) == 1 ? 0 : 1);
    }
    setsid();
    write_pid();
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
        return -1;
    close(null);
    if (write(ready[1], &byte, 1) != 1)
        return -1;
    close(ready[0]);
    close(ready[1]);
    return 0;
}

int mps_run_daemon(int background, int multiuser)
{
    static struct mps_daemon d = {.thread_pct = 100.0};
    struct sigaction sa = {.sa_handler = on_signal};
    const char *log_dir = getenv("CUDA_MPS_LOG_DIRECTORY");
    char path[4096];
    int fd = mps_connect();

    d.multiuser = multiuser;
    if (fd >= 0) {
        close(fd);
        fputs("An instance of this daemon is already running\n", stderr);
        return 1;
    }
    if (mps_path(path, sizeof(path), "") < 0 || (mkdir(path, 0755) < 0 && errno != EEXIST)) {
        perror("nvidia-cuda-mps-control: pipe directory");
        return 1;
    }
    if (visible_uuids(&d) < 0) {
        fputs("nvidia-cuda-mps-control: no CUDA-capable device is detected\n", stderr);
        return 1;
    }
    d.listener = listen_here();
    if (d.listener < 0)
        return 1;
    snprintf(path, sizeof(path), "%s", log_dir != NULL ? log_dir : "/var/log/nvidia-mps");
    mkdir(path, 0755);
    strncat(path, "/control.log", sizeof(path) - strlen(path) - 1);
    d.log = fopen(path, "ae");
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGCHLD, &sa, NULL);
    if (background && go_background() < 0)
        return 1;
    if (!background)
        write_pid();
    say(&d, "Start", 0, 0);
    serve(&d);
    say(&d, "Exit", 0, 0);
    if (mps_path(path, sizeof(path), "control") == 0)
        unlink(path);
    if (mps_path(path, sizeof(path), PID_FILE) == 0)
        unlink(path);
    return 0;
}
