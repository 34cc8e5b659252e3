/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event sets: Xids alone. `coloc-emu xid` writes them into the ledger; a set remembers how far it
 * has read. Waiting takes no lock and no time of a core, as with the driver: it sleeps until the
 * ledger's count moves.
 */
#include <pthread.h>
#include <time.h>

#include "nvml_types.h"

#define XID_CRITICAL 0x8ull /* nvmlEventTypeXidCriticalError */
#define MAX_SETS 16

typedef struct {
    nvmlDevice_t device;
    unsigned long long eventType, eventData;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlEventData_t;

struct event_set {
    int taken, devices; /* bit n: device n is registered */
    uint64_t read;      /* Xids before this one are past */
};
typedef struct event_set *nvmlEventSet_t;

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER; /* of the sets */
static struct event_set sets[MAX_SETS];

static int is_set(nvmlEventSet_t set) { return set >= sets && set < sets + MAX_SETS && set->taken; }

static uint64_t count_of(const struct emu_state *st)
{
    return __atomic_load_n(&st->n_xids, __ATOMIC_ACQUIRE);
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *out)
{
    struct emu_state *st;
    nvmlReturn_t rc = nvml_enter_any(&st);
    int i;

    if (rc != NVML_SUCCESS)
        return rc;
    rc = NVML_ERROR_MEMORY;
    pthread_mutex_lock(&guard);
    for (i = 0; i < MAX_SETS && rc != NVML_SUCCESS; i++) {
        if (sets[i].taken)
            continue;
        sets[i] = (struct event_set){1, 0, count_of(st)};
        *out = &sets[i];
        rc = NVML_SUCCESS;
    }
    pthread_mutex_unlock(&guard);
    nvml_leave();
    return rc;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    nvmlReturn_t rc = NVML_ERROR_INVALID_ARGUMENT;

    pthread_mutex_lock(&guard);
    if (is_set(set)) {
        set->taken = 0;
        rc = NVML_SUCCESS;
    }
    pthread_mutex_unlock(&guard);
    return rc;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t h, unsigned long long *types)
{
    ENTER(h)
    *types = st->without_events ? 0 : XID_CRITICAL;
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t h, unsigned long long types, nvmlEventSet_t set)
{
    ENTER(h)
    if (st->without_events || (types & ~XID_CRITICAL))
        LEAVE(NVML_ERROR_NOT_SUPPORTED);
    if (h->mig >= 0) /* "does not support per-instance event reporting using MIG device handles" */
        LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    pthread_mutex_lock(&guard);
    rc = is_set(set) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
    if (rc == NVML_SUCCESS && types)
        set->devices |= 1 << h->device;
    pthread_mutex_unlock(&guard);
    LEAVE(rc);
}

/* The next Xid of a registered device; 0 where there is none. */
static int take(const struct emu_state *st, nvmlEventSet_t set, nvmlEventData_t *out)
{
    uint64_t count = count_of(st);

    if (count - set->read > EMU_MAX_XIDS)
        set->read = count - EMU_MAX_XIDS;
    while (set->read < count) {
        const struct emu_xid *xid = &st->xid[set->read++ % EMU_MAX_XIDS];
        if (!(set->devices & 1 << xid->device))
            continue;
        *out = (nvmlEventData_t){nvml_handle(xid->device, -1), XID_CRITICAL, xid->number, xid->gi,
                                 xid->ci};
        return 1;
    }
    return 0;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms)
{
    uint64_t deadline = emu_now_ns() + timeout_ms * 1000000ull, seen;
    struct emu_state *st;
    nvmlReturn_t rc;

    for (;;) {
        if ((rc = nvml_enter_any(&st)) != NVML_SUCCESS)
            return rc;
        pthread_mutex_lock(&guard);
        rc = !is_set(set)          ? NVML_ERROR_INVALID_ARGUMENT
             : take(st, set, data) ? NVML_SUCCESS
                                   : NVML_ERROR_TIMEOUT;
        pthread_mutex_unlock(&guard);
        seen = count_of(st);
        nvml_leave();
        if (rc != NVML_ERROR_TIMEOUT)
            return rc;
        if (emu_wait_xid(st, seen, deadline) < 0)
            return NVML_ERROR_TIMEOUT;
    }
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms)
{
    return nvmlEventSetWait_v2(set, data, timeout_ms);
}
