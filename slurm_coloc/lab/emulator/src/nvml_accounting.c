/* SPDX-License-Identifier: Apache-2.0 */
/* Accounting: what each process, also one that has ended, took at most. Always switched on; the
 * newest EMU_MAX_PAST ended processes of the node are remembered. */
#include <string.h>

#include "nvml_types.h"

#define MIB 1048576ull

typedef struct {
    unsigned gpuUtilization, memoryUtilization;
    unsigned long long maxMemoryUsage, time, startTime;
    unsigned isRunning, reserved[5];
} nvmlAccountingStats_t;

static uint64_t first_past(const struct emu_state *st)
{
    return st->n_past > EMU_MAX_PAST ? st->n_past - EMU_MAX_PAST : 0;
}

static int here(nvmlDevice_t h, int device, int mig)
{
    return device == h->device && (h->mig < 0 || mig == h->mig);
}

nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t h, int *mode)
{
    ENTER(h)
    *mode = 1;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t h, unsigned *size)
{
    ENTER(h)
    *size = EMU_MAX_PAST + EMU_MAX_PROCS;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t h, unsigned *count, unsigned *pids)
{
    unsigned n = 0, room;
    ENTER(h)
    room = pids != NULL ? *count : 0;
    for (uint64_t i = first_past(st); i < st->n_past; i++) {
        const struct emu_past *p = &st->past[i % EMU_MAX_PAST];
        if (here(h, p->device, p->mig) && n++ < room)
            pids[n - 1] = (unsigned)p->pid;
    }
    for (uint32_t i = 0; i < st->n_slots; i++) {
        const struct emu_proc *p = &st->proc[i];
        if (p->kind != EMU_FREE && here(h, p->device, p->mig) && n++ < room)
            pids[n - 1] = (unsigned)p->pid;
    }
    *count = n;
    LEAVE(n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}

/* Of the running process with that pid, else of the newest that has ended. */
nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t h, unsigned pid, nvmlAccountingStats_t *out)
{
    ENTER(h)
    memset(out, 0, sizeof(*out));
    for (uint32_t i = 0; i < st->n_slots; i++) {
        const struct emu_proc *p = &st->proc[i];
        if (p->kind == EMU_FREE || !here(h, p->device, p->mig) || (unsigned)p->pid != pid)
            continue;
        out->maxMemoryUsage = p->peak_mib * MIB;
        out->startTime = p->start_us;
        out->isRunning = 1; /* its time is 0 until it ends, as NVIDIA's manual says */
        LEAVE(NVML_SUCCESS);
    }
    for (uint64_t i = st->n_past; i > first_past(st); i--) {
        const struct emu_past *p = &st->past[(i - 1) % EMU_MAX_PAST];
        if (!here(h, p->device, p->mig) || (unsigned)p->pid != pid)
            continue;
        out->maxMemoryUsage = p->peak_mib * MIB;
        out->startTime = p->start_us;
        out->time = (p->end_us - p->start_us) / 1000ull;
        LEAVE(NVML_SUCCESS);
    }
    LEAVE(NVML_ERROR_NOT_FOUND);
}
