/* SPDX-License-Identifier: Apache-2.0 */
/* What dcgmi lists: GPUs and, of those that MIG cuts, GPU instances. */
#ifndef EMU_ENTITIES_H
#define EMU_ENTITIES_H

#include "monitor.h"

#define MAX_ROWS 64

/* A row of dmon: a GPU (gi -1), or one of its GPU instances, whose number as an entity of DCGM is
 * counted over the whole node. */
struct row {
    int device, gi, entity;
};

/* Of a GPU instance: as busy as its compute instances together, by their SMs. */
void read_instance(const struct emu_state *st, const struct row *row, struct reading *out);
/* Number of the first compute instance of a GPU instance, -1 if none. */
int first_of(const struct emu_device *dev, int gi);
/* dmon -i: GPUs by number or UUID, GPU instances as i:N; how many, -1 for one that is not there. */
int parse_entities(const struct emu_state *st, char *list, struct row *out);
/* discovery -c: GPUs, GPU instances and compute instances, each with its number as an entity. */
void show_hierarchy(const struct emu_state *st);

#endif
