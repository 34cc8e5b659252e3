/* SPDX-License-Identifier: Apache-2.0 */
/* nvidia-smi mig -lgi: the table of GPU instances, as drivers from R470 on print it. */
#include <stdio.h>
#include <string.h>

#include "smi.h"

/* Of `mig -lgip` of an A100, H100 and H200, whose names differ by their memory alone. */
static const struct {
    const char *slices;
    uint32_t size;
    int id;
} profiles[] = {
    {"1g.", 1, 19},
    {"1g.", 2, 15},
    {"2g.", 2, 14},
    {"3g.", 4, 9 },
    {"4g.", 4, 5 },
    {"7g.", 8, 0 }
};

/* The GPU instance's part of a device's name: "3g.20gb" of "1c.3g.20gb". */
static const char *instance_name(const struct emu_mig *m)
{
    const char *inside = strstr(m->profile, "c.");

    return inside != NULL ? inside + 2 : m->profile;
}

static int profile_id(const struct emu_mig *m)
{
    size_t i;

    for (i = 0; i < sizeof(profiles) / sizeof(profiles[0]); i++)
        if (profiles[i].size == m->size && strncmp(instance_name(m), profiles[i].slices, 3) == 0)
            return profiles[i].id;
    return -1;
}

int list_gpu_instances(const struct emu_state *st, int device)
{
    static const char *const line = "+-------------------------------------------------------+\n";
    uint32_t d, m;
    int n = 0;

    for (d = 0; d < st->n_devices; d++) {
        const struct emu_device *dev = &st->dev[d];
        if ((device >= 0 && d != (uint32_t)device) || !dev->mig_enabled)
            continue;
        for (m = 0; m < dev->n_mig; m++) {
            const struct emu_mig *one = &dev->mig[m];
            if (m > 0 && dev->mig[m - 1].gi == one->gi)
                continue; /* another compute instance of the same */
            if (n++ == 0)
                printf("%s| GPU instances:                                        |\n"
                       "| GPU   Name             Profile  Instance   Placement  |\n"
                       "|                          ID       ID       Start:Size |\n"
                       "|=======================================================|\n",
                       line);
            printf("| %3u  MIG %-13s %5d %8u %10u:%-5u |\n%s", d, instance_name(one),
                   profile_id(one), one->gi, one->start, one->size, line);
        }
    }
    if (n == 0)
        printf("No MIG-enabled devices found.\n");
    return n == 0 ? 6 : 0;
}
