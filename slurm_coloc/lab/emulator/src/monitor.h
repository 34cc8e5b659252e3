/* SPDX-License-Identifier: Apache-2.0 */
/* What monitoring (NVML, nvidia-smi, DCGM) reads of a device, its faults included. */
#ifndef EMU_MONITOR_H
#define EMU_MONITOR_H

#include "ledger.h"

struct reading {
    double smact, gract, drama, smocc; /* ratios */
    double power_w, temperature_c;
};

/* A device, or (mig >= 0) a MIG device; the values stand still while the device is stale. */
void monitor_read(const struct emu_state *st, int device, int mig, struct reading *out);
/* Keeps the present values for the time of a stale fault. */
void monitor_freeze(struct emu_state *st, int device);

#endif
