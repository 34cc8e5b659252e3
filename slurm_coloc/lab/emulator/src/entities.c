/* SPDX-License-Identifier: Apache-2.0 */
#include "entities.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The GPU instances of the node, in the order of their first compute instances. */
static int instances(const struct emu_state *st, struct row *out)
{
    int d, m, k, n = 0;

    for (d = 0; d < (int)st->n_devices; d++)
        for (m = 0; m < (int)st->dev[d].n_mig && n < MAX_ROWS; m++) {
            int gi = (int)st->dev[d].mig[m].gi;
            for (k = 0; k < n && !(out[k].device == d && out[k].gi == gi); k++)
                ;
            if (k == n) {
                out[n] = (struct row){d, gi, n};
                n++;
            }
        }
    return n;
}

void read_instance(const struct emu_state *st, const struct row *row, struct reading *out)
{
    const struct emu_device *dev = &st->dev[row->device];
    double sms = 0.0, smact = 0.0, gract = 0.0;
    uint32_t m;

    monitor_read(st, row->device, -1, out);
    for (m = 0; m < dev->n_mig; m++) {
        struct reading r;
        if ((int)dev->mig[m].gi != row->gi)
            continue;
        monitor_read(st, row->device, (int)m, &r);
        sms += dev->mig[m].sms;
        smact += r.smact * dev->mig[m].sms;
        gract = r.gract > gract ? r.gract : gract;
    }
    out->smact = sms > 0.0 ? smact / sms : 0.0;
    out->gract = gract;
    out->smocc = 0.5 * out->smact; /* the ratios of monitor.c */
    out->drama = 0.6 * out->smact;
}

int first_of(const struct emu_device *dev, int gi)
{
    uint32_t m;

    for (m = 0; m < dev->n_mig; m++)
        if ((int)dev->mig[m].gi == gi)
            return (int)m;
    return -1;
}

int parse_entities(const struct emu_state *st, char *list, struct row *out)
{
    struct row all[MAX_ROWS];
    char *save = NULL, *word;
    int known = instances(st, all), n = 0, mig;

    for (word = strtok_r(list, ",", &save); word != NULL; word = strtok_r(NULL, ",", &save)) {
        int entity = strncmp(word, "i:", 2) == 0 ? atoi(word + 2) : -1;
        int d = entity < 0 ? emu_device_by_name(st, word, &mig) : -1;
        if (n == MAX_ROWS || (entity < 0 && d < 0) || entity >= known) {
            fprintf(stderr, "Error: Bad entity: %s\n", word);
            return -1;
        }
        out[n++] = entity < 0 ? (struct row){d, -1, d} : all[entity];
    }
    return n;
}

void show_hierarchy(const struct emu_state *st)
{
    static const char *const line = "+-------------------+----------------------------------------"
                                    "----------------------------+\n";
    struct row all[MAX_ROWS];
    int d, k, n = instances(st, all), ci = 0;
    uint32_t m;

    printf("%s| Instance Hierarchy%71s|\n%s", line, "", line);
    for (d = 0; d < (int)st->n_devices; d++) {
        printf("| GPU %-13d | GPU %s (EntityID: %d)\n", d, st->dev[d].uuid, d);
        for (k = 0; k < n; k++) {
            if (all[k].device != d)
                continue;
            printf("| -> I %d/%-10d | GPU Instance (EntityID: %d)\n", d, all[k].gi, all[k].entity);
            for (m = 0; m < st->dev[d].n_mig; m++)
                if ((int)st->dev[d].mig[m].gi == all[k].gi)
                    printf("|    -> CI %d/%d/%-4u | Compute Instance (EntityID: %d)\n", d,
                           all[k].gi, st->dev[d].mig[m].ci, ci++);
        }
    }
    printf("%s", line);
}
