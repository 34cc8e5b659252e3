/* SPDX-License-Identifier: Apache-2.0 */
/* nvidia-smi, the part of it that scripts use: -L, --query-gpu, --query-compute-apps, the table,
 * mig -lgi. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "monitor.h"
#include "smi.h"

#define MAX_FIELDS 64

struct row {
    const struct emu_state *st;
    int device;
    const struct emu_proc *proc; /* of --query-compute-apps */
    struct reading r;
};

struct field {
    const char *name, *alias, *unit;
    void (*get)(const struct row *row, char *out, size_t len);
};

#define DEV(row) (&(row)->st->dev[(row)->device])
#define GETTER(fn, format, ...)                                                                    \
    static void fn(const struct row *row, char *out, size_t len)                                   \
    {                                                                                              \
        snprintf(out, len, format, __VA_ARGS__);                                                   \
    }

static unsigned long long used(const struct row *row)
{
    return emu_used_mib(row->st, row->device, -1);
}

GETTER(f_index, "%d", row->device)
GETTER(f_name, "%s", DEV(row)->name)
GETTER(f_uuid, "%s", DEV(row)->uuid)
GETTER(f_bus, "%s", DEV(row)->bus_id)
GETTER(f_driver, "%s", row->st->driver)
GETTER(f_count, "%u", row->st->n_devices)
GETTER(f_total, "%llu", (unsigned long long)DEV(row)->total_mib)
GETTER(f_reserved, "%llu", (unsigned long long)DEV(row)->reserved_mib)
GETTER(f_used, "%llu", used(row))
GETTER(f_free, "%llu", (unsigned long long)emu_capacity_mib(row->st, row->device, -1) - used(row))
GETTER(f_power, "%.2f", row->r.power_w)
GETTER(f_limit, "%.2f", DEV(row)->tdp_w)
GETTER(f_temp, "%.0f", row->r.temperature_c)
GETTER(f_cap, "%u.%u", DEV(row)->cc_major, DEV(row)->cc_minor)
GETTER(f_mig, "%s",
       !DEV(row)->mig_capable  ? "[N/A]"
       : DEV(row)->mig_enabled ? "Enabled"
                               : "Disabled")
GETTER(f_pid, "%d", row->proc->pid)
GETTER(f_proc_used, "%llu", (unsigned long long)row->proc->memory_mib)

/* The device's utilization is not available while it is cut by MIG. */
static void percent(const struct row *row, double ratio, char *out, size_t len)
{
    if (DEV(row)->mig_enabled)
        snprintf(out, len, "[N/A]");
    else
        snprintf(out, len, "%.0f", ratio * 100.0);
}
static void f_util(const struct row *row, char *out, size_t len)
{
    percent(row, row->r.gract, out, len);
}
static void f_util_mem(const struct row *row, char *out, size_t len)
{
    percent(row, row->r.drama, out, len);
}
static void f_default(const struct row *row, char *out, size_t len)
{
    (void)row;
    snprintf(out, len, "Default");
}
static void f_p0(const struct row *row, char *out, size_t len)
{
    (void)row;
    snprintf(out, len, "P0");
}
static void f_on(const struct row *row, char *out, size_t len)
{
    (void)row;
    snprintf(out, len, "Enabled");
}
static void f_time(const struct row *row, char *out, size_t len)
{
    time_t now = time(NULL);
    struct tm tm;

    (void)row;
    localtime_r(&now, &tm);
    strftime(out, len, "%Y/%m/%d %H:%M:%S.000", &tm);
}
static void f_proc_name(const struct row *row, char *out, size_t len)
{
    char path[64];
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/%d/exe", row->proc->pid);
    n = readlink(path, out, len - 1);
    if (n <= 0)
        snprintf(out, len, "[Not Found]");
    else
        out[n] = '\0';
}

static const struct field gpu_fields[] = {
    {"timestamp",          "timestamp",            NULL,  f_time    },
    {"index",              "index",                NULL,  f_index   },
    {"name",               "gpu_name",             NULL,  f_name    },
    {"uuid",               "gpu_uuid",             NULL,  f_uuid    },
    {"pci.bus_id",         "gpu_bus_id",           NULL,  f_bus     },
    {"driver_version",     "driver_version",       NULL,  f_driver  },
    {"count",              "count",                NULL,  f_count   },
    {"memory.total",       "memory.total",         "MiB", f_total   },
    {"memory.reserved",    "memory.reserved",      "MiB", f_reserved},
    {"memory.used",        "memory.used",          "MiB", f_used    },
    {"memory.free",        "memory.free",          "MiB", f_free    },
    {"utilization.gpu",    "utilization.gpu",      "%",   f_util    },
    {"utilization.memory", "utilization.memory",   "%",   f_util_mem},
    {"power.draw",         "power.draw.instant",   "W",   f_power   },
    {"power.limit",        "enforced.power.limit", "W",   f_limit   },
    {"temperature.gpu",    "temperature.gpu",      NULL,  f_temp    },
    {"compute_cap",        "compute_cap",          NULL,  f_cap     },
    {"compute_mode",       "compute_mode",         NULL,  f_default },
    {"pstate",             "pstate",               NULL,  f_p0      },
    {"persistence_mode",   "persistence_mode",     NULL,  f_on      },
    {"mig.mode.current",   "mig.mode.pending",     NULL,  f_mig     },
    {NULL,                 NULL,                   NULL,  NULL      },
};

static const struct field app_fields[] = {
    {"timestamp",       "timestamp",   NULL,  f_time     },
    {"gpu_name",        "gpu_name",    NULL,  f_name     },
    {"gpu_bus_id",      "gpu_bus_id",  NULL,  f_bus      },
    {"gpu_uuid",        "gpu_uuid",    NULL,  f_uuid     },
    {"pid",             "pid",         NULL,  f_pid      },
    {"process_name",    "name",        NULL,  f_proc_name},
    {"used_gpu_memory", "used_memory", "MiB", f_proc_used},
    {NULL,              NULL,          NULL,  NULL       },
};

struct request {
    const struct field *fields[MAX_FIELDS];
    const char *names[MAX_FIELDS]; /* as asked for: the header repeats them */
    int n, header, units, device;  /* device -1: all */
};

static int parse_fields(struct request *q, const struct field *table, char *list)
{
    char *save = NULL, *word;

    for (word = strtok_r(list, ",", &save); word != NULL; word = strtok_r(NULL, ",", &save)) {
        const struct field *f = table;
        while (isspace((unsigned char)*word))
            word++;
        while (f->name != NULL && strcmp(f->name, word) != 0 && strcmp(f->alias, word) != 0)
            f++;
        if (f->name == NULL || q->n == MAX_FIELDS) {
            printf("Field \"%s\" is not a valid field to query.\n\n", word);
            return -1;
        }
        q->names[q->n] = word;
        q->fields[q->n++] = f;
    }
    return q->n > 0 ? 0 : -1;
}

static void print_header(const struct request *q)
{
    int i;

    for (i = 0; i < q->n; i++)
        if (q->fields[i]->unit != NULL)
            printf("%s%s [%s]", i ? ", " : "", q->names[i], q->fields[i]->unit);
        else
            printf("%s%s", i ? ", " : "", q->names[i]);
    printf("\n");
}

static void print_row(const struct request *q, const struct row *row)
{
    char text[4096];
    int i;

    for (i = 0; i < q->n; i++) {
        const char *unit = q->fields[i]->unit;
        q->fields[i]->get(row, text, sizeof(text));
        printf("%s%s%s%s", i ? ", " : "", text, q->units && unit && *text != '[' ? " " : "",
               q->units && unit && *text != '[' ? unit : "");
    }
    printf("\n");
}

static int check_device(const struct emu_state *st, int d)
{
    const struct emu_device *dev = &st->dev[d];

    if (dev->faults & EMU_FAULT_LOST) {
        printf("Unable to determine the device handle for GPU%d: %s: GPU is lost.  Reboot the "
               "system to recover this GPU\n",
               d, dev->bus_id);
        return 15;
    }
    if (dev->faults & EMU_FAULT_NVML_BUSY) {
        printf("Unable to determine the device handle for GPU%d: %s: Timeout\n", d, dev->bus_id);
        return 10;
    }
    return 0;
}

static int run_query(const struct emu_state *st, const struct request *q, int apps)
{
    struct row row = {.st = st};
    int d, i, rc = 0;

    if (q->header)
        print_header(q);
    for (d = 0; d < (int)st->n_devices; d++) {
        int fault;
        if (q->device >= 0 && d != q->device)
            continue;
        fault = check_device(st, d);
        if (fault != 0) {
            rc = fault;
            continue;
        }
        row.device = d;
        monitor_read(st, d, -1, &row.r);
        if (!apps)
            print_row(q, &row);
        for (i = 0; apps && i < (int)st->n_slots; i++) {
            row.proc = &st->proc[i];
            if (emu_proc_on(st, row.proc, d, -1))
                print_row(q, &row);
        }
    }
    return rc;
}

static int list_gpus(const struct emu_state *st)
{
    uint32_t d, m;
    int rc = 0;

    for (d = 0; d < st->n_devices; d++) {
        const struct emu_device *dev = &st->dev[d];
        int fault = check_device(st, (int)d);
        if (fault != 0) {
            rc = fault;
            continue;
        }
        printf("GPU %u: %s (UUID: %s)\n", d, dev->name, dev->uuid);
        for (m = 0; m < dev->n_mig; m++)
            printf("  MIG %-12s Device %2u: (UUID: %s)\n", dev->mig[m].profile, m,
                   dev->mig[m].uuid);
    }
    return rc;
}

static int table(const struct emu_state *st)
{
    static const char *const line = "+-----------------------------------------------------------"
                                    "------------------------------+\n";
    uint32_t d, i;
    int rc = 0;

    printf("%s| NVIDIA-SMI %-16s  Driver Version: %-16s  CUDA Version: %u.%u     |\n%s", line,
           st->driver, st->driver, st->cuda_version / 1000, st->cuda_version % 1000 / 10, line);
    for (d = 0; d < st->n_devices; d++) {
        const struct emu_device *dev = &st->dev[d];
        struct reading r;
        int fault = check_device(st, (int)d);
        if (fault != 0) {
            rc = fault;
            continue;
        }
        monitor_read(st, (int)d, -1, &r);
        printf("| %3u  %-28s On | %s Off | %.0fC P0 %.0fW / %.0fW | %lluMiB / %lluMiB | %.0f%% "
               "Default |\n",
               d, dev->name, dev->bus_id, r.temperature_c, r.power_w, dev->tdp_w,
               (unsigned long long)emu_used_mib(st, (int)d, -1), (unsigned long long)dev->total_mib,
               r.gract * 100.0);
    }
    printf("%s\n%s| Processes:\n", line, line);
    for (i = 0; i < st->n_slots; i++) {
        const struct emu_proc *p = &st->proc[i];
        struct row row = {.st = st, .device = p->device, .proc = p};
        char name[4096];
        if (p->kind == EMU_FREE)
            continue;
        f_proc_name(&row, name, sizeof(name));
        printf("| %4d  %8d  %s  %s  %lluMiB |\n", p->device, p->pid, p->mps_client ? "M+C" : "C",
               name, (unsigned long long)p->memory_mib);
    }
    fputs(line, stdout);
    return rc;
}

/* The value of --name=value or --name value; NULL where arg is another option. */
static char *value_of(char **argv, int argc, int *i, const char *name)
{
    size_t n = strlen(name);

    if (strncmp(argv[*i], name, n) != 0)
        return NULL;
    if (argv[*i][n] == '=')
        return argv[*i] + n + 1;
    return argv[*i][n] == '\0' && *i + 1 < argc ? argv[++*i] : NULL;
}

int main(int argc, char **argv)
{
    struct request q = {.header = 1, .units = 1, .device = -1};
    static struct emu_state st;
    struct emu_ledger l;
    const char *id = NULL;
    char *v, *gpu = NULL, *apps = NULL;
    int i, mig, listing = 0, instances = 0;
    int first = argc > 1 && strcmp(argv[1], "mig") == 0 ? 2 : 1;

    for (i = first; i < argc; i++) {
        if (first == 2 &&
            (strcmp(argv[i], "-lgi") == 0 || strcmp(argv[i], "--list-gpu-instances") == 0)) {
            instances = 1;
        } else if (strcmp(argv[i], "-L") == 0 || strcmp(argv[i], "--list-gpus") == 0) {
            listing = 1;
        } else if ((v = value_of(argv, argc, &i, "--query-gpu")) != NULL) {
            gpu = v;
        } else if ((v = value_of(argv, argc, &i, "--query-compute-apps")) != NULL) {
            apps = v;
        } else if ((v = value_of(argv, argc, &i, "--format")) != NULL) {
            q.header = strstr(v, "noheader") == NULL;
            q.units = strstr(v, "nounits") == NULL;
        } else if ((v = value_of(argv, argc, &i, "-i")) != NULL ||
                   (v = value_of(argv, argc, &i, "--id")) != NULL) {
            id = v;
        } else {
            fprintf(stderr, "nvidia-smi (emulated): option %s is not emulated\n", argv[i]);
            return 2;
        }
    }
    if (first == 2 && !instances) {
        fputs("nvidia-smi (emulated): of mig only -lgi is emulated\n", stderr);
        return 2;
    }
    emu_open_or_die(&l, NULL,
                    "NVIDIA-SMI has failed because it couldn't communicate with the "
                    "NVIDIA driver");
    if (emu_lock(&l) < 0)
        return 10;
    emu_reap(&l, 1);
    st = *l.st;
    emu_unlock(&l);
    if (id != NULL && (q.device = emu_device_by_name(&st, id, &mig)) < 0) {
        printf("No devices were found\n");
        return 6;
    }
    if (instances)
        return list_gpu_instances(&st, q.device);
    if (listing)
        return list_gpus(&st);
    if (gpu == NULL && apps == NULL)
        return table(&st);
    if (parse_fields(&q, gpu != NULL ? gpu_fields : app_fields, gpu != NULL ? gpu : apps) < 0)
        return 2;
    return run_query(&st, &q, gpu == NULL);
}
