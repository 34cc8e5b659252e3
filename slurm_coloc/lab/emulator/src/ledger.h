/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger of one emulated node: devices, processes, memory, faults.
 *
 * One mmap'd file that every stand-in (libnvidia-ml, nvidia-smi, dcgmi, emu-train, ...) shares.
 * It is changed only under a record lock of an open file description, which the kernel drops when
 * its holder dies, so a killed process never blocks the others. Sums (used memory, SM activity)
 * are never stored: they are added up from the live slots, so a holder killed half way through a
 * change cannot leave a wrong total behind.
 *
 * Units: memory in MiB, power in W, energy in J, time in ns of CLOCK_MONOTONIC, activities 0..1.
 */
#ifndef EMU_LEDGER_H
#define EMU_LEDGER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define EMU_MAGIC 0x554d45434f4c4f43ull /* "COLOCEMU" */
#define EMU_VERSION 6u
#define EMU_MAX_DEVICES 16
#define EMU_MAX_MIG 8
#define EMU_MAX_PROCS 1024
#define EMU_MAX_STATS 64
#define EMU_MAX_GROUPS 32
#define EMU_MAX_PAST 512 /* ended processes that accounting remembers, the newest */
#define EMU_MAX_LIMITS 128
#define EMU_MAX_XIDS 64 /* the newest */
#define EMU_NO_INSTANCE 0xffffffffu
#define EMU_UUID_LEN 48
#define EMU_GROUP_LEN 192
#define EMU_NAME_LEN 64

enum emu_fault { EMU_FAULT_LOST = 1, EMU_FAULT_NVML_BUSY = 2, EMU_FAULT_STALE = 4 };
enum emu_kind { EMU_FREE = 0, EMU_TRAIN = 1, EMU_MPS_SERVER = 2 };
/* How processes on one GPU share it; see model.c. */
enum emu_sharing { EMU_SHARING_MPS = 0, EMU_SHARING_STREAMS = 1, EMU_SHARING_AUTO = 2 };

/* One MIG device: a compute instance inside a GPU instance. Those with one gi share its memory. */
struct emu_mig {
    char uuid[EMU_UUID_LEN];
    char profile[16]; /* "1g.5gb" */
    uint32_t gi, ci, sms, slices;
    uint32_t start, size; /* memory slices of its GPU instance */
    uint64_t memory_mib;
};

struct emu_device {
    char name[EMU_NAME_LEN];
    char type[16]; /* as one would write it in gres.conf: "a100" */
    char uuid[EMU_UUID_LEN];
    char bus_id[24]; /* "00000000:01:00.0" */
    uint32_t minor, pci_device_id, sms, cc_major, cc_minor, arch;
    uint32_t mig_capable, mig_enabled, n_mig;
    uint32_t faults;        /* enum emu_fault, or'ed */
    uint32_t mps_fault_seq; /* counts MPS faults: clients that attached before one die of it */
    uint64_t total_mib, reserved_mib;
    double tdp_w, idle_w;
    struct emu_mig mig[EMU_MAX_MIG];
    uint64_t updated_ns; /* the integrals below reach to this time */
    double energy_j, sm_active_s, gr_active_s;
    double stale_smact, stale_gract, stale_w; /* what monitoring shows while EMU_FAULT_STALE */
};

/* One process on one device (a process with two GPUs has two slots). */
struct emu_proc {
    uint32_t kind; /* enum emu_kind; written last when a slot is taken, first when it is freed */
    int32_t pid;
    uint64_t start_ticks; /* field 22 of /proc/PID/stat: tells a reused pid from ours */
    uint32_t uid;
    int32_t device, mig; /* mig -1: the whole device */
    uint32_t job;        /* $SLURM_JOB_ID, 0: none; the truth that attribution is tested against */
    uint32_t mps_client;
    int32_t mps_server_pid;
    uint32_t mps_fault_seq; /* the device's count when it attached */
    uint64_t memory_mib, peak_mib;
    double smact; /* SM activity alone on the GPU; 0 while it loads */
    double work_s, work_done_s, speed;
    double sm_active_s; /* integral of its share of SM activity */
    uint64_t start_us;  /* since the epoch */
    char label[32];
    char group[EMU_GROUP_LEN]; /* its cgroup (v2) as /proc/self/cgroup has it, "" for none */
};

/* Memory limits of a cgroup on a device, as nvmlDeviceSetMemoryLimits_v1 sets them; in bytes. */
struct emu_limit {
    char group[EMU_GROUP_LEN]; /* below the mount point, like emu_proc's; "": a free entry */
    int32_t device;
    uint64_t soft, hard;
};

/* One that has ended, as NVML's accounting remembers it. */
struct emu_past {
    int32_t pid, device, mig;
    uint64_t start_us, end_us, peak_mib;
};

/* An error that the driver reports, NVIDIA's "Xid". */
struct emu_xid {
    int32_t device;
    uint32_t gi, ci; /* EMU_NO_INSTANCE: of the whole GPU */
    uint64_t number;
};

/* A DCGM job-statistics record (dcgmi stats -s / -x / -j). */
struct emu_stats {
    char job[64];
    uint32_t state; /* 0 free, 1 running, 2 stopped */
    int64_t start_epoch_s, stop_epoch_s;
    uint32_t devices;                                               /* of its group, a bit each */
    double energy_j[EMU_MAX_DEVICES], gr_active_s[EMU_MAX_DEVICES]; /* at start, then the sums */
    uint64_t max_mib[EMU_MAX_DEVICES];
    double wall_s;
    uint64_t start_ns;
};

/* A DCGM group of GPUs. */
struct emu_group {
    uint32_t id; /* 0: free */
    uint32_t devices;
    char name[64];
};

struct emu_state {
    uint64_t magic;
    uint32_t version, size;
    char machine[32], driver[32], nvml[32];
    uint32_t cuda_version; /* 12080 = 12.8 */
    uint32_t sharing;      /* enum emu_sharing */
    double k, c;           /* of the interference model */
    uint32_t n_devices;
    uint32_t n_slots; /* slots from here on are free: keeps the loops short */
    uint64_t reaped_ns, reaped_count;
    struct emu_device dev[EMU_MAX_DEVICES];
    struct emu_proc proc[EMU_MAX_PROCS];
    struct emu_stats stats[EMU_MAX_STATS];
    struct emu_group group[EMU_MAX_GROUPS];
    uint32_t profiling_paused; /* dcgmi profile --pause: DCGM reads no profiling counters */
    uint64_t n_past;           /* ended processes so far; past[n % EMU_MAX_PAST] */
    struct emu_past past[EMU_MAX_PAST];
    struct emu_limit limit[EMU_MAX_LIMITS];
    uint32_t without_events; /* a driver or GPU that delivers no events */
    uint64_t n_xids;         /* so far; xid[n % EMU_MAX_XIDS]; written after its entry */
    struct emu_xid xid[EMU_MAX_XIDS];
};

struct emu_ledger {
    int fd;
    struct emu_state *st;
};

/* Sleeps until there are more Xids than seen: 0, or -1 at the deadline (CLOCK_MONOTONIC). */
int emu_wait_xid(struct emu_state *st, uint64_t seen, uint64_t deadline_ns);
void emu_wake_xid(struct emu_state *st);

/* Opens a ledger. Returns 0 or a negative errno (-EPROTO: not a ledger of this version). */
int emu_open(struct emu_ledger *l, const char *path);
void emu_close(struct emu_ledger *l);
/* Writes a new ledger (mode 0666) by rename; -EEXIST unless force. */
int emu_create(const char *path, const struct emu_state *st, int force);
/* $COLOC_EMU_LEDGER, else DIR/../nodes/$SLURMD_NODENAME/ledger; NULL where neither is set. */
const char *emu_find(char *buf, size_t len, const char *program_dir);
/* Folder of the running program into buf; "." where /proc cannot tell. */
const char *emu_program_dir(char *buf, size_t len);
/* For the small tools: finds, opens, or explains on stderr and exits with 9. */
void emu_open_or_die(struct emu_ledger *l, const char *path, const char *who);

/* Takes the lock and brings the state to now; -ETIMEDOUT after 10 s (a stopped holder). */
int emu_lock(struct emu_ledger *l);
void emu_unlock(struct emu_ledger *l);

/* All below want the lock held. */
int emu_reap(struct emu_ledger *l, int force); /* frees slots of dead processes, returns how many */
void emu_advance(struct emu_ledger *l);        /* integrates energy and activity up to now */
struct emu_proc *emu_proc_add(struct emu_ledger *l, int device, int mig, const char *label);
void emu_proc_remove(struct emu_ledger *l, struct emu_proc *p);
int emu_proc_resize(struct emu_ledger *l, struct emu_proc *p, uint64_t mib); /* 0 or -ENOMEM */
uint64_t emu_used_mib(const struct emu_state *st, int device, int mig);
uint64_t emu_capacity_mib(const struct emu_state *st, int device, int mig);
int emu_proc_on(const struct emu_state *st, const struct emu_proc *p, int device, int mig);

/* The least hard limit around a cgroup on a device, and what its processes there hold; in MiB,
 * UINT64_MAX without one. limits.c */
uint64_t emu_group_limit(const struct emu_state *st, int device, const char *group,
                         uint64_t *held_mib);
/* Whether `group` is `around` or below it. */
int emu_group_within(const char *group, const char *around);
/* The path below the mount point of cgroup v2; NULL where it is in none. */
const char *emu_group_of(const char *folder);
/* Of this process. */
void emu_own_group(char *buf, size_t len);

uint64_t emu_now_ns(void);
uint64_t emu_epoch_us(void);
/* Start time of a process in clock ticks since boot; 0 where it is gone or a zombie. */
uint64_t emu_start_ticks(pid_t pid);
/* Device by index, UUID of a GPU or MIG device, or bus id; -1 if none. */
int emu_device_by_name(const struct emu_state *st, const char *name, int *mig);

#endif
