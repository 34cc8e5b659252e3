/* SPDX-License-Identifier: Apache-2.0 */
/* Per-device queries. Each enters, reads, leaves. */
#include <stdio.h>
#include <string.h>

#include "monitor.h"
#include "nvml_types.h"

#define MIB 1048576ull

static nvmlReturn_t put(char *out, unsigned len, const char *text)
{
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= len)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t h, char *out, unsigned len)
{
    char name[96];
    ENTER(h)
    snprintf(name, sizeof(name), "%s%s%s", DEV->name, h->mig >= 0 ? " MIG " : "",
             h->mig >= 0 ? DEV->mig[h->mig].profile : "");
    LEAVE(put(out, len, name));
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t h, char *out, unsigned len)
{
    ENTER(h)
    LEAVE(put(out, len, h->mig >= 0 ? DEV->mig[h->mig].uuid : DEV->uuid));
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t h, unsigned *minor)
{
    ENTER(h)
    *minor = DEV->minor;
    LEAVE(h->mig >= 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t h, unsigned *index)
{
    ENTER(h)
    *index = (unsigned)(h->mig >= 0 ? h->mig : h->device);
    LEAVE(NVML_SUCCESS);
}

static void split_bus_id(const char *id, unsigned *domain, unsigned *bus, unsigned *device)
{
    *domain = *bus = *device = 0;
    sscanf(id, "%x:%x:%x", domain, bus, device);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t h, nvmlPciInfo_t *pci)
{
    ENTER(h)
    memset(pci, 0, sizeof(*pci));
    snprintf(pci->busId, sizeof(pci->busId), "%s", DEV->bus_id);
    snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "%s", DEV->bus_id + 4);
    split_bus_id(DEV->bus_id, &pci->domain, &pci->bus, &pci->device);
    pci->pciDeviceId = DEV->pci_device_id;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t h, nvmlPciInfo_v2_t *pci)
{
    ENTER(h)
    memset(pci, 0, sizeof(*pci));
    snprintf(pci->busId, sizeof(pci->busId), "%s", DEV->bus_id + 4);
    split_bus_id(DEV->bus_id, &pci->domain, &pci->bus, &pci->device);
    pci->pciDeviceId = DEV->pci_device_id;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t h, nvmlPciInfo_v2_t *pci)
{
    return nvmlDeviceGetPciInfo_v2(h, pci);
}

/* A MIG device reports its GPU instance's memory and no reserve. */
static void memory(const struct emu_state *st, nvmlDevice_t h, nvmlMemory_v2_t *m)
{
    const struct emu_device *d = DEV;

    m->used = emu_used_mib(st, h->device, h->mig) * MIB;
    m->total = (h->mig >= 0 ? d->mig[h->mig].memory_mib : d->total_mib) * MIB;
    m->reserved = (h->mig >= 0 ? 0 : d->reserved_mib) * MIB;
    m->free = m->total - m->reserved - m->used;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t h, nvmlMemory_v2_t *out)
{
    nvmlMemory_v2_t m;
    ENTER(h)
    if (out->version != NVML_MEMORY_V2)
        LEAVE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    memory(st, h, &m);
    m.version = out->version;
    *out = m;
    LEAVE(NVML_SUCCESS);
}

/* The first version counts the reserve as used. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t h, nvmlMemory_t *out)
{
    nvmlMemory_v2_t m;
    ENTER(h)
    memory(st, h, &m);
    out->total = m.total;
    out->free = m.free;
    out->used = m.used + m.reserved;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t h, nvmlUtilization_t *out)
{
    struct reading r;
    ENTER(h)
    if (h->mig >= 0 || DEV->mig_enabled)
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    monitor_read(st, h->device, -1, &r);
    out->gpu = (unsigned)(r.gract * 100.0 + 0.5);
    out->memory = (unsigned)(r.drama * 100.0 + 0.5);
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t h, unsigned *mw)
{
    struct reading r;
    ENTER(h)
    monitor_read(st, h->device, -1, &r);
    *mw = (unsigned)(r.power_w * 1000.0);
    LEAVE(h->mig >= 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t h, unsigned long long *mj)
{
    ENTER(h)
    *mj = (unsigned long long)(DEV->energy_j * 1000.0);
    LEAVE(h->mig >= 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t h, unsigned *mw)
{
    ENTER(h)
    *mw = (unsigned)(DEV->tdp_w * 1000.0);
    LEAVE(h->mig >= 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t h, unsigned *mw)
{
    return nvmlDeviceGetPowerManagementLimit(h, mw);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t h, int sensor, unsigned *celsius)
{
    struct reading r;
    ENTER(h)
    if (sensor != 0)
        LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    monitor_read(st, h->device, -1, &r);
    *celsius = (unsigned)(r.temperature_c + 0.5);
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t h, nvmlTemperature_t *t)
{
    unsigned celsius = 0;
    nvmlReturn_t rc = nvmlDeviceGetTemperature(h, t->sensorType, &celsius);

    t->temperature = (int)celsius;
    return rc;
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t h, int *pstate)
{
    ENTER(h)
    *pstate = 0;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t h, int *mode)
{
    ENTER(h)
    *mode = 0; /* DEFAULT */
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t h, int *mode)
{
    ENTER(h)
    *mode = 1;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t h, int *major, int *minor)
{
    ENTER(h)
    *major = (int)DEV->cc_major;
    *minor = (int)DEV->cc_minor;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t h, unsigned *arch)
{
    ENTER(h)
    *arch = DEV->arch;
    LEAVE(NVML_SUCCESS);
}

/* Sums the slots of one pid; writes up to room entries, returns how many there are. */
static unsigned list(const struct emu_state *st, nvmlDevice_t h, int mps_only,
                     nvmlProcessInfo_v2_t *out, unsigned room)
{
    unsigned n = 0, i, j;

    for (i = 0; i < st->n_slots; i++) {
        const struct emu_proc *p = &st->proc[i];
        if (p->kind == EMU_FREE || p->device != h->device || (h->mig >= 0 && p->mig != h->mig))
            continue;
        if (mps_only && !p->mps_client)
            continue;
        for (j = 0; j < n && j < room && out[j].pid != (unsigned)p->pid; j++)
            ;
        if (j < n && j < room) {
            out[j].usedGpuMemory += p->memory_mib * MIB;
            continue;
        }
        if (n < room) {
            out[n].pid = (unsigned)p->pid;
            out[n].usedGpuMemory = p->memory_mib * MIB;
            out[n].gpuInstanceId =
                p->mig >= 0 ? st->dev[p->device].mig[p->mig].gi : NVML_NO_INSTANCE;
            out[n].computeInstanceId =
                p->mig >= 0 ? st->dev[p->device].mig[p->mig].ci : NVML_NO_INSTANCE;
        }
        n++;
    }
    return n;
}

static nvmlReturn_t processes(nvmlDevice_t h, int mps_only, unsigned *count,
                              nvmlProcessInfo_v2_t *out)
{
    unsigned n, room;
    ENTER(h)
    room = out != NULL ? *count : 0;
    n = list(st, h, mps_only, out, room);
    *count = n;
    LEAVE(n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t h, unsigned *count,
                                                     nvmlProcessInfo_v2_t *out)
{
    return processes(h, 0, count, out);
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t h, unsigned *count,
                                                     nvmlProcessInfo_v2_t *out)
{
    return processes(h, 0, count, out);
}
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t h, unsigned *count,
                                                        nvmlProcessInfo_v2_t *out)
{
    return processes(h, 1, count, out);
}
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t h, unsigned *count,
                                                        nvmlProcessInfo_v2_t *out)
{
    return processes(h, 1, count, out);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t h, unsigned *count,
                                                  nvmlProcessInfo_v1_t *out)
{
    nvmlProcessInfo_v2_t all[EMU_MAX_PROCS];
    unsigned n = EMU_MAX_PROCS, i, room = out != NULL ? *count : 0;
    nvmlReturn_t rc = processes(h, 0, &n, all);

    if (rc != NVML_SUCCESS)
        return rc;
    for (i = 0; i < n && i < room; i++) {
        out[i].pid = all[i].pid;
        out[i].usedGpuMemory = all[i].usedGpuMemory;
    }
    *count = n;
    return n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* There is never a graphics process. */
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t h, unsigned *count,
                                                      nvmlProcessInfo_v2_t *out)
{
    (void)out;
    ENTER(h)
    *count = 0;
    LEAVE(NVML_SUCCESS);
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t h, unsigned *count,
                                                      nvmlProcessInfo_v2_t *out)
{
    return nvmlDeviceGetGraphicsRunningProcesses_v3(h, count, out);
}
