/* SPDX-License-Identifier: Apache-2.0 */
/* MIG queries, and the many functions that are known and not emulated. */
#include <string.h>

#include "nvml_types.h"

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t h, unsigned *current, unsigned *pending)
{
    ENTER(h)
    if (!DEV->mig_capable)
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    *current = *pending = DEV->mig_enabled;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t h, unsigned *is_mig)
{
    ENTER(h)
    *is_mig = h->mig >= 0;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t h, unsigned *count)
{
    ENTER(h)
    *count = DEV->mig_capable ? 7 : 0;
    LEAVE(h->mig >= 0 ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t h, unsigned index, nvmlDevice_t *out)
{
    ENTER(h)
    if (h->mig >= 0 || !DEV->mig_capable)
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    if (index >= DEV->n_mig)
        LEAVE(index < 7 ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT);
    *out = nvml_handle(h->device, (int)index);
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t h, nvmlDevice_t *out)
{
    ENTER(h)
    if (h->mig < 0)
        LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    *out = nvml_handle(h->device, -1);
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t h, unsigned *id)
{
    ENTER(h)
    if (h->mig < 0)
        LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    *id = DEV->mig[h->mig].gi;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t h, unsigned *id)
{
    ENTER(h)
    if (h->mig < 0)
        LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    *id = DEV->mig[h->mig].ci;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t h, nvmlDeviceAttributes_t *out)
{
    uint32_t i;
    ENTER(h)
    if (h->mig < 0)
        LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    memset(out, 0, sizeof(*out));
    out->multiprocessorCount = DEV->mig[h->mig].sms;
    out->computeInstanceSliceCount = DEV->mig[h->mig].slices;
    for (i = 0; i < DEV->n_mig; i++) /* slices of the GPU instance: those of its parts */
        if (DEV->mig[i].gi == DEV->mig[h->mig].gi)
            out->gpuInstanceSliceCount += DEV->mig[i].slices;
    out->memorySizeMB = DEV->mig[h->mig].memory_mib;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t h, nvmlDeviceAttributes_t *out)
{
    return nvmlDeviceGetAttributes_v2(h, out);
}

/* Functions of the real library that tools ask for and that the emulation does not have. One that
 * is not even listed here is, as with an older driver, NVML_ERROR_FUNCTION_NOT_FOUND. */
#define NOT_SUPPORTED(name)                                                                        \
    nvmlReturn_t name(void);                                                                       \
    nvmlReturn_t name(void) { return NVML_ERROR_NOT_SUPPORTED; }

NOT_SUPPORTED(nvmlDeviceGetSerial)
NOT_SUPPORTED(nvmlDeviceGetBrand)
NOT_SUPPORTED(nvmlDeviceGetFanSpeed)
NOT_SUPPORTED(nvmlDeviceGetFanSpeed_v2)
NOT_SUPPORTED(nvmlDeviceGetClockInfo)
NOT_SUPPORTED(nvmlDeviceGetMaxClockInfo)
NOT_SUPPORTED(nvmlDeviceGetApplicationsClock)
NOT_SUPPORTED(nvmlDeviceGetEccMode)
NOT_SUPPORTED(nvmlDeviceGetTotalEccErrors)
NOT_SUPPORTED(nvmlDeviceGetMemoryErrorCounter)
NOT_SUPPORTED(nvmlDeviceGetRemappedRows)
NOT_SUPPORTED(nvmlDeviceGetRetiredPages)
NOT_SUPPORTED(nvmlDeviceGetEncoderUtilization)
NOT_SUPPORTED(nvmlDeviceGetDecoderUtilization)
NOT_SUPPORTED(nvmlDeviceGetPcieThroughput)
NOT_SUPPORTED(nvmlDeviceGetCurrPcieLinkGeneration)
NOT_SUPPORTED(nvmlDeviceGetCurrPcieLinkWidth)
NOT_SUPPORTED(nvmlDeviceGetMaxPcieLinkGeneration)
NOT_SUPPORTED(nvmlDeviceGetMaxPcieLinkWidth)
NOT_SUPPORTED(nvmlDeviceGetCpuAffinity)
NOT_SUPPORTED(nvmlDeviceGetCpuAffinityWithinScope)
NOT_SUPPORTED(nvmlDeviceGetMemoryAffinity)
NOT_SUPPORTED(nvmlDeviceGetTopologyCommonAncestor)
NOT_SUPPORTED(nvmlDeviceGetNvLinkState)
NOT_SUPPORTED(nvmlDeviceGetNvLinkRemotePciInfo_v2)
NOT_SUPPORTED(nvmlDeviceGetBAR1MemoryInfo)
NOT_SUPPORTED(nvmlDeviceGetDisplayMode)
NOT_SUPPORTED(nvmlDeviceGetDisplayActive)
NOT_SUPPORTED(nvmlDeviceGetSamples)
NOT_SUPPORTED(nvmlDeviceGetFieldValues)
NOT_SUPPORTED(nvmlDeviceGetProcessesUtilizationInfo)
NOT_SUPPORTED(nvmlDeviceSetAccountingMode)
NOT_SUPPORTED(nvmlDeviceSetComputeMode)
NOT_SUPPORTED(nvmlDeviceSetMigMode)
NOT_SUPPORTED(nvmlDeviceSetPersistenceMode)
NOT_SUPPORTED(nvmlDeviceGetCurrentClocksThrottleReasons)
NOT_SUPPORTED(nvmlDeviceGetCurrentClocksEventReasons)
NOT_SUPPORTED(nvmlDeviceGetGpuInstances)
NOT_SUPPORTED(nvmlDeviceGetGpuInstanceProfileInfo)
NOT_SUPPORTED(nvmlDeviceGetGpuInstanceProfileInfoV)
NOT_SUPPORTED(nvmlDeviceCreateGpuInstance)
NOT_SUPPORTED(nvmlDeviceGetRunningProcessDetailList)
NOT_SUPPORTED(nvmlSystemGetConfComputeState)
NOT_SUPPORTED(nvmlUnitGetCount)
