/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor.h"

#include "model.h"

/* Occupancy and DRAM activity follow SM activity by a fixed ratio: the mean of published solo
 * profiles is near these, but real jobs differ; do not learn anything from them. */
#define SMOCC_OF_SMACT 0.5
#define DRAMA_OF_SMACT 0.6

void monitor_read(const struct emu_state *st, int device, int mig, struct reading *out)
{
    const struct emu_device *d = &st->dev[device];
    int stale = (d->faults & EMU_FAULT_STALE) && mig < 0;

    out->smact = stale ? d->stale_smact : model_smact(st, device, mig);
    out->gract = stale ? d->stale_gract : model_gract(st, device, mig);
    out->power_w = stale ? d->stale_w : model_power_w(st, device);
    out->drama = DRAMA_OF_SMACT * out->smact;
    out->smocc = SMOCC_OF_SMACT * out->smact;
    out->temperature_c = 30.0 + 40.0 * out->power_w / d->tdp_w;
}

void monitor_freeze(struct emu_state *st, int device)
{
    struct emu_device *d = &st->dev[device];

    d->stale_smact = model_smact(st, device, -1);
    d->stale_gract = model_gract(st, device, -1);
    d->stale_w = model_power_w(st, device);
}
