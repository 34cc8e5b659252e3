/* SPDX-License-Identifier: Apache-2.0 */
/* The machines that coloc-emu can make, as data. */
#ifndef EMU_MACHINES_H
#define EMU_MACHINES_H

#include "ledger.h"

struct gpu_model {
    const char *name; /* as nvidia-smi shows it */
    const char *type; /* gres.conf Type */
    uint32_t pci_device_id, sms, cc_major, cc_minor, arch;
    uint64_t total_mib, reserved_mib; /* nvmlMemory_v2: total, reserved */
    double tdp_w, idle_w;
    uint32_t mig_capable;
};

struct mig_layout {
    const char *profile;
    uint32_t gi, ci, sms, slices, start, size;
    uint64_t memory_mib;
};

struct machine {
    const char *name;
    const char *about;
    const struct gpu_model *gpu;
    uint32_t n_gpus;
    const char *const *bus_ids;
    int mig_gpu; /* index of the GPU that is cut, -1: none */
    const struct mig_layout *mig;
    uint32_t n_mig;
};

extern const struct machine machines[];
extern const uint32_t n_machines;

const struct machine *machine_find(const char *name);
/* Fills a fresh state. The UUIDs follow from the seed. minors: NULL, or n_gpus device minors. */
void machine_build(struct emu_state *st, const struct machine *m, const char *seed,
                   const uint32_t *minors);

#endif
