/* SPDX-License-Identifier: Apache-2.0 */
/* Memory limits of cgroups (driver r615): as NVML's reference and nvidia-ml-py 13.615 describe
 * them, counted by the driver. Without such a driver the functions say that they are not supported.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nvml_types.h"

#define FIRST_DRIVER 615

typedef struct {
    const char *nameSpace;
    unsigned long long softLimit, hardLimit;
} nvmlSetMemoryLimits_v1_t;

typedef struct {
    const char *nameSpace;
    unsigned long long softLimit, hardLimit, currentUsed;
} nvmlGetMemoryLimits_v1_t;

/* The cgroup that is meant, NULL and *rc where it cannot be. Locked. */
static const char *group(const struct emu_state *st, nvmlDevice_t h, const char *folder,
                         nvmlReturn_t *rc)
{
    const char *found = folder != NULL ? emu_group_of(folder) : NULL;

    *rc = NVML_SUCCESS;
    if (atoi(st->driver) < FIRST_DRIVER || h->mig >= 0 || st->dev[h->device].mig_enabled)
        *rc = NVML_ERROR_NOT_SUPPORTED;
    else if (found == NULL || strlen(found) >= EMU_GROUP_LEN)
        *rc = NVML_ERROR_INVALID_ARGUMENT;
    else if (access(folder, F_OK) != 0)
        *rc = NVML_ERROR_NOT_FOUND;
    return *rc == NVML_SUCCESS ? found : NULL;
}

static struct emu_limit *entry(struct emu_state *st, int device, const char *name)
{
    int i;

    for (i = 0; i < EMU_MAX_LIMITS; i++)
        if (strcmp(st->limit[i].group, name) == 0 && (!*name || st->limit[i].device == device))
            return &st->limit[i];
    return NULL;
}

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t h, nvmlSetMemoryLimits_v1_t *limits)
{
    struct emu_limit *l;
    const char *name;
    ENTER(h)
    if (limits == NULL)
        LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    if (geteuid() != 0)
        LEAVE(NVML_ERROR_NO_PERMISSION);
    name = group(st, h, limits->nameSpace, &rc);
    if (name == NULL)
        LEAVE(rc);
    if (limits->softLimit > limits->hardLimit)
        LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    l = entry(st, h->device, name);
    if (l == NULL)
        l = entry(st, h->device, "");
    if (l == NULL)
        LEAVE(NVML_ERROR_MEMORY);
    l->device = h->device;
    l->soft = limits->softLimit;
    l->hard = limits->hardLimit;
    snprintf(l->group, sizeof(l->group), "%s", name);
    LEAVE(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t h, nvmlGetMemoryLimits_v1_t *limits)
{
    const struct emu_limit *l;
    const char *name;
    uint64_t held;
    ENTER(h)
    if (limits == NULL)
        LEAVE(NVML_ERROR_INVALID_ARGUMENT);
    name = group(st, h, limits->nameSpace, &rc);
    if (name == NULL)
        LEAVE(rc);
    l = entry(st, h->device, name);
    if (l == NULL)
        LEAVE(NVML_ERROR_NOT_FOUND);
    emu_group_limit(st, h->device, name, &held);
    limits->softLimit = l->soft;
    limits->hardLimit = l->hard;
    limits->currentUsed = held * 1048576ull;
    LEAVE(NVML_SUCCESS);
}
