/* SPDX-License-Identifier: Apache-2.0 */
/* emu-train's side of the ledger: which GPUs, how much memory, how fast. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "model.h"
#include "train.h"

static int no_gpu(void)
{
    fputs("Traceback (most recent call last):\n"
          "  File \"train.py\", line 12, in <module>\n"
          "    model = build_model().cuda()\n"
          "RuntimeError: No CUDA GPUs are available\n",
          stderr);
    return 1;
}

/* Under MPS the daemon's devices count: an index is its number of them, a UUID must be one of them
 * (so an index that Slurm set is wrong beside a daemon for one GPU: NVIDIA advises UUIDs). */
static int visible_of_server(const struct emu_state *st, struct gpus *g, const char *env)
{
    char all[1024], list[1024], *names[MAX_GPUS], *save = NULL, *word;
    int n_all = 0, n = 0, i;

    snprintf(all, sizeof(all), "%s", g->mps.uuids);
    for (word = strtok_r(all, ",", &save); word != NULL && n_all < MAX_GPUS;
         word = strtok_r(NULL, ",", &save))
        names[n_all++] = word;
    snprintf(list, sizeof(list), "%s", env != NULL ? env : g->mps.uuids);
    for (word = strtok_r(list, ",", &save); word != NULL && n < MAX_GPUS;
         word = strtok_r(NULL, ",", &save)) {
        char *end;
        long index = strtol(word, &end, 10);
        if (*end == '\0' && end != word) {
            i = index >= 0 && index < n_all ? (int)index : n_all;
        } else {
            for (i = 0; i < n_all && strcasecmp(names[i], word) != 0; i++)
                ;
        }
        if (i == n_all)
            break;
        g->device[n] = emu_device_by_name(st, names[i], &g->mig[n]);
        if (g->device[n] < 0)
            break;
        n++;
    }
    return n;
}

/* CUDA enumerates the devices named in CUDA_VISIBLE_DEVICES up to the first invalid one; unset
 * means all. An index that names a GPU in MIG mode gives its first MIG device. */
static int visible(const struct emu_state *st, struct gpus *g)
{
    const char *env = getenv("CUDA_VISIBLE_DEVICES");
    char list[1024], *save = NULL, *word;
    uint32_t d;
    int n = 0;

    if (g->mps.server_pid != 0)
        return visible_of_server(st, g, env);
    if (env == NULL) {
        for (d = 0; d < st->n_devices; d++, n++) {
            g->device[n] = (int)d;
            g->mig[n] = st->dev[d].mig_enabled && st->dev[d].n_mig > 0 ? 0 : -1;
        }
        return n;
    }
    snprintf(list, sizeof(list), "%s", env);
    for (word = strtok_r(list, ",", &save); word != NULL && n < MAX_GPUS;
         word = strtok_r(NULL, ",", &save)) {
        while (*word == ' ')
            word++;
        g->device[n] = emu_device_by_name(st, word, &g->mig[n]);
        if (g->device[n] < 0)
            break;
        if (g->mig[n] < 0 && st->dev[g->device[n]].mig_enabled)
            g->mig[n] = 0;
        n++;
    }
    return n;
}

/* "0=6G,1=512MB": the limit of one ordinal, in MiB; 0: none. A UUID as key does not apply, as was
 * seen with real MPS; a number without a unit is bytes. */
static uint64_t fence_of(const char *text, int ordinal)
{
    while (text != NULL && *text != '\0') {
        char *end;
        long key = strtol(text, &end, 10);
        if (end != text && *end == '=' && key == ordinal) {
            double value = strtod(end + 1, &end);
            if (*end == 'G' || *end == 'g')
                return (uint64_t)(value * 1024.0);
            if (*end == 'M' || *end == 'm')
                return (uint64_t)value;
            if (*end == 'K' || *end == 'k')
                return (uint64_t)(value / 1024.0);
            return (uint64_t)(value / 1048576.0);
        }
        text = strchr(text, ',');
        if (text != NULL)
            text++;
    }
    return 0;
}

/* The fence of one device. Real MPS fences its own clients only; where the ledger says that all
 * processes share by MPS (the default), the variable counts without a daemon too. */
static uint64_t fence(const struct gpus *g, int ordinal)
{
    uint64_t own = fence_of(getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), ordinal);
    uint64_t servers = fence_of(g->mps.limits, ordinal);

    if (g->mps.server_pid == 0)
        return g->ledger.st->sharing == EMU_SHARING_MPS ? own : 0;
    return own != 0 && (servers == 0 || own < servers) ? own : servers;
}

/* What CUDA shows as the GPU's memory: the limit of the cgroup where there is one. */
static uint64_t total(const struct gpus *g, int i)
{
    const struct emu_state *st = g->ledger.st;
    uint64_t capacity = emu_capacity_mib(st, g->device[i], g->mig[i]), held;
    uint64_t limit =
        g->mig[i] < 0 ? emu_group_limit(st, g->device[i], g->slot[i]->group, &held) : UINT64_MAX;

    return limit < capacity ? limit : capacity;
}

/* Whether the cgroup's limit is in the way of `mib` for this process. */
static int group_refuses(const struct gpus *g, int i, uint64_t mib)
{
    const struct emu_proc *p = g->slot[i];
    uint64_t held = 0;
    uint64_t limit =
        p->mig < 0 ? emu_group_limit(g->ledger.st, p->device, p->group, &held) : UINT64_MAX;

    return limit != UINT64_MAX && held - p->memory_mib + mib > limit;
}

/* Keeps `want` of the n visible GPUs, from the rank'th on. */
static void choose(struct gpus *g, int n, int want, int rank)
{
    int device[MAX_GPUS], mig[MAX_GPUS], i;

    memcpy(device, g->device, sizeof(device));
    memcpy(mig, g->mig, sizeof(mig));
    for (i = 0; i < want; i++) {
        int from = (rank * want + i) % n;
        g->device[i] = device[from];
        g->mig[i] = mig[from];
        g->ordinal[i] = from;
    }
    g->n = want;
}

static int open_ledger(struct gpus *g, const struct options *o)
{
    char dir[4096], found[4352];
    const char *path = o->ledger;
    int rc;

    if (path == NULL)
        path = emu_find(found, sizeof(found), emu_program_dir(dir, sizeof(dir)));
    if (path == NULL) {
        fputs("emu-train: no ledger: give --ledger or set COLOC_EMU_LEDGER\n", stderr);
        return 9;
    }
    rc = emu_open(&g->ledger, path);
    if (rc < 0) {
        fprintf(stderr, "emu-train: %s: %s\n", path,
                rc == -EPROTO ? "not a ledger of this version" : strerror(-rc));
        return 9;
    }
    return 0;
}

static int take_slots(struct gpus *g, const struct options *o)
{
    int i;

    for (i = 0; i < g->n; i++) {
        struct emu_device *d = &g->ledger.st->dev[g->device[i]];
        if (d->faults & EMU_FAULT_LOST) {
            fputs("RuntimeError: CUDA error: unknown error\n", stderr);
            return 1;
        }
        g->slot[i] =
            emu_proc_add(&g->ledger, g->device[i], g->mig[i], framework_name(o->framework));
        if (g->slot[i] == NULL) {
            fputs("emu-train: the ledger has no free slot\n", stderr);
            return 9;
        }
        g->slot[i]->work_s = o->work_s;
        g->slot[i]->mps_client = g->mps.server_pid != 0;
        g->slot[i]->mps_server_pid = g->mps.server_pid;
        g->fence_mib[i] = fence(g, g->ordinal[i]);
        if (i == 0)
            g->total_mib = total(g, i);
        g->cap_mib[i] = framework_cap(o->framework, total(g, i));
    }
    return 0;
}

static void say_start(const struct gpus *g, int rank)
{
    int i;

    for (i = 0; i < g->n; i++) {
        const struct emu_state *st = g->ledger.st;
        const struct emu_device *d = &st->dev[g->device[i]];
        uint64_t capacity = emu_capacity_mib(st, g->device[i], g->mig[i]);
        char fence[32] = "none";
        if (g->fence_mib[i] != 0)
            snprintf(fence, sizeof(fence), "%llu MiB", (unsigned long long)g->fence_mib[i]);
        printf("emu-train: pid %d rank %d on %s (%s), free %llu of %llu MiB, fence %s%s\n",
               (int)getpid(), rank, g->mig[i] >= 0 ? d->mig[g->mig[i]].uuid : d->uuid, d->name,
               (unsigned long long)(capacity - emu_used_mib(st, g->device[i], g->mig[i])),
               (unsigned long long)capacity, fence, g->mps.server_pid != 0 ? ", MPS client" : "");
    }
    fflush(stdout);
}

int gpus_attach(struct gpus *g, const struct options *o, int rank)
{
    int n, rc;

    memset(g, 0, sizeof(*g));
    g->ledger.fd = g->mps.fd = -1;
    rc = open_ledger(g, o);
    if (rc != 0)
        return rc;
    if (mps_join(&g->mps) < 0)
        return 1;
    n = visible(g->ledger.st, g);
    if (n == 0)
        return no_gpu();
    if (o->gpus > n) {
        fprintf(stderr, "RuntimeError: CUDA error: invalid device ordinal\n");
        return 1;
    }
    choose(g, n, o->gpus, rank);
    if (emu_lock(&g->ledger) < 0) {
        fputs("emu-train: the ledger's lock cannot be had\n", stderr);
        return 9;
    }
    rc = take_slots(g, o);
    if (rc == 0)
        say_start(g, rank);
    emu_unlock(&g->ledger);
    return rc;
}

void gpus_detach(struct gpus *g)
{
    int i, locked;

    mps_leave(&g->mps);
    if (g->ledger.st == NULL)
        return;
    /* Without the lock our slots are left to be reaped, as after a SIGKILL. */
    locked = emu_lock(&g->ledger) == 0;
    for (i = 0; locked && i < g->n; i++)
        if (g->slot[i] != NULL && g->slot[i]->pid == (int32_t)getpid())
            emu_proc_remove(&g->ledger, g->slot[i]);
    if (locked)
        emu_unlock(&g->ledger);
    emu_close(&g->ledger);
}

int gpus_resize(struct gpus *g, uint64_t mib, struct oom *why)
{
    int i, rc = 0;

    if (emu_lock(&g->ledger) < 0)
        return 0; /* the next step tries again */
    for (i = 0; i < g->n && rc == 0; i++) {
        struct emu_proc *p = g->slot[i];
        int capped = g->cap_mib[i] != 0 && mib > g->cap_mib[i];
        int fenced =
            (g->fence_mib[i] != 0 && mib > g->fence_mib[i]) || capped || group_refuses(g, i, mib);
        if (!fenced && emu_proc_resize(&g->ledger, p, mib) == 0)
            continue;
        why->ordinal = g->ordinal[i];
        why->asked_mib = mib - p->memory_mib;
        why->own_mib = p->memory_mib;
        why->total_mib = emu_capacity_mib(g->ledger.st, p->device, p->mig);
        why->free_mib = why->total_mib - emu_used_mib(g->ledger.st, p->device, p->mig);
        why->allowed_mib = g->cap_mib[i];
        why->st = g->ledger.st;
        why->slot = p;
        rc = -1;
    }
    emu_unlock(&g->ledger);
    return rc;
}

uint64_t gpus_preallocate(struct gpus *g, const struct options *o, struct oom *why)
{
    uint64_t mib = framework_takes(o->framework, g->total_mib);

    while (mib > o->memory_mib && gpus_resize(g, mib, why) < 0)
        mib -= mib / 10 + 1; /* as XLA and TensorFlow: a tenth less each time */
    return mib > o->memory_mib ? mib : o->memory_mib;
}

int gpus_tick(struct gpus *g, double *speed, int *neighbours)
{
    int i, rc = mps_ended(&g->mps);

    *speed = 0.0;
    *neighbours = 0;
    if (emu_lock(&g->ledger) < 0)
        return rc;
    for (i = 0; i < g->n; i++) {
        const struct emu_proc *p = g->slot[i];
        const struct emu_device *d = &g->ledger.st->dev[p->device];
        int others = model_neighbours(g->ledger.st, p);
        if (i == 0 || p->speed < *speed)
            *speed = p->speed;
        if (others > *neighbours)
            *neighbours = others;
        if (d->faults & EMU_FAULT_LOST)
            rc = GPU_LOST;
        else if (d->mps_fault_seq != p->mps_fault_seq &&
                 (p->mps_client || g->ledger.st->sharing == EMU_SHARING_MPS))
            rc = MPS_FAULT;
    }
    emu_unlock(&g->ledger);
    return rc;
}

void gpus_set(struct gpus *g, double smact, double work_s, double done_s)
{
    int i;

    for (i = 0; i < g->n; i++) {
        g->slot[i]->smact = smact;
        g->slot[i]->work_s = work_s;
        g->slot[i]->work_done_s = done_s;
    }
}
