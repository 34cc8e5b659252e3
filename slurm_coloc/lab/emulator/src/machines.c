/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory: total is what nvidia-smi shows, total - reserved what a fresh card has free (PyTorch's
 * "total capacity": 39.59 GiB of an A100-40GB, 79.11 GiB of an H100-80GB, 139.80 GiB of an H200).
 * MIG profile sizes and SM counts: NVIDIA's MIG user guide, A100-SXM4-40GB.
 */
#include "machines.h"

#include <stdio.h>
#include <string.h>

#define ARCH_AMPERE 7
#define ARCH_HOPPER 9

static const struct gpu_model a100_40 = {
    "NVIDIA A100-SXM4-40GB", "a100", 0x20B010DE, 108, 8, 0, ARCH_AMPERE, 40960, 424, 400, 53, 1};
static const struct gpu_model h100_80 = {
    "NVIDIA H100 80GB HBM3", "h100", 0x233010DE, 132, 9, 0, ARCH_HOPPER, 81559, 550, 700, 70, 1};
static const struct gpu_model h200 = {"NVIDIA H200", "h200", 0x233510DE, 132, 9,  0,
                                      ARCH_HOPPER,   143771, 616,        700, 75, 1};

static const char *const bus_2[] = {"00000000:07:00.0", "00000000:0F:00.0"};
static const char *const bus_station[] = {"00000000:01:00.0", "00000000:47:00.0",
                                          "00000000:81:00.0", "00000000:C2:00.0"};
static const char *const bus_dgx[] = {"00000000:1B:00.0", "00000000:43:00.0", "00000000:52:00.0",
                                      "00000000:61:00.0", "00000000:9D:00.0", "00000000:C3:00.0",
                                      "00000000:D1:00.0", "00000000:DF:00.0"};

/* The 3g instance is cut into two compute instances that share its memory. */
static const struct mig_layout mixed[] = {
    {"1c.3g.20gb", 1,  0, 14, 1, 4, 4, 20096},
    {"2c.3g.20gb", 1,  1, 28, 2, 4, 4, 20096},
    {"2g.10gb",    3,  0, 28, 2, 0, 2, 9984 },
    {"1g.5gb",     9,  0, 14, 1, 2, 1, 4864 },
    {"1g.5gb",     10, 0, 14, 1, 3, 1, 4864 },
};

#define N_MIXED (sizeof(mixed) / sizeof(mixed[0]))

const struct machine machines[] = {
    {"1xa100-40gb",      "one A100-40GB",                 &a100_40, 1, bus_2,       -1, NULL,  0      },
    {"2xa100-40gb",      "two A100-40GB",                 &a100_40, 2, bus_2,       -1, NULL,  0      },
    {"dgx-station-a100", "four A100-40GB",                &a100_40, 4, bus_station, -1, NULL,  0      },
    {"2xh100-80gb",      "two H100-80GB",                 &h100_80, 2, bus_dgx,     -1, NULL,  0      },
    {"8xh100-80gb",      "eight H100-80GB",               &h100_80, 8, bus_dgx,     -1, NULL,  0      },
    {"1xh200",           "one H200",                      &h200,    1, bus_dgx,     -1, NULL,  0      },
    {"mig-mixed",        "two A100-40GB, one cut by MIG", &a100_40, 2, bus_2,       1,  mixed, N_MIXED},
};
const uint32_t n_machines = sizeof(machines) / sizeof(machines[0]);

const struct machine *machine_find(const char *name)
{
    uint32_t i;

    for (i = 0; i < n_machines; i++)
        if (strcmp(machines[i].name, name) == 0)
            return &machines[i];
    return NULL;
}

/* FNV-1a over seed and number, mixed by splitmix64: enough for distinct, repeatable UUIDs. */
static uint64_t hash(const char *seed, uint64_t n)
{
    uint64_t h = 0xcbf29ce484222325ull;

    for (; *seed != '\0'; seed++)
        h = (h ^ (unsigned char)*seed) * 0x100000001b3ull;
    h += (n + 1) * 0x9e3779b97f4a7c15ull;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebull;
    return h ^ (h >> 31);
}

static void make_uuid(char *out, size_t len, const char *prefix, const char *seed, uint64_t n)
{
    uint64_t a = hash(seed, 2 * n), b = hash(seed, 2 * n + 1);

    snprintf(out, len, "%s-%08x-%04x-%04x-%04x-%012llx", prefix, (unsigned)(a >> 32),
             (unsigned)(a >> 16) & 0xffff, (unsigned)a & 0xffff, (unsigned)(b >> 48),
             (unsigned long long)(b & 0xffffffffffffull));
}

static void cut(struct emu_device *d, const struct machine *m, const char *seed, uint64_t n)
{
    uint32_t i;

    d->mig_enabled = 1;
    d->n_mig = m->n_mig;
    for (i = 0; i < m->n_mig; i++) {
        struct emu_mig *x = &d->mig[i];
        snprintf(x->profile, sizeof(x->profile), "%s", m->mig[i].profile);
        x->gi = m->mig[i].gi;
        x->ci = m->mig[i].ci;
        x->sms = m->mig[i].sms;
        x->slices = m->mig[i].slices;
        x->start = m->mig[i].start;
        x->size = m->mig[i].size;
        x->memory_mib = m->mig[i].memory_mib;
        make_uuid(x->uuid, sizeof(x->uuid), "MIG", seed, 100 + n * EMU_MAX_MIG + i);
    }
}

void machine_build(struct emu_state *st, const struct machine *m, const char *seed,
                   const uint32_t *minors)
{
    uint32_t i;

    memset(st, 0, sizeof(*st));
    st->magic = EMU_MAGIC;
    st->version = EMU_VERSION;
    st->size = sizeof(*st);
    st->sharing = EMU_SHARING_MPS;
    st->k = 1.1;
    st->c = 1.05;
    st->cuda_version = 12080;
    snprintf(st->machine, sizeof(st->machine), "%s", m->name);
    snprintf(st->driver, sizeof(st->driver), "570.133.20");
    snprintf(st->nvml, sizeof(st->nvml), "12.570.133.20");
    st->n_devices = m->n_gpus;
    for (i = 0; i < m->n_gpus; i++) {
        struct emu_device *d = &st->dev[i];
        const struct gpu_model *g = m->gpu;
        snprintf(d->name, sizeof(d->name), "%s", g->name);
        snprintf(d->type, sizeof(d->type), "%s", g->type);
        snprintf(d->bus_id, sizeof(d->bus_id), "%s", m->bus_ids[i]);
        make_uuid(d->uuid, sizeof(d->uuid), "GPU", seed, i);
        d->minor = minors != NULL ? minors[i] : i;
        d->pci_device_id = g->pci_device_id;
        d->sms = g->sms;
        d->cc_major = g->cc_major;
        d->cc_minor = g->cc_minor;
        d->arch = g->arch;
        d->total_mib = g->total_mib;
        d->reserved_mib = g->reserved_mib;
        d->tdp_w = g->tdp_w;
        d->idle_w = g->idle_w;
        d->mig_capable = g->mig_capable;
        if (m->mig_gpu == (int)i)
            cut(d, m, seed, i);
    }
}
