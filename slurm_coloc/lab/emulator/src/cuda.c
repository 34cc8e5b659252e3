/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libcuda.so.1 that makes contexts and takes memory in the ledger, and runs nothing: as much of
 * the driver interface as `coloc calibrate` asks. One context a process, on one GPU.
 *
 * The size of a context is $COLOC_EMU_CONTEXT_MIB (400): a made-up figure.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ledger.h"

#define MIB 1048576ull
#define MAX_VISIBLE 16
enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    UNKNOWN = 999
};

static struct emu_ledger ledger = {-1, NULL};
static int device[MAX_VISIBLE], mig[MAX_VISIBLE], n_visible;
static struct emu_proc *slot;
static int ordinal;

static const char *library_dir(char *buf, size_t len)
{
    Dl_info info;
    char *slash;

    if (dladdr((void *)library_dir, &info) == 0 || info.dli_fname == NULL)
        return NULL;
    snprintf(buf, len, "%s", info.dli_fname);
    slash = strrchr(buf, '/');
    if (slash == NULL)
        return NULL;
    *slash = '\0';
    return buf;
}

/* Up to the first name that is none, as CUDA has it. */
static void see(const struct emu_state *st)
{
    const char *env = getenv("CUDA_VISIBLE_DEVICES");
    char list[1024], *save = NULL, *word;
    uint32_t d;

    n_visible = 0;
    for (d = 0; env == NULL && d < st->n_devices && n_visible < MAX_VISIBLE; d++, n_visible++) {
        device[n_visible] = (int)d;
        mig[n_visible] = st->dev[d].mig_enabled && st->dev[d].n_mig > 0 ? 0 : -1;
    }
    snprintf(list, sizeof(list), "%s", env != NULL ? env : "");
    for (word = strtok_r(list, ",", &save); word != NULL && n_visible < MAX_VISIBLE;
         word = strtok_r(NULL, ",", &save)) {
        device[n_visible] = emu_device_by_name(st, word, &mig[n_visible]);
        if (device[n_visible] < 0)
            break;
        n_visible++;
    }
}

int cuInit(unsigned flags)
{
    char dir[4096], found[4352];
    const char *path;

    (void)flags;
    if (ledger.st != NULL)
        return OK;
    path = emu_find(found, sizeof(found), library_dir(dir, sizeof(dir)));
    if (path == NULL || emu_open(&ledger, path) < 0)
        return NO_DEVICE;
    see(ledger.st);
    return n_visible > 0 ? OK : NO_DEVICE;
}

int cuDriverGetVersion(int *version)
{
    if (ledger.st == NULL)
        return NOT_INITIALIZED;
    *version = (int)ledger.st->cuda_version;
    return OK;
}

int cuDeviceGetCount(int *count)
{
    *count = n_visible;
    return ledger.st != NULL ? OK : NOT_INITIALIZED;
}

int cuDeviceGet(int *dev, int index)
{
    if (index < 0 || index >= n_visible)
        return INVALID_DEVICE;
    *dev = index;
    return OK;
}

int cuDeviceTotalMem_v2(size_t *bytes, int dev)
{
    if (dev < 0 || dev >= n_visible)
        return INVALID_DEVICE;
    *bytes = (size_t)(emu_capacity_mib(ledger.st, device[dev], mig[dev]) * MIB);
    return OK;
}

/* Makes the process' memory on its GPU `mib` more. */
static int take(uint64_t mib)
{
    int rc;

    if (emu_lock(&ledger) < 0)
        return UNKNOWN;
    rc = emu_proc_resize(&ledger, slot, slot->memory_mib + mib);
    emu_unlock(&ledger);
    return rc == 0 ? OK : OUT_OF_MEMORY;
}

int cuDevicePrimaryCtxRetain(void **context, int dev)
{
    const char *size = getenv("COLOC_EMU_CONTEXT_MIB");

    if (dev < 0 || dev >= n_visible)
        return INVALID_DEVICE;
    *context = &slot;
    if (slot != NULL)
        return OK;
    if (ledger.st->dev[device[dev]].faults & EMU_FAULT_LOST)
        return UNKNOWN;
    if (emu_lock(&ledger) < 0)
        return UNKNOWN;
    ordinal = dev;
    slot = emu_proc_add(&ledger, device[dev], mig[dev], "cuda");
    emu_unlock(&ledger);
    if (slot == NULL)
        return OUT_OF_MEMORY;
    return take(size != NULL ? strtoull(size, NULL, 10) : 400);
}

int cuDevicePrimaryCtxRelease_v2(int dev)
{
    (void)dev;
    if (slot == NULL || emu_lock(&ledger) < 0)
        return UNKNOWN;
    emu_proc_remove(&ledger, slot);
    slot = NULL;
    emu_unlock(&ledger);
    return OK;
}

int cuCtxSetCurrent(void *context) { return context == &slot && slot != NULL ? OK : INVALID_VALUE; }

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    uint64_t all;

    if (slot == NULL)
        return NOT_INITIALIZED;
    all = emu_capacity_mib(ledger.st, device[ordinal], mig[ordinal]);
    *total = (size_t)(all * MIB);
    *free_bytes = (size_t)((all - emu_used_mib(ledger.st, device[ordinal], mig[ordinal])) * MIB);
    return OK;
}

int cuMemAlloc_v2(unsigned long long *pointer, size_t bytes)
{
    int rc;

    if (slot == NULL)
        return NOT_INITIALIZED;
    rc = take((bytes + 2 * MIB - 1) / (2 * MIB) * 2);
    *pointer = rc == OK ? 1 : 0;
    return rc;
}

int cuGetErrorString(int error, const char **text)
{
    switch (error) {
    case OUT_OF_MEMORY: *text = "out of memory"; break;
    case NO_DEVICE: *text = "no CUDA-capable device is detected"; break;
    case INVALID_DEVICE: *text = "invalid device ordinal"; break;
    default: *text = "unknown error";
    }
    return OK;
}
