/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EMU_MPS_DAEMON_H
#define EMU_MPS_DAEMON_H

#include <stdio.h>
#include <sys/types.h>

#include "ledger.h"
#include "mps.h"

#define MPS_MAX_PEERS 256

enum peer_state { PEER_FREE, PEER_NEW, PEER_WAITING, PEER_CLIENT };

struct peer {
    enum peer_state state;
    int fd;
    pid_t pid;
    uid_t uid;
    size_t used;
    char line[MPS_LINE];
};

struct mps_daemon {
    int listener;
    FILE *log;
    int multiuser;
    pid_t server; /* 0: none */
    uid_t server_uid;
    int quitting;     /* "quit" was said: no new client, gone when the last one has left */
    double quit_at_s; /* with -t: when the rest are ended; 0: never */
    double thread_pct;
    /* Pinned memory limits, "0=6144M,1=8192M": a new server has the default; a client has what its
     * server had when it came. */
    char limits[MPS_LINE], server_limits[MPS_LINE];
    char uuids[EMU_MAX_DEVICES * EMU_UUID_LEN];
    struct peer peers[MPS_MAX_PEERS];
};

int mps_clients(const struct mps_daemon *d, enum peer_state state);
/* Carries out one command; its output goes to fd. */
void mps_command(struct mps_daemon *d, const char *text, int fd);
void mps_end_client(struct mps_daemon *d, struct peer *p, const char *word);

/* Serves until it is told to quit; in the background where asked. The exit code. */
int mps_run_daemon(int background, int multiuser);

#endif
