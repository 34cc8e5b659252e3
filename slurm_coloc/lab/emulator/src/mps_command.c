/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of nvidia-cuda-mps-control, as its man page lists them. */
#include <stdlib.h>
#include <string.h>

#include "mps_daemon.h"

/* The entry of one device in "0=6G,1=8G": its value into out; 0 where there is none. */
static int limit_of(const char *limits, long device, char *out, size_t len)
{
    const char *at = limits;

    while (*at != '\0') {
        char *end;
        long key = strtol(at, &end, 10);
        if (*end == '=' && key == device) {
            snprintf(out, len, "%.*s", (int)strcspn(end + 1, ","), end + 1);
            return 1;
        }
        at += strcspn(at, ",");
        if (*at == ',')
            at++;
    }
    return 0;
}

/* Of a device of the daemon's: an integer and G or M, as NVIDIA's guide wants it. */
static int limit_mib(const struct mps_daemon *d, const char *device, const char *value, long *mib)
{
    long devices = 1, number;
    const char *at;
    char *end;

    for (at = d->uuids; *at != '\0'; at++)
        devices += *at == ',';
    number = strtol(device, &end, 10);
    if (end == device || *end != '\0' || number < 0 || number >= devices)
        return -1;
    *mib = strtol(value, &end, 10);
    if (end == value || *mib <= 0 || (*end != 'G' && *end != 'M') || end[1] != '\0')
        return -1;
    if (*end == 'G')
        *mib *= 1024;
    return 0;
}

static void set_limit(const struct mps_daemon *d, char *limits, const char *dev, const char *text,
                      FILE *out)
{
    char kept[MPS_LINE] = "", old[64], value[32];
    long i, mib, device = atol(dev);

    if (limit_mib(d, dev, text, &mib) < 0) {
        fprintf(out, "Invalid device or limit: %s %s\n", dev, text);
        return;
    }
    snprintf(value, sizeof(value), "%ldM", mib);

    for (i = 0; i < EMU_MAX_DEVICES; i++) {
        const char *v = NULL;
        size_t n = strlen(kept);
        if (i == device)
            v = value;
        else if (limit_of(limits, i, old, sizeof(old)))
            v = old;
        if (v != NULL)
            snprintf(kept + n, sizeof(kept) - n, "%s%ld=%.60s", n ? "," : "", i, v);
    }
    memcpy(limits, kept, sizeof(kept));
}

/* As a driver (595) was seen to show it: from 1 GiB on in whole GiB, rounded down. */
static void show_limit(const char *limits, const char *device, FILE *out)
{
    char value[64];
    long mib;

    if (!limit_of(limits, atol(device), value, sizeof(value)))
        return;
    mib = atol(value);
    if (mib >= 1024)
        fprintf(out, "%ldG\n", mib / 1024);
    else
        fprintf(out, "%ldM\n", mib);
}

static void client_list(const struct mps_daemon *d, FILE *out)
{
    int i;

    for (i = 0; i < MPS_MAX_PEERS; i++)
        if (d->peers[i].state == PEER_CLIENT)
            fprintf(out, "%d\n", (int)d->peers[i].pid);
}

static void process_list(const struct mps_daemon *d, FILE *out)
{
    int i;

    fprintf(out, "PID       ID    SERVER    DEVICE             NAMESPACE COMMAND\n");
    for (i = 0; i < MPS_MAX_PEERS; i++)
        if (d->peers[i].state == PEER_CLIENT)
            fprintf(out, "%-9d %-5d %-9d %-18.12s %-9s %s\n", (int)d->peers[i].pid, i,
                    (int)d->server, d->uuids, "-", "emu-train");
}

static void terminate(struct mps_daemon *d, long pid, FILE *out)
{
    int i;

    for (i = 0; i < MPS_MAX_PEERS; i++) {
        if (d->peers[i].state == PEER_CLIENT && d->peers[i].pid == (pid_t)pid) {
            mps_end_client(d, &d->peers[i], "terminate\n");
            return;
        }
    }
    fprintf(out, "Client %ld not found.\n", pid);
}

static int is_server(const struct mps_daemon *d, const char *text, FILE *out)
{
    if (d->server != 0 && text != NULL && atol(text) == (long)d->server)
        return 1;
    fprintf(out, "Server %s not found.\n", text != NULL ? text : "");
    return 0;
}

static void run(struct mps_daemon *d, char **word, int n, FILE *out)
{
    const char *c = word[0];

    if (strcmp(c, "get_server_list") == 0) {
        if (d->server != 0)
            fprintf(out, "%d\n", (int)d->server);
    } else if (strcmp(c, "get_server_status") == 0 && n == 2) {
        if (is_server(d, word[1], out))
            fprintf(out, "ACTIVE\n");
    } else if (strcmp(c, "get_client_list") == 0 && n == 2) {
        if (is_server(d, word[1], out))
            client_list(d, out);
    } else if (strcmp(c, "ps") == 0) {
        process_list(d, out);
    } else if (strcmp(c, "terminate_client") == 0 && n == 3) {
        if (is_server(d, word[1], out))
            terminate(d, atol(word[2]), out);
    } else if (strcmp(c, "set_default_device_pinned_mem_limit") == 0 && n == 3) {
        set_limit(d, d->limits, word[1], word[2], out);
    } else if (strcmp(c, "get_default_device_pinned_mem_limit") == 0 && n == 2) {
        show_limit(d->limits, word[1], out);
    } else if (strcmp(c, "set_device_pinned_mem_limit") == 0 && n == 4) {
        if (is_server(d, word[1], out))
            set_limit(d, d->server_limits, word[2], word[3], out);
    } else if (strcmp(c, "get_device_pinned_mem_limit") == 0 && n == 3) {
        if (is_server(d, word[1], out))
            show_limit(d->server_limits, word[2], out);
    } else if (strcmp(c, "set_default_active_thread_percentage") == 0 && n == 2) {
        d->thread_pct = atof(word[1]);
        fprintf(out, "%.1f\n", d->thread_pct);
    } else if (strcmp(c, "get_default_active_thread_percentage") == 0) {
        fprintf(out, "%.1f\n", d->thread_pct);
    } else if (strcmp(c, "start_server") == 0 || strcmp(c, "shutdown_server") == 0) {
        fprintf(out, "%s is not emulated\n", c);
    } else if (strcmp(c, "quit") == 0) {
        d->quitting = 1;
        if (n == 3 && strcmp(word[1], "-t") == 0)
            d->quit_at_s = (double)emu_now_ns() / 1e9 + atof(word[2]);
    } else {
        fprintf(out, "Unknown command %s\n", c);
    }
}

void mps_command(struct mps_daemon *d, const char *text, int fd)
{
    char copy[MPS_LINE], *word[8], *save = NULL, *w;
    FILE *out = fdopen(fd, "w"); /* closes fd in the end: that tells the peer that it is all */
    int n = 0;

    if (out == NULL)
        return;
    snprintf(copy, sizeof(copy), "%s", text);
    for (w = strtok_r(copy, " \t", &save); w != NULL && n < 8; w = strtok_r(NULL, " \t", &save))
        word[n++] = w;
    if (n > 0)
        run(d, word, n, out);
    fclose(out);
}
