/* SPDX-License-Identifier: Apache-2.0 */
#include "show.h"

#include <stdio.h>

#include "machines.h"
#include "model.h"
#include "monitor.h"

static const char *const sharing_words[] = {"mps", "streams", "auto"};

static unsigned long long ull(uint64_t x) { return (unsigned long long)x; }

static void json_proc(const struct emu_proc *p, const char *sep)
{
    printf(
        "%s{\"pid\":%d,\"uid\":%u,\"kind\":\"%s\",\"label\":\"%s\",\"job\":%u,\"memory_mib\":%llu,"
        "\"peak_mib\":%llu,\"smact\":%.4f,\"speed\":%.6f,\"work_s\":%.3f,\"work_done_s\":%.3f,"
        "\"sm_active_s\":%.3f,\"mig\":%d,\"mps\":%s}",
        sep, p->pid, p->uid, p->kind == EMU_MPS_SERVER ? "mps-server" : "train", p->label, p->job,
        ull(p->memory_mib), ull(p->peak_mib), p->smact, p->speed, p->work_s, p->work_done_s,
        p->sm_active_s, p->mig, p->mps_client ? "true" : "false");
}

static void json_mig(const struct emu_state *st, int d)
{
    const struct emu_device *dev = &st->dev[d];
    uint32_t m;

    printf("\"mig\":[");
    for (m = 0; m < dev->n_mig; m++)
        printf("%s{\"uuid\":\"%s\",\"profile\":\"%s\",\"gi\":%u,\"ci\":%u,\"sms\":%u,"
               "\"total_mib\":%llu,\"used_mib\":%llu}",
               m ? "," : "", dev->mig[m].uuid, dev->mig[m].profile, dev->mig[m].gi, dev->mig[m].ci,
               dev->mig[m].sms, ull(dev->mig[m].memory_mib), ull(emu_used_mib(st, d, (int)m)));
    printf("]");
}

static void json_faults(const struct emu_device *dev)
{
    printf("\"faults\":[%s%s%s%s%s],\"mps_faults\":%u",
           dev->faults & EMU_FAULT_LOST ? "\"lost\"" : "",
           (dev->faults & 1) && (dev->faults & 6) ? "," : "",
           dev->faults & EMU_FAULT_NVML_BUSY ? "\"nvml-busy\"" : "",
           (dev->faults & 2) && (dev->faults & 4) ? "," : "",
           dev->faults & EMU_FAULT_STALE ? "\"stale\"" : "", dev->mps_fault_seq);
}

void show_json(const struct emu_state *st)
{
    uint32_t d, i;

    printf("{\"schema\":1,\"machine\":\"%s\",\"sharing\":\"%s\",\"reaped\":%llu,\"gpus\":[",
           st->machine, sharing_words[st->sharing % 3], ull(st->reaped_count));
    for (d = 0; d < st->n_devices; d++) {
        const struct emu_device *dev = &st->dev[d];
        struct reading r;
        const char *sep = "";
        monitor_read(st, (int)d, -1, &r);
        printf("%s{\"index\":%u,\"minor\":%u,\"name\":\"%s\",\"type\":\"%s\",\"uuid\":\"%s\","
               "\"bus_id\":\"%s\",\"total_mib\":%llu,\"usable_mib\":%llu,\"used_mib\":%llu,"
               "\"smact\":%.4f,\"power_w\":%.1f,\"energy_j\":%.1f,\"sm_active_s\":%.3f,",
               d ? "," : "", d, dev->minor, dev->name, dev->type, dev->uuid, dev->bus_id,
               ull(dev->total_mib), ull(dev->total_mib - dev->reserved_mib),
               ull(emu_used_mib(st, (int)d, -1)), r.smact, r.power_w, dev->energy_j,
               dev->sm_active_s);
        json_faults(dev);
        printf(",");
        json_mig(st, (int)d);
        printf(",\"processes\":[");
        for (i = 0; i < st->n_slots; i++) {
            if (!emu_proc_on(st, &st->proc[i], (int)d, -1))
                continue;
            json_proc(&st->proc[i], sep);
            sep = ",";
        }
        printf("]}");
    }
    printf("]}\n");
}

void show_table(const struct emu_state *st)
{
    uint32_t d, i;

    printf("%s, sharing %s\n", st->machine, sharing_words[st->sharing % 3]);
    for (d = 0; d < st->n_devices; d++) {
        const struct emu_device *dev = &st->dev[d];
        struct reading r;
        monitor_read(st, (int)d, -1, &r);
        printf("GPU %u  %s  %s  %llu of %llu MiB  SM activity %.2f  %.0f W%s%s%s%s\n", d, dev->name,
               dev->uuid, ull(emu_used_mib(st, (int)d, -1)),
               ull(dev->total_mib - dev->reserved_mib), r.smact, r.power_w,
               dev->mig_enabled ? "  MIG" : "", dev->faults & EMU_FAULT_LOST ? "  LOST" : "",
               dev->faults & EMU_FAULT_NVML_BUSY ? "  NVML-BUSY" : "",
               dev->faults & EMU_FAULT_STALE ? "  STALE" : "");
        for (i = 0; i < st->n_slots; i++) {
            const struct emu_proc *p = &st->proc[i];
            if (!emu_proc_on(st, p, (int)d, -1))
                continue;
            printf("  pid %d  uid %u  %s%s%s  %llu MiB  SM activity %.2f  speed %.2f"
                   "  %.0f of %.0f s\n",
                   p->pid, p->uid, p->label, p->mig >= 0 ? " on MIG " : "",
                   p->mig >= 0 ? dev->mig[p->mig].profile : "", ull(p->memory_mib), p->smact,
                   p->speed, p->work_done_s, p->work_s);
        }
    }
}

void show_machines(int json)
{
    uint32_t i, j;

    if (json)
        printf("{\"schema\":1,\"machines\":[");
    for (i = 0; i < n_machines; i++) {
        const struct machine *m = &machines[i];
        if (!json) {
            printf("%-18s %s\n", m->name, m->about);
            continue;
        }
        printf("%s{\"name\":\"%s\",\"gpus\":[", i ? "," : "", m->name);
        for (j = 0; j < m->n_gpus; j++)
            printf("%s{\"name\":\"%s\",\"type\":\"%s\",\"total_mib\":%llu,\"usable_mib\":%llu,"
                   "\"mig_devices\":%u}",
                   j ? "," : "", m->gpu->name, m->gpu->type, ull(m->gpu->total_mib),
                   ull(m->gpu->total_mib - m->gpu->reserved_mib),
                   m->mig_gpu == (int)j ? m->n_mig : 0);
        printf("]}");
    }
    if (json)
        printf("]}\n");
}
