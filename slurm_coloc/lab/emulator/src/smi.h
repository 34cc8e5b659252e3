/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of nvidia-smi. */
#ifndef EMU_SMI_H
#define EMU_SMI_H

#include "ledger.h"

/* `mig -lgi`: the GPU instances, of one device or (-1) of all; the exit code. */
int list_gpu_instances(const struct emu_state *st, int device);

#endif
