/* SPDX-License-Identifier: Apache-2.0 */
/* GPM, the profiling counters of Hopper and later, and the utilization of each process. */
#include <stdlib.h>
#include <string.h>

#include "monitor.h"
#include "nvml_types.h"

#define GPM_MAGIC 0x47504d31u
#define GPM_FIRST_MAJOR 9 /* compute capability of Hopper */
#define GPM_MOST_METRICS 512
#define MIB 1048576.0
#define BUSY_OF_SMACT 1.2 /* share of time with a kernel, as of a whole GPU (model.c) */

enum { GPM_GRAPHICS = 1, GPM_SM = 2, GPM_OCCUPANCY = 3, GPM_DRAM = 10, GPM_TX = 20, GPM_RX = 21 };

typedef struct {
    uint32_t magic;
    int device, instance; /* instance -1: the whole GPU */
    uint64_t at_ns;       /* 0: nothing was sampled yet */
    double sm_active_s;   /* the device's integral */
    struct reading now;   /* for an instance, and while values stand still */
    int still;
} *nvmlGpmSample_t;

typedef struct {
    unsigned metricId;
    nvmlReturn_t nvmlReturn;
    double value;
    struct {
        char *shortName, *longName, *unit;
    } metricInfo;
} nvmlGpmMetric_t;

typedef struct {
    unsigned version, numMetrics;
    nvmlGpmSample_t sample1, sample2;
    nvmlGpmMetric_t metrics[];
} nvmlGpmMetricsGet_t;

typedef struct {
    unsigned pid;
    unsigned long long timeStamp;
    unsigned smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t h, nvmlGpmSupport_t *out)
{
    ENTER(h)
    if (out->version != 1)
        LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    out->isSupportedDevice = DEV->cc_major >= GPM_FIRST_MAJOR;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *out)
{
    nvmlGpmSample_t s = calloc(1, sizeof(*s));

    if (s == NULL || out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    s->magic = GPM_MAGIC;
    *out = s;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t s)
{
    if (s == NULL || s->magic != GPM_MAGIC)
        return NVML_ERROR_INVALID_ARGUMENT;
    s->magic = 0;
    free(s);
    return NVML_SUCCESS;
}

static int mig_of(const struct emu_device *d, unsigned instance)
{
    for (uint32_t i = 0; i < d->n_mig; i++)
        if (d->mig[i].gi == instance)
            return (int)i;
    return -1;
}

static nvmlReturn_t take(struct emu_state *st, nvmlDevice_t h, int mig, nvmlGpmSample_t s)
{
    if (s == NULL || s->magic != GPM_MAGIC)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (h->mig >= 0 || DEV->cc_major < GPM_FIRST_MAJOR)
        return NVML_ERROR_NOT_SUPPORTED;
    s->device = h->device;
    s->instance = mig;
    s->at_ns = emu_now_ns();
    s->sm_active_s = DEV->sm_active_s;
    s->still = (DEV->faults & EMU_FAULT_STALE) != 0;
    monitor_read(st, h->device, mig, &s->now);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t h, nvmlGpmSample_t s)
{
    ENTER(h)
    LEAVE(take(st, h, -1, s));
}

nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t h, unsigned instance, nvmlGpmSample_t s)
{
    int mig;
    ENTER(h)
    mig = mig_of(DEV, instance);
    if (mig < 0)
        LEAVE(NVML_ERROR_NOT_FOUND);
    LEAVE(take(st, h, mig, s));
}

/* SM activity between two samples of a GPU; an instance's is that of the second moment. */
static double between(const nvmlGpmSample_t a, const nvmlGpmSample_t b)
{
    double active, seconds = (double)(b->at_ns - a->at_ns) / 1e9;

    if (b->instance >= 0 || b->still)
        return b->now.smact;
    active = (b->sm_active_s - a->sm_active_s) / seconds;
    return active < 0.0 ? 0.0 : active > 1.0 ? 1.0 : active;
}

static nvmlReturn_t metric(unsigned id, double smact, double *value)
{
    /* The fixed ratios are monitor.c's; a metric that is not listed is not emulated. */
    switch (id) {
    case GPM_GRAPHICS: *value = 100.0 * (1.2 * smact < 1.0 ? 1.2 * smact : 1.0); break;
    case GPM_SM: *value = 100.0 * smact; break;
    case GPM_OCCUPANCY: *value = 50.0 * smact; break;
    case GPM_DRAM: *value = 60.0 * smact; break;
    case GPM_TX:
    case GPM_RX: *value = 1e9 * smact / MIB; break;
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *asked)
{
    nvmlGpmSample_t a = asked->sample1, b = asked->sample2;
    double smact;

    if (asked->version != 1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (a == NULL || b == NULL || a->magic != GPM_MAGIC || b->magic != GPM_MAGIC || a->at_ns == 0 ||
        b->at_ns <= a->at_ns || a->device != b->device || a->instance != b->instance ||
        asked->numMetrics > GPM_MOST_METRICS)
        return NVML_ERROR_INVALID_ARGUMENT;
    smact = between(a, b);
    for (unsigned i = 0; i < asked->numMetrics; i++)
        asked->metrics[i].nvmlReturn =
            metric(asked->metrics[i].metricId, smact, &asked->metrics[i].value);
    return NVML_SUCCESS;
}

/* One sample of each process that computes, of this moment; the real driver keeps a ring of them.
 * A process' share of time with a kernel has no fixed ratio to its SM activity on a real GPU. */
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t h, nvmlProcessUtilizationSample_t *out,
                                             unsigned *count, unsigned long long last_seen)
{
    unsigned n = 0, room;
    unsigned long long now = emu_epoch_us();
    ENTER(h)
    if (h->mig >= 0 || DEV->mig_enabled)
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    room = out != NULL ? *count : 0;
    for (uint32_t i = 0; i < st->n_slots && last_seen < now; i++) {
        const struct emu_proc *p = &st->proc[i];
        double busy = BUSY_OF_SMACT * p->smact * p->speed;
        if (p->kind != EMU_TRAIN || p->device != h->device || p->smact <= 0.0)
            continue;
        if (n++ < room) {
            memset(&out[n - 1], 0, sizeof(*out));
            out[n - 1].pid = (unsigned)p->pid;
            out[n - 1].timeStamp = now;
            out[n - 1].smUtil = (unsigned)(100.0 * (busy < 1.0 ? busy : 1.0) + 0.5);
        }
    }
    *count = n;
    if (n == 0)
        LEAVE(NVML_ERROR_NOT_FOUND);
    LEAVE(n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}
