/* SPDX-License-Identifier: Apache-2.0 */
/* Start, stop, handles, and the system's own figures. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "nvml_types.h"

#define HANDLE_MAGIC 0x4e564d4cu

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards all below; held while locked */
static struct emu_ledger ledger = {-1, NULL};
static int started;
static struct handle handles[EMU_MAX_DEVICES][1 + EMU_MAX_MIG];

/* Folder of this very library, so that a job without our variables still finds its node. */
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

nvmlDevice_t nvml_handle(int device, int mig)
{
    struct handle *h = &handles[device][mig + 1];

    h->magic = HANDLE_MAGIC;
    h->device = device;
    h->mig = mig;
    return h;
}

/* A pointer is checked by address only: what a caller hands in may not be readable. */
static int is_handle(nvmlDevice_t h)
{
    uintptr_t p = (uintptr_t)h, first = (uintptr_t)&handles[0][0];

    if (p < first || p >= first + sizeof(handles) || (p - first) % sizeof(struct handle) != 0)
        return 0;
    return h->magic == HANDLE_MAGIC;
}

nvmlReturn_t nvml_enter_any(struct emu_state **st)
{
    pthread_mutex_lock(&mutex);
    if (started == 0) {
        pthread_mutex_unlock(&mutex);
        return NVML_ERROR_UNINITIALIZED;
    }
    if (emu_lock(&ledger) < 0) {
        pthread_mutex_unlock(&mutex);
        return NVML_ERROR_TIMEOUT;
    }
    *st = ledger.st;
    return NVML_SUCCESS;
}

nvmlReturn_t nvml_enter(nvmlDevice_t h, struct emu_state **st)
{
    nvmlReturn_t rc = nvml_enter_any(st);
    uint32_t faults;

    if (rc != NVML_SUCCESS)
        return rc;
    if (!is_handle(h)) {
        nvml_leave();
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    faults = (*st)->dev[h->device].faults;
    if (faults & (EMU_FAULT_LOST | EMU_FAULT_NVML_BUSY)) {
        nvml_leave();
        return faults & EMU_FAULT_LOST ? NVML_ERROR_GPU_IS_LOST : NVML_ERROR_TIMEOUT;
    }
    return NVML_SUCCESS;
}

void nvml_leave(void)
{
    emu_unlock(&ledger);
    pthread_mutex_unlock(&mutex);
}

nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    char dir[4096], found[4352];
    const char *path;
    nvmlReturn_t rc = NVML_SUCCESS;

    (void)flags;
    pthread_mutex_lock(&mutex);
    if (started == 0) {
        path = emu_find(found, sizeof(found), library_dir(dir, sizeof(dir)));
        if (path == NULL || emu_open(&ledger, path) < 0)
            rc = NVML_ERROR_DRIVER_NOT_LOADED;
    }
    if (rc == NVML_SUCCESS)
        started++;
    pthread_mutex_unlock(&mutex);
    return rc;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t rc = NVML_SUCCESS;

    pthread_mutex_lock(&mutex);
    if (started == 0)
        rc = NVML_ERROR_UNINITIALIZED;
    else if (--started == 0)
        emu_close(&ledger);
    pthread_mutex_unlock(&mutex);
    return rc;
}

const char *nvmlErrorString(nvmlReturn_t rc)
{
    switch (rc) {
    case NVML_SUCCESS: return "The operation was successful";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT: return "Timeout";
    case NVML_ERROR_FUNCTION_NOT_FOUND: return "Function Not Found";
    case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Argument version mismatch";
    default: return "Unknown Error";
    }
}

/* Copies a string as NVML does: too small a buffer is an error, not a cut. */
static nvmlReturn_t copy_out(char *out, unsigned len, const char *text)
{
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= len)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned len)
{
    struct emu_state *st;
    nvmlReturn_t rc = nvml_enter_any(&st);

    if (rc != NVML_SUCCESS)
        return rc;
    rc = copy_out(out, len, st->driver);
    nvml_leave();
    return rc;
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *out, unsigned len)
{
    struct emu_state *st;
    nvmlReturn_t rc = nvml_enter_any(&st);

    if (rc != NVML_SUCCESS)
        return rc;
    rc = copy_out(out, len, st->nvml);
    nvml_leave();
    return rc;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    struct emu_state *st;
    nvmlReturn_t rc = nvml_enter_any(&st);

    if (rc != NVML_SUCCESS)
        return rc;
    *version = (int)st->cuda_version;
    nvml_leave();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    struct emu_state *st;
    nvmlReturn_t rc = nvml_enter_any(&st);

    if (rc != NVML_SUCCESS)
        return rc;
    *count = st->n_devices;
    nvml_leave();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

static nvmlReturn_t find_device(const char *name, int by_index, unsigned index, nvmlDevice_t *out)
{
    struct emu_state *st;
    int device = (int)index, mig = -1;
    nvmlReturn_t rc = nvml_enter_any(&st);

    if (rc != NVML_SUCCESS)
        return rc;
    if (by_index)
        rc = index < st->n_devices ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
    else if (name == NULL)
        rc = NVML_ERROR_INVALID_ARGUMENT;
    else if ((device = emu_device_by_name(st, name, &mig)) < 0)
        rc = NVML_ERROR_NOT_FOUND;
    if (rc == NVML_SUCCESS && (st->dev[device].faults & EMU_FAULT_LOST))
        rc = NVML_ERROR_GPU_IS_LOST;
    if (rc == NVML_SUCCESS)
        *out = nvml_handle(device, mig);
    nvml_leave();
    return rc;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *out)
{
    return find_device(NULL, 1, index, out);
}
nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *out)
{
    return find_device(NULL, 1, index, out);
}
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out)
{
    return find_device(uuid != NULL && strchr(uuid, '-') != NULL ? uuid : NULL, 0, 0, out);
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *out)
{
    return find_device(bus != NULL && strchr(bus, ':') != NULL ? bus : NULL, 0, 0, out);
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus, nvmlDevice_t *out)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus, out);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *out, unsigned len)
{
    char path[64], name[4096];
    FILE *f;
    size_t n;

    snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
    f = fopen(path, "re");
    if (f == NULL)
        return NVML_ERROR_NOT_FOUND;
    n = fread(name, 1, sizeof(name) - 1, f);
    fclose(f);
    name[n] = '\0';
    return copy_out(out, len, name);
}
