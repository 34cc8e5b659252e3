/* SPDX-License-Identifier: Apache-2.0 */
/* emu-train: a stand-in for a training script. */
#ifndef EMU_TRAIN_H
#define EMU_TRAIN_H

#include "ledger.h"

enum framework {
    FW_PYTORCH,
    FW_PYTORCH_OLD,
    FW_TENSORFLOW,
    FW_JAX,
    FW_CUPY,
    FW_CUBLAS,
    FW_CUDNN,
    FW_CUDA,
    FW_NCCL,
    FW_COUNT
};

struct options {
    uint64_t memory_mib; /* true footprint of one process on each of its GPUs */
    double smact;        /* SM activity alone */
    double work_s;       /* run time alone on the GPU */
    double ramp_s;       /* time in which the memory is taken */
    double time_scale;   /* emulated seconds in a real one */
    double log_every_s;
    int framework;
    int processes, gpus; /* processes of this job; GPUs of one process */
    int batch;
    int catch_oom, exit_code;
    int host_oom;
    uint64_t host_mib;
    const char *ledger;
};

#define MAX_GPUS EMU_MAX_DEVICES

/* Why a GPU can no longer be worked on. */
enum gpu_failure { GPU_FINE = 0, GPU_LOST = 1, MPS_FAULT = 2, MPS_TERMINATED = 3 };

/* The connection to an MPS control daemon; it is a client as long as it is open. */
struct mps_link {
    int fd, server_pid;
    char limits[1024]; /* the daemon's default memory limits */
    char uuids[1024];  /* the devices that it sees, in its numbering */
};

/* The GPUs of one process. */
struct gpus {
    struct emu_ledger ledger;
    struct mps_link mps;
    int n;
    int device[MAX_GPUS], mig[MAX_GPUS], ordinal[MAX_GPUS]; /* ordinal: CUDA's own numbering */
    struct emu_proc *slot[MAX_GPUS];
    uint64_t fence_mib[MAX_GPUS]; /* 0: none */
    uint64_t cap_mib[MAX_GPUS];   /* of the framework itself, 0: none */
    uint64_t total_mib;           /* of the first, as CUDA shows it */
};

/* What an out-of-memory message tells; all in MiB. */
struct oom {
    int ordinal;
    uint64_t asked_mib, total_mib, free_mib, own_mib;
    uint64_t allowed_mib; /* of the framework itself, 0: none */
    const struct emu_state *st;
    const struct emu_proc *slot;
};

const char *framework_name(int fw);
int framework_by_name(const char *name); /* -1: unknown */

/* Prints the framework's own out-of-memory text, traceback included, on stderr. */
void oom_print(int fw, const struct oom *o, int caught);

/* Joins the daemon that $CUDA_MPS_PIPE_DIRECTORY names, and waits as long as another user's server
 * is in the way. 1: a client now, 0: no daemon, -1: refused (it has said why). */
int mps_join(struct mps_link *m);
int mps_ended(const struct mps_link *m); /* enum gpu_failure, 0 while all is well */
void mps_leave(struct mps_link *m);
int train_stopped(void); /* whether a signal asked this process to end */

/* Opens the ledger and takes slots on `want` of the visible GPUs, beginning with the rank'th.
 * Returns 0, or prints what CUDA would say and returns the exit code. */
int gpus_attach(struct gpus *g, const struct options *o, int rank);
void gpus_detach(struct gpus *g);
/* Sets the footprint on every GPU; fills *why and returns -1 where one is full or fenced. */
int gpus_resize(struct gpus *g, uint64_t mib, struct oom *why);
/* A framework that takes memory at its start whatever it needs takes what it gets: the footprint.
 */
uint64_t gpus_preallocate(struct gpus *g, const struct options *o, struct oom *why);
/* train_framework.c: what a framework allows itself of a GPU of `total_mib` by its environment, 0
 * where it says nothing; what it takes at its start whatever it needs, 0 where it grows. */
uint64_t framework_cap(int fw, uint64_t total_mib);
uint64_t framework_takes(int fw, uint64_t total_mib);
/* Not 0, and said why, where the framework refuses its environment. */
int framework_refuses(int fw);

/* One look: own speed (the slowest GPU's), neighbours; enum gpu_failure. */
int gpus_tick(struct gpus *g, double *speed, int *neighbours);
void gpus_set(struct gpus *g, double smact, double work_s, double done_s);

#endif
