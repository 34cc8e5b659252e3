/* SPDX-License-Identifier: Apache-2.0 */
/* How neighbours slow each other down, and what monitoring shows of it. Pure: reads the state. */
#ifndef EMU_MODEL_H
#define EMU_MODEL_H

#include "ledger.h"

/* Speeds (1.0 = as alone on a whole GPU) of all processes, into their slots. */
void model_speeds(struct emu_state *st);
/* SM activity of a device or MIG device, 0..1 (DCGM field 1002; of a MIG device: of its SMs). */
double model_smact(const struct emu_state *st, int device, int mig);
/* Graphics-engine activity, 0..1 (DCGM field 1001; NVML's utilization is this in percent). */
double model_gract(const struct emu_state *st, int device, int mig);
double model_power_w(const struct emu_state *st, int device);
/* Processes that share the compute of p's device or MIG compute instance, p not counted. */
int model_neighbours(const struct emu_state *st, const struct emu_proc *p);

#endif
