/* SPDX-License-Identifier: Apache-2.0 */
/* dcgmi, a small part: discovery -l, dmon -e, job statistics, profile --pause and --resume. There
 * is no nv-hostengine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "entities.h"

#define MAX_FIELDS 32

struct dcgm_field {
    int id;
    const char *tag;
    int profiling; /* not available for a GPU that is cut by MIG */
};

static const struct dcgm_field fields[] = {
    {150,  "TMPTR", 0},
    {155,  "POWER", 0},
    {156,  "TOTEC", 0},
    {203,  "GPUTL", 0},
    {204,  "MCUTL", 0},
    {250,  "FBTTL", 0},
    {251,  "FBFRE", 0},
    {252,  "FBUSD", 0},
    {1001, "GRACT", 1},
    {1002, "SMACT", 1},
    {1003, "SMOCC", 1},
    {1004, "TENSO", 1},
    {1005, "DRAMA", 1},
    {1009, "PCITX", 1},
    {1010, "PCIRX", 1},
};

static const struct dcgm_field *find_field(int id)
{
    size_t i;

    for (i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (fields[i].id == id)
            return &fields[i];
    return NULL;
}

static void print_value(const struct emu_state *st, const struct row *row,
                        const struct dcgm_field *f)
{
    int d = row->device;
    const struct emu_device *dev = &st->dev[d];
    int mig = row->gi < 0 ? -1 : first_of(dev, row->gi);
    uint64_t used = emu_used_mib(st, d, mig);
    char text[32];
    struct reading r;

    if (row->gi < 0)
        monitor_read(st, d, -1, &r);
    else
        read_instance(st, row, &r);
    switch (f->id) {
    case 150: snprintf(text, sizeof(text), "%.0f", r.temperature_c); break;
    case 155: snprintf(text, sizeof(text), "%.3f", r.power_w); break;
    case 156: snprintf(text, sizeof(text), "%.0f", dev->energy_j * 1000.0); break;
    case 203: snprintf(text, sizeof(text), "%.0f", r.gract * 100.0); break;
    case 204: snprintf(text, sizeof(text), "%.0f", r.drama * 100.0); break;
    case 250: snprintf(text, sizeof(text), "%llu", (unsigned long long)dev->total_mib); break;
    case 251:
        snprintf(text, sizeof(text), "%llu",
                 (unsigned long long)(dev->total_mib - dev->reserved_mib - used));
        break;
    case 252: snprintf(text, sizeof(text), "%llu", (unsigned long long)used); break;
    case 1001: snprintf(text, sizeof(text), "%.3f", r.gract); break;
    case 1002: snprintf(text, sizeof(text), "%.3f", r.smact); break;
    case 1003: snprintf(text, sizeof(text), "%.3f", r.smocc); break;
    case 1004: snprintf(text, sizeof(text), "%.3f", r.smact * 0.5); break;
    case 1005: snprintf(text, sizeof(text), "%.3f", r.drama); break;
    default: snprintf(text, sizeof(text), "%.0f", r.smact * 1e9); break; /* bytes/s */
    }
    /* Of a GPU that is cut activity is told by instance, and of an instance activity and memory. */
    if ((f->profiling && ((dev->mig_enabled && row->gi < 0) || st->profiling_paused)) ||
        (row->gi >= 0 && !f->profiling && f->id / 10 != 25) || (dev->faults & EMU_FAULT_LOST))
        snprintf(text, sizeof(text), "N/A");
    printf("%-13s", text);
}

/* A copy of the present state; exits where it cannot be had. */
static void snapshot(struct emu_ledger *l, struct emu_state *copy)
{
    if (emu_lock(l) < 0) {
        fputs("Error: unable to connect to host engine. Host engine timeout.\n", stderr);
        exit(255);
    }
    emu_reap(l, 1);
    *copy = *l->st;
    emu_unlock(l);
}

static int parse_field_list(char *list, const struct dcgm_field **wanted)
{
    char *save = NULL, *word;
    int n = 0;

    for (word = strtok_r(list, ",", &save); word != NULL; word = strtok_r(NULL, ",", &save)) {
        const struct dcgm_field *f = find_field(atoi(word));
        if (f == NULL || n == MAX_FIELDS) {
            fprintf(stderr,
                    "Error: Invalid Field ID: %s (emulated: see tests/emulator/README.md)\n", word);
            return -1;
        }
        wanted[n++] = f;
    }
    return n;
}

static int cmd_dmon(struct emu_ledger *l, int argc, char **argv)
{
    const struct dcgm_field *wanted[MAX_FIELDS];
    struct row rows[MAX_ROWS];
    static struct emu_state st;
    int i, n = 0, d, n_rows = 0;
    long count = 0, done, delay_ms = 1000;

    for (i = 0; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "-e") == 0)
            n = parse_field_list(argv[i + 1], wanted);
        else if (strcmp(argv[i], "-c") == 0)
            count = atol(argv[i + 1]);
        else if (strcmp(argv[i], "-d") == 0)
            delay_ms = atol(argv[i + 1]);
        else if (strcmp(argv[i], "-i") == 0)
            n_rows = parse_entities(l->st, argv[i + 1], rows);
        else
            n = -1;
    }
    if (n <= 0 || i != argc || delay_ms < 1 || n_rows < 0) {
        fputs("usage: dcgmi dmon -e FIELD,.. [-c COUNT] [-d MS] [-i GPU,i:INSTANCE,..]\n", stderr);
        return 255;
    }
    for (d = 0; n_rows == 0 && d < (int)l->st->n_devices; d++)
        rows[d] = (struct row){d, -1, d};
    n_rows = n_rows == 0 ? d : n_rows;
    for (done = 0; count == 0 || done < count; done++) {
        struct timespec ts = {delay_ms / 1000, delay_ms % 1000 * 1000000};
        if (done > 0)
            nanosleep(&ts, NULL);
        snapshot(l, &st);
        if (done % 20 == 0) {
            printf("%-10s", "#Entity");
            for (i = 0; i < n; i++)
                printf("%-13s", wanted[i]->tag);
            printf("\n%-10s\n", "ID");
        }
        for (d = 0; d < n_rows; d++) {
            printf("%s %-*d", rows[d].gi < 0 ? "GPU" : "GPU-I", rows[d].gi < 0 ? 6 : 4,
                   rows[d].entity);
            for (i = 0; i < n; i++)
                print_value(&st, &rows[d], wanted[i]);
            printf("\n");
        }
        fflush(stdout);
    }
    return 0;
}

static int cmd_discovery(struct emu_ledger *l, int argc, char **argv)
{
    static struct emu_state st;
    uint32_t d;

    snapshot(l, &st);
    if (argc > 0 && strcmp(argv[0], "-c") == 0) {
        show_hierarchy(&st);
        return 0;
    }
    printf("%u GPU%s found.\n+--------+----------------------------------------------------------"
           "------------+\n| GPU ID | Device Information                                          "
           "         |\n",
           st.n_devices, st.n_devices == 1 ? "" : "s");
    for (d = 0; d < st.n_devices; d++)
        printf("| %-6u | Name: %s\n|        | PCI Bus ID: %s\n|        | Device UUID: %s\n", d,
               st.dev[d].name, st.dev[d].bus_id, st.dev[d].uuid);
    printf("+--------+----------------------------------------------------------------------+\n");
    return 0;
}

static struct emu_stats *find_stats(struct emu_state *st, const char *job, int fresh)
{
    int i;

    for (i = 0; i < EMU_MAX_STATS; i++)
        if (st->stats[i].state != 0 && strcmp(st->stats[i].job, job) == 0)
            return &st->stats[i];
    for (i = 0; fresh && i < EMU_MAX_STATS; i++)
        if (st->stats[i].state == 0)
            return &st->stats[i];
    return NULL;
}

static void start_stats(struct emu_state *st, struct emu_stats *s, const char *job)
{
    uint32_t d;

    memset(s, 0, sizeof(*s));
    snprintf(s->job, sizeof(s->job), "%s", job);
    s->start_epoch_s = (int64_t)time(NULL);
    s->start_ns = emu_now_ns();
    for (d = 0; d < st->n_devices; d++) {
        s->energy_j[d] = -st->dev[d].energy_j;
        s->sm_active_s[d] = -st->dev[d].sm_active_s;
    }
    s->state = 1;
}

static void stop_stats(struct emu_state *st, struct emu_stats *s)
{
    uint32_t d;

    s->stop_epoch_s = (int64_t)time(NULL);
    s->wall_s = (double)(emu_now_ns() - s->start_ns) / 1e9;
    for (d = 0; d < st->n_devices; d++) {
        s->energy_j[d] += st->dev[d].energy_j;
        s->sm_active_s[d] += st->dev[d].sm_active_s;
    }
    s->state = 2;
}

static void print_stats(const struct emu_state *st, const struct emu_stats *s)
{
    static const char *const line =
        "+------------------------------------+----------------------------------------+\n";
    uint32_t d;

    printf("Successfully retrieved statistics for job: %s.\n", s->job);
    for (d = 0; d < st->n_devices; d++) {
        printf("%s| GPU ID: %-26u |                                        |\n", line, d);
        printf("| Start Time                         | %-38lld |\n", (long long)s->start_epoch_s);
        printf("| End Time                           | %-38lld |\n", (long long)s->stop_epoch_s);
        printf("| Total Execution Time (sec)         | %-38.2f |\n", s->wall_s);
        printf("| Energy Consumed (Joules)           | %-38.0f |\n", s->energy_j[d]);
        printf("| Max GPU Memory Used (bytes)        | %-38llu |\n",
               (unsigned long long)s->max_mib[d] * 1048576ull);
        printf("| SM Utilization (%%)                 | %-38.0f |\n",
               s->wall_s > 0 ? 100.0 * s->sm_active_s[d] / s->wall_s : 0.0);
    }
    printf("%s", line);
}

static int cmd_stats(struct emu_ledger *l, int argc, char **argv)
{
    struct emu_stats *s;
    const char *job = NULL;
    int i, verb = 0, rc = 0;

    for (i = 0; i < argc; i++) {
        if (strcmp(argv[i], "-g") == 0 && i + 1 < argc) {
            i++; /* every group is all GPUs */
        } else if (strcmp(argv[i], "-e") == 0 || strcmp(argv[i], "--enable") == 0) {
            printf("Successfully started process watches.\n");
            return 0;
        } else if (strcmp(argv[i], "-v") == 0) {
            continue;
        } else if (argv[i][0] == '-' && strchr("sxjr", argv[i][1]) != NULL && i + 1 < argc) {
            verb = argv[i][1];
            job = argv[++i];
        }
    }
    if (verb == 0 || strlen(job) >= sizeof(s->job)) {
        fputs("usage: dcgmi stats [-g GROUP] -e | -s JOB | -x JOB | -j JOB | -r JOB\n", stderr);
        return 255;
    }
    if (emu_lock(l) < 0)
        return 255;
    s = find_stats(l->st, job, verb == 's');
    if (s == NULL || (verb == 's' && s->state != 0)) {
        printf("Error: Unable to %s job %s. Return: %s.\n", verb == 's' ? "start" : "find", job,
               verb == 's' ? "The job id is in use" : "No data is available");
        rc = 255;
    } else if (verb == 's') {
        start_stats(l->st, s, job);
        printf("Successfully started recording stats for %s.\n", job);
    } else if (verb == 'x') {
        stop_stats(l->st, s);
        printf("Successfully stopped recording stats for %s.\n", job);
    } else if (verb == 'j') {
        struct emu_stats now = *s; /* of a job that still runs: up to now */
        if (now.state == 1)
            stop_stats(l->st, &now);
        print_stats(l->st, &now);
    } else {
        s->state = 0;
        printf("Successfully removed job %s.\n", job);
    }
    emu_unlock(l);
    return rc;
}

static int cmd_profile(struct emu_ledger *l, const char *what)
{
    int pause = strcmp(what, "--pause") == 0;

    if (!pause && strcmp(what, "--resume") != 0) {
        fputs("usage: dcgmi profile --pause | --resume\n", stderr);
        return 255;
    }
    if (emu_lock(l) < 0)
        return 255;
    l->st->profiling_paused = (uint32_t)pause;
    emu_unlock(l);
    printf("Successfully %s profiling.\n", pause ? "paused" : "resumed");
    return 0;
}

int main(int argc, char **argv)
{
    struct emu_ledger l;
    const char *sub = argc > 1 ? argv[1] : "";

    emu_open_or_die(&l, NULL, "Error: unable to establish a connection to the specified host");
    if (strcmp(sub, "dmon") == 0)
        return cmd_dmon(&l, argc - 2, argv + 2);
    if (strcmp(sub, "discovery") == 0)
        return cmd_discovery(&l, argc - 2, argv + 2);
    if (strcmp(sub, "stats") == 0)
        return cmd_stats(&l, argc - 2, argv + 2);
    if (strcmp(sub, "profile") == 0)
        return cmd_profile(&l, argc > 2 ? argv[2] : "");
    fprintf(stderr, "dcgmi (emulated): only discovery, dmon, stats and profile are here\n");
    return 255;
}
