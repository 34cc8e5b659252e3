/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interference model.
 *
 * MPS: S_i = min(1, sum of the others' solo SM activity), v_i = 1 / (1 + k S_i^3); with
 * u = sum s_i v_i above C all v are scaled by C/u. k = 1.1 and C = 1.05 were fitted to 72 measured
 * pairs of trainings on an A100 (RMSE 0.107 in v).
 * Streams (no MPS): kernels of different processes take turns; g_i, the share of time in which a
 * process has any kernel on the GPU, is about 1.2 s_i for ImageNet-size work, and
 * v_i = min(1, 1/sum g).
 * MIG: an instance has f of the GPU's SMs; v_i = min(1, f/s_i), no coupling between instances.
 */
#include "model.h"

#define GRACT_OF_SMACT 1.2

static double min1(double x) { return x < 1.0 ? x : 1.0; }

/* Whether q shares the SMs that p runs on: the whole device, or the same MIG compute instance. */
static int shares_compute(const struct emu_proc *p, const struct emu_proc *q)
{
    return q->kind == EMU_TRAIN && q->device == p->device && q->mig == p->mig;
}

/* Under EMU_SHARING_AUTO: in one MPS server together? A process without MPS is with nobody. */
static int same_server(const struct emu_state *st, const struct emu_proc *p,
                       const struct emu_proc *q)
{
    if (st->sharing == EMU_SHARING_MPS)
        return 1;
    if (st->sharing == EMU_SHARING_STREAMS)
        return p == q;
    return p == q || (p->mps_client && q->mps_client && p->mps_server_pid == q->mps_server_pid);
}

/* Solo SM activity relative to what p's instance has, so 1.0 fills it. */
static double activity(const struct emu_state *st, const struct emu_proc *p)
{
    const struct emu_device *d = &st->dev[p->device];

    if (p->mig < 0)
        return p->smact;
    return min1(p->smact * d->sms / d->mig[p->mig].sms);
}

static double mps_speed(const struct emu_state *st, const struct emu_proc *p)
{
    double others = 0.0, s;
    int i;

    for (i = 0; i < (int)st->n_slots; i++) {
        const struct emu_proc *q = &st->proc[i];
        if (q != p && shares_compute(p, q) && same_server(st, p, q))
            others += activity(st, q);
    }
    s = min1(others);
    return 1.0 / (1.0 + st->k * s * s * s);
}

/* Factor that keeps the sum of one server's work within C. `alone`: mps_speed of each slot. */
static double capacity_scale(const struct emu_state *st, const struct emu_proc *p,
                             const double *alone)
{
    double u = 0.0;
    int i;

    for (i = 0; i < (int)st->n_slots; i++) {
        const struct emu_proc *q = &st->proc[i];
        if (shares_compute(p, q) && same_server(st, p, q))
            u += activity(st, q) * alone[i];
    }
    return u > st->c ? st->c / u : 1.0;
}

/* Share of time that each of the groups that take turns on the GPU (servers, or processes) gets. */
static double turn_share(const struct emu_state *st, const struct emu_proc *p)
{
    double turns = 0.0;
    int i, j;

    for (i = 0; i < (int)st->n_slots; i++) {
        const struct emu_proc *q = &st->proc[i];
        double group = 0.0;
        if (!shares_compute(p, q))
            continue;
        for (j = 0; j < (int)st->n_slots; j++) {
            const struct emu_proc *r = &st->proc[j];
            if (!shares_compute(p, r) || !same_server(st, q, r))
                continue;
            if (j < i)
                break; /* that group was counted at its first member */
            group += GRACT_OF_SMACT * activity(st, r);
        }
        turns += min1(group);
    }
    return turns > 1.0 ? 1.0 / turns : 1.0;
}

/* The slot before i that has p's place, and its server where that is asked; i where there is none.
 */
static int first_beside(const struct emu_state *st, int i, int of_server)
{
    const struct emu_proc *p = &st->proc[i];
    int j;

    for (j = 0; j < i; j++)
        if (shares_compute(p, &st->proc[j]) && (!of_server || same_server(st, p, &st->proc[j])))
            return j;
    return i;
}

/* Called at every look at the ledger, 20 times a second by each training: what is one figure for a
 * server or for a GPU is added up once, at its first slot. */
void model_speeds(struct emu_state *st)
{
    double alone[EMU_MAX_PROCS], scale[EMU_MAX_PROCS], turns[EMU_MAX_PROCS];
    int i, j;

    for (i = 0; i < (int)st->n_slots; i++)
        alone[i] = st->proc[i].kind == EMU_TRAIN ? mps_speed(st, &st->proc[i]) : 1.0;
    for (i = 0; i < (int)st->n_slots; i++) {
        struct emu_proc *p = &st->proc[i];
        const struct emu_device *d;
        double v;
        if (p->kind != EMU_TRAIN)
            continue;
        d = &st->dev[p->device];
        j = first_beside(st, i, 1);
        scale[i] = j < i ? scale[j] : capacity_scale(st, p, alone);
        v = alone[i] * scale[i];
        if (st->sharing != EMU_SHARING_MPS) {
            j = first_beside(st, i, 0);
            turns[i] = j < i ? turns[j] : turn_share(st, p);
            v *= turns[i];
        }
        if (p->mig >= 0 && p->smact > 0.0)
            v *= min1((double)d->mig[p->mig].sms / d->sms / p->smact);
        p->speed = v;
    }
}

/* Sum over the processes of smact * speed as a part of the whole device's SMs. */
static double work_rate(const struct emu_state *st, int device, int mig)
{
    double sum = 0.0;
    int i;

    for (i = 0; i < (int)st->n_slots; i++) {
        const struct emu_proc *p = &st->proc[i];
        if (p->kind == EMU_TRAIN && p->device == device && (mig < 0 || p->mig == mig))
            sum += p->smact * p->speed;
    }
    return sum;
}

double model_smact(const struct emu_state *st, int device, int mig)
{
    const struct emu_device *d = &st->dev[device];
    double rate = work_rate(st, device, mig);

    return min1(mig < 0 ? rate : rate * d->sms / d->mig[mig].sms);
}

double model_gract(const struct emu_state *st, int device, int mig)
{
    return min1(GRACT_OF_SMACT * model_smact(st, device, mig));
}

/* 30 + 260 SMACT fits twelve solo profiles on an A100 (400 W) within 13 W; scaled by the TDP. */
double model_power_w(const struct emu_state *st, int device)
{
    const struct emu_device *d = &st->dev[device];
    double w = (30.0 + 260.0 * work_rate(st, device, -1)) * d->tdp_w / 400.0;

    if (w < d->idle_w)
        w = d->idle_w;
    return w < d->tdp_w ? w : d->tdp_w;
}

int model_neighbours(const struct emu_state *st, const struct emu_proc *p)
{
    int i, n = 0;

    for (i = 0; i < (int)st->n_slots; i++) {
        const struct emu_proc *q = &st->proc[i];
        if (shares_compute(p, q) && q->pid != p->pid)
            n++;
    }
    return n;
}
