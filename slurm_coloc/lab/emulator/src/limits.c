/* SPDX-License-Identifier: Apache-2.0 */
/* Memory limits of cgroups: which hold a process, and what its neighbours in them have taken. */
#include <stdio.h>
#include <string.h>

#include "ledger.h"

#define MIB 1048576ull

int emu_group_within(const char *group, const char *around)
{
    size_t len = strlen(around);

    return len > 0 && strncmp(group, around, len) == 0 && (group[len] == '\0' || group[len] == '/');
}

const char *emu_group_of(const char *folder)
{
    /* The second is where v2 stands beside v1: not for real drivers, but for tests in containers.
     */
    static const char *const mounts[] = {"/sys/fs/cgroup/unified", "/sys/fs/cgroup"};
    size_t i;

    for (i = 0; i < 2; i++)
        if (emu_group_within(folder, mounts[i]) && folder[strlen(mounts[i])] == '/')
            return folder + strlen(mounts[i]);
    return NULL;
}

void emu_own_group(char *buf, size_t len)
{
    char line[512];
    FILE *f = fopen("/proc/self/cgroup", "r");

    buf[0] = '\0';
    if (f == NULL)
        return;
    while (fgets(line, sizeof(line), f) != NULL)
        if (strncmp(line, "0::/", 4) == 0) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(buf, len, "%s", line + 3);
        }
    fclose(f);
}

static uint64_t held(const struct emu_state *st, const struct emu_limit *l)
{
    uint64_t sum = 0;
    uint32_t i;

    for (i = 0; i < st->n_slots; i++) {
        const struct emu_proc *p = &st->proc[i];
        if (p->kind != EMU_FREE && p->device == l->device && emu_group_within(p->group, l->group))
            sum += p->memory_mib;
    }
    return sum;
}

uint64_t emu_group_limit(const struct emu_state *st, int device, const char *group,
                         uint64_t *held_mib)
{
    uint64_t left = UINT64_MAX, found = UINT64_MAX;
    int i;

    *held_mib = 0;
    for (i = 0; i < EMU_MAX_LIMITS; i++) {
        const struct emu_limit *l = &st->limit[i];
        uint64_t sum, hard = l->hard / MIB;
        if (l->group[0] == '\0' || l->device != device || l->hard == UINT64_MAX ||
            !emu_group_within(group, l->group))
            continue;
        sum = held(st, l);
        if ((sum < hard ? hard - sum : 0) <= left) { /* the one that is met first */
            left = sum < hard ? hard - sum : 0;
            found = hard;
            *held_mib = sum;
        }
    }
    return found;
}
