/* SPDX-License-Identifier: Apache-2.0 */
/* dcgmi, a small part: discovery, dmon -e, profile --pause and --resume; groups and job statistics
 * are in dcgmi_jobs.c. There is no nv-hostengine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dcgmi.h"

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
            fprintf(
                stderr,
                "Error: Invalid Field ID: %s (emulated: see slurm_coloc/lab/emulator/README.md)\n",
                word);
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
    if (strcmp(sub, "group") == 0)
        return cmd_group(&l, argc - 2, argv + 2);
    if (strcmp(sub, "profile") == 0)
        return cmd_profile(&l, argc > 2 ? argv[2] : "");
    fprintf(stderr, "dcgmi (emulated): only discovery, dmon, group, stats and profile are here\n");
    return 255;
}
