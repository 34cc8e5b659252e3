/* SPDX-License-Identifier: Apache-2.0 */
/* The part of NVML's C interface that is emulated. Layouts are those that nvidia-ml-py uses. */
#ifndef EMU_NVML_TYPES_H
#define EMU_NVML_TYPES_H

#include "ledger.h"

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_UNKNOWN = 999
};

#define NVML_MEMORY_V2 0x02000028u
#define NVML_NO_INSTANCE 0xffffffffu

typedef int nvmlReturn_t;

struct handle {
    uint32_t magic;
    int device, mig;
};
typedef struct handle *nvmlDevice_t;

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

typedef struct {
    char busId[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId, reserved[4];
} nvmlPciInfo_v2_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned gpu, memory;
} nvmlUtilization_t;

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_v2_t;

typedef struct {
    unsigned multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount,
        sharedJpegCount, sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;

typedef struct {
    unsigned version, isSupportedDevice;
} nvmlGpmSupport_t;

typedef struct {
    int version, sensorType, temperature;
} nvmlTemperature_t;

/* The one choke point: library started, handle ours, device present and answering. On success the
 * ledger is locked and *st is set: every caller must end with nvml_leave(). */
nvmlReturn_t nvml_enter(nvmlDevice_t h, struct emu_state **st);
nvmlReturn_t nvml_enter_any(struct emu_state **st); /* the same for calls without a device */
void nvml_leave(void);
nvmlDevice_t nvml_handle(int device, int mig);

/* A query's frame: enters (declares st and rc), reads DEV, leaves with its result. */
#define ENTER(h)                                                                                   \
    struct emu_state *st;                                                                          \
    nvmlReturn_t rc = nvml_enter(h, &st);                                                          \
    if (rc != NVML_SUCCESS)                                                                        \
        return rc;
#define LEAVE(value)                                                                               \
    do {                                                                                           \
        rc = (value);                                                                              \
        nvml_leave();                                                                              \
        return rc;                                                                                 \
    } while (0)
#define DEV (&st->dev[h->device])

#endif
