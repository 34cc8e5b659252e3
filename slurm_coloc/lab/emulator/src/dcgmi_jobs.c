/* SPDX-License-Identifier: Apache-2.0 */
/* dcgmi group and dcgmi stats: the texts are those of dcgmi 3 and 4, so far as they are printed. A
 * group is of GPUs; process watches count nothing here, for the ledger knows all at any time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dcgmi.h"

#define ALL_GPUS 0xffffffffu
#define FIRST_GROUP 2 /* 0: all GPUs, 1: all NVSwitches, as a host engine makes them */
#define LINE "+------------------------------------+-----------------------------------------+\n"
#define FAILED 255

static struct emu_group *find_group(struct emu_state *st, uint32_t id)
{
    int i;

    for (i = 0; i < EMU_MAX_GROUPS; i++)
        if (st->group[i].id == id)
            return &st->group[i];
    return NULL;
}

static int create_group(struct emu_state *st, const char *name, char *list)
{
    struct emu_group *g = find_group(st, 0);
    struct row rows[MAX_ROWS];
    uint32_t id = FIRST_GROUP, devices = 0;
    int i, n;

    while (find_group(st, id) != NULL)
        id++;
    if (g == NULL) {
        printf("Error: Cannot create group %s. Return: Insufficient size\n", name);
        return FAILED;
    }
    n = list != NULL ? parse_entities(st, list, rows) : 0;
    for (i = 0; i < n; i++)
        devices |= 1u << rows[i].device;
    memset(g, 0, sizeof(*g));
    snprintf(g->name, sizeof(g->name), "%s", name);
    g->devices = devices;
    g->id = id;
    printf("Successfully created group \"%s\" with a group ID of %u\n", name, id);
    if (n < 0) /* the group is there all the same, and empty */
        return FAILED;
    if (list != NULL)
        printf("Add to group operation successful.\n");
    return 0;
}

static void list_groups(const struct emu_state *st)
{
    static const char *const line = "+-------------------+----------------------------------------"
                                    "------------------+\n";
    int i, d, n = 0;

    for (i = 0; i < EMU_MAX_GROUPS; i++)
        n += st->group[i].id != 0;
    printf("%s| GROUPS%71s|\n| %2d groups found.%60s |\n%s", line, "", n, "", line);
    for (i = 0; i < EMU_MAX_GROUPS; i++) {
        const struct emu_group *g = &st->group[i];
        char text[128] = "";
        if (g->id == 0)
            continue;
        for (d = 0; d < (int)st->n_devices; d++)
            if (g->devices & 1u << d)
                snprintf(text + strlen(text), sizeof(text) - strlen(text), "%sGPU %d",
                         *text ? ", " : "", d);
        printf("| -> %-14u |%58s|\n", g->id, "");
        printf("|    -> Group ID    | %-56u |\n|    -> Group Name  | %-56s |\n", g->id, g->name);
        printf("|    -> Entities    | %-56s |\n", *text ? text : "None");
    }
    fputs(line, stdout);
}

static int remove_group(struct emu_state *st, const char *text)
{
    struct emu_group *g = atoi(text) > 0 ? find_group(st, (uint32_t)atoi(text)) : NULL;

    if (g == NULL) {
        printf("Error: Cannot destroy group %s. Return: The Group is not found.\n", text);
        return FAILED;
    }
    printf("Successfully removed group %u\n", g->id);
    g->id = 0;
    return 0;
}

int cmd_group(struct emu_ledger *l, int argc, char **argv)
{
    int rc = FAILED;

    if (emu_lock(l) < 0)
        return FAILED;
    if (argc == 1 && strcmp(argv[0], "-l") == 0) {
        list_groups(l->st);
        rc = 0;
    } else if (argc >= 2 && strcmp(argv[0], "-c") == 0) {
        rc = create_group(l->st, argv[1], argc == 4 && !strcmp(argv[2], "-a") ? argv[3] : NULL);
    } else if (argc == 2 && strcmp(argv[0], "-d") == 0) {
        rc = remove_group(l->st, argv[1]);
    } else {
        fputs("usage: dcgmi group -l | -c NAME [-a GPU,..] | -d ID\n", stderr);
    }
    emu_unlock(l);
    return rc;
}

static struct emu_stats *find_stats(struct emu_state *st, const char *job)
{
    int i;

    for (i = 0; i < EMU_MAX_STATS; i++)
        if (st->stats[i].state != 0 && strcmp(st->stats[i].job, job) == 0)
            return &st->stats[i];
    return NULL;
}

static int start_stats(struct emu_state *st, const char *job, uint32_t devices)
{
    struct emu_stats *s = NULL;
    uint32_t d;
    int i;

    if (devices == 0 || find_stats(st, job) != NULL) {
        printf("Error: Unable to start job for group. Return: %s.\n",
               devices == 0 ? "The Group is not found"
                            : "This Job Id is in use. Please use another job Id");
        return FAILED;
    }
    for (i = 0; i < EMU_MAX_STATS && s == NULL; i++)
        if (st->stats[i].state == 0)
            s = &st->stats[i];
    if (s == NULL)
        return FAILED;
    memset(s, 0, sizeof(*s));
    snprintf(s->job, sizeof(s->job), "%s", job);
    s->devices = devices;
    s->start_epoch_s = (int64_t)time(NULL);
    s->start_ns = emu_now_ns();
    for (d = 0; d < st->n_devices; d++) {
        s->energy_j[d] = -st->dev[d].energy_j;
        s->gr_active_s[d] = -st->dev[d].gr_active_s;
    }
    s->state = 1;
    printf("Successfully started recording stats for %s.\n", job);
    return 0;
}

static void stop_stats(const struct emu_state *st, struct emu_stats *s)
{
    uint32_t d;

    s->stop_epoch_s = (int64_t)time(NULL);
    s->wall_s = (double)(emu_now_ns() - s->start_ns) / 1e9;
    for (d = 0; d < st->n_devices; d++) {
        s->energy_j[d] += st->dev[d].energy_j;
        s->gr_active_s[d] += st->dev[d].gr_active_s;
    }
    s->state = 2;
}

static void print_item(const char *name, const char *text)
{
    printf("| %-35s| %-40s|\n", name, text);
}

static void print_number(const char *name, double value)
{
    char text[48];

    snprintf(text, sizeof(text), "%.0f", value);
    print_item(name, text);
}

/* "Avg: 220.23, Max: N/A, Min: N/A": means alone are kept here. */
static void print_mean(const char *name, const char *format, double value)
{
    char number[24], text[64];

    snprintf(number, sizeof(number), format, value);
    snprintf(text, sizeof(text), "Avg: %s, Max: N/A, Min: N/A", number);
    print_item(name, text);
}

static void print_time(const char *name, int64_t epoch_s)
{
    time_t at = (time_t)epoch_s;
    struct tm tm;
    char text[40];

    localtime_r(&at, &tm);
    strftime(text, sizeof(text), "%a %b %e %H:%M:%S %Y", &tm);
    print_item(name, text);
}

/* Of the processes that ran on a device meanwhile; with `show` each by its number. */
static int processes(const struct emu_state *st, const struct emu_stats *s, int device, int show)
{
    uint64_t since_us = (uint64_t)s->start_epoch_s * 1000000u, k;
    int i, n = 0;
    char text[24];

    for (i = 0; i < (int)st->n_slots; i++) {
        if (st->proc[i].kind != EMU_TRAIN || st->proc[i].device != device)
            continue;
        n++;
        snprintf(text, sizeof(text), "%d", st->proc[i].pid);
        if (show)
            print_item("PID", text);
    }
    for (k = st->n_past > EMU_MAX_PAST ? st->n_past - EMU_MAX_PAST : 0; k < st->n_past; k++) {
        const struct emu_past *p = &st->past[k % EMU_MAX_PAST];
        if (p->device != device || p->end_us < since_us)
            continue;
        n++;
        snprintf(text, sizeof(text), "%d", p->pid);
        if (show)
            print_item("PID", text);
    }
    return n;
}

static void print_device(const struct emu_state *st, const struct emu_stats *s, int d)
{
    static const char *const slow[] = {"Due to - Power (%)",           "       - Thermal (%)",
                                       "       - Reliability (%)",     "       - Board Limit (%)",
                                       "       - Low Utilization (%)", "       - Sync Boost (%)"};
    double wall_s = s->wall_s > 0 ? s->wall_s : 1.0;
    char text[32];
    size_t i;

    printf("+------------------------------------------------------------------------------+\n"
           "| GPU ID: %-69d|\n"
           "+====================================+=========================================+\n"
           "|-----  Execution Stats  ------------+-----------------------------------------|\n",
           d);
    print_time("Start Time", s->start_epoch_s);
    print_time("End Time", s->stop_epoch_s);
    snprintf(text, sizeof(text), "%.2f", s->wall_s);
    print_item("Total Execution Time (sec)", text);
    print_number("No. of Processes", processes(st, s, d, 0));
    printf("+-----  Performance Stats  ----------+-----------------------------------------+\n");
    print_number("Energy Consumed (Joules)", s->energy_j[d]);
    print_mean("Power Usage (Watts)", "%.2f", s->energy_j[d] / wall_s);
    print_number("Max GPU Memory Used (bytes)", (double)s->max_mib[d] * 1048576.0);
    print_item("SM Clock (MHz)", "Avg: N/A, Max: N/A, Min: N/A");
    print_item("Memory Clock (MHz)", "Avg: N/A, Max: N/A, Min: N/A");
    print_mean("SM Utilization (%)", "%.0f", 100.0 * s->gr_active_s[d] / wall_s);
    print_item("Memory Utilization (%)", "Avg: N/A, Max: N/A, Min: N/A");
    print_item("PCIe Rx Bandwidth (megabytes)", "Avg: N/A, Max: N/A, Min: N/A");
    print_item("PCIe Tx Bandwidth (megabytes)", "Avg: N/A, Max: N/A, Min: N/A");
    printf("+-----  Event Stats  ----------------+-----------------------------------------+\n");
    print_item("Single Bit ECC Errors", "0");
    print_item("Double Bit ECC Errors", "0");
    print_item("PCIe Replay Warnings", "0");
    print_item("Critical XID Errors", "0");
    printf("+-----  Slowdown Stats  -------------+-----------------------------------------+\n");
    for (i = 0; i < sizeof(slow) / sizeof(slow[0]); i++)
        print_item(slow[i], i < 2 ? "0" : "Not Supported");
    printf("+--  Compute Process Utilization  ---+-----------------------------------------+\n");
    processes(st, s, d, 1);
    printf("+-----  Overall Health  -------------+-----------------------------------------+\n");
    print_item("Overall Health", "Healthy");
    printf(LINE "\n");
}

static int show_stats(const struct emu_state *st, const struct emu_stats *kept, const char *job,
                      int verbose)
{
    struct emu_stats s;
    double energy_j = 0.0;
    uint64_t most = 0;
    int d;

    if (kept == NULL) {
        printf("Error: Unable to retrieve job statistics. Return: No data is available.\n");
        return FAILED;
    }
    s = *kept;
    if (s.state == 1) /* of a job that still runs: up to now */
        stop_stats(st, &s);
    printf("Successfully retrieved statistics for job: %s. \n", job);
    for (d = 0; d < (int)st->n_devices; d++) {
        if ((s.devices & 1u << d) == 0)
            continue;
        energy_j += s.energy_j[d];
        most = s.max_mib[d] > most ? s.max_mib[d] : most;
        if (verbose)
            print_device(st, &s, d);
    }
    if (verbose)
        return 0;
    printf("%s| %-77s|\n" LINE, LINE, "Summary");
    print_time("Start Time", s.start_epoch_s);
    print_number("Energy Consumed (Joules)", energy_j);
    print_number("Max GPU Memory Used (bytes)", (double)most * 1048576.0);
    printf(LINE);
    return 0;
}

static int end_stats(struct emu_state *st, struct emu_stats *s, const char *job, int removed)
{
    if (s == NULL) {
        printf("Error: Job %s was not found.\n", job);
        return FAILED;
    }
    if (removed)
        s->state = 0;
    else
        stop_stats(st, s);
    printf(removed ? "Successfully removed job %s.\n"
                   : "Successfully stopped recording stats for %s.\n",
           job);
    return 0;
}

int cmd_stats(struct emu_ledger *l, int argc, char **argv)
{
    const char *job = NULL;
    long group = 0;
    int i, verb = 0, verbose = 0, rc = FAILED;

    for (i = 0; i < argc; i++) {
        if (strcmp(argv[i], "-e") == 0 || strcmp(argv[i], "--enable") == 0)
            verb = 'e';
        else if (strcmp(argv[i], "-v") == 0)
            verbose = 1;
        else if (i + 1 == argc || argv[i][0] != '-' || argv[i][1] == '\0')
            break;
        else if (strcmp(argv[i], "-g") == 0)
            group = strtol(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "-u") == 0 || strcmp(argv[i], "-m") == 0)
            i++; /* how often, how long: all is known here at any time */
        else if (strchr("sxjr", argv[i][1]) != NULL) {
            verb = argv[i][1];
            job = argv[++i];
        }
    }
    if (i != argc || verb == 0 || (job != NULL && strlen(job) >= sizeof(l->st->stats[0].job))) {
        fputs("usage: dcgmi stats [-g GROUP] -e | -s JOB | -x JOB | [-v] -j JOB | -r JOB\n",
              stderr);
        return FAILED;
    }
    if (emu_lock(l) < 0)
        return FAILED;
    emu_reap(l, 1);
    if (verb == 'e') {
        printf("Successfully started process watches.\n");
        rc = 0;
    } else if (verb == 's') {
        const struct emu_group *g = group > 0 ? find_group(l->st, (uint32_t)group) : NULL;
        rc = start_stats(l->st, job, group == 0 ? ALL_GPUS : g != NULL ? g->devices : 0);
    } else if (verb == 'j') {
        rc = show_stats(l->st, find_stats(l->st, job), job, verbose);
    } else {
        rc = end_stats(l->st, find_stats(l->st, job), job, verb == 'r');
    }
    emu_unlock(l);
    return rc;
}
