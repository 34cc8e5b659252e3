/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu-train: takes a footprint on emulated GPUs, works beside its neighbours, ends as a training
 * would. Written in C so that dozens run at once on two cores and start with no environment.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "train.h"

#define TICK_S 0.05
#define STEPS_A_SECOND 10.0 /* of work */
#define RAMP_STEPS 10
#define MAX_PROCESSES 64
#define HOST_STEP_MIB 128
#define HOST_OVER_MIB 2048 /* never more host memory than so much above what was asked for */
#define MAX_DT_S 2.0       /* a longer gap was a suspension: no work is done in it */

static volatile sig_atomic_t stop_signal;

static void on_signal(int sig) { stop_signal = sig; }

int train_stopped(void) { return stop_signal != 0; }

static void sleep_s(double s)
{
    struct timespec ts = {(time_t)s, (long)((s - floor(s)) * 1e9)};

    if (s > 0)
        nanosleep(&ts, NULL); /* a signal ends it early, as it should */
}

static double now_s(void) { return (double)emu_now_ns() / 1e9; }

struct run {
    const struct options *o;
    struct gpus g;
    int rank;
    double start_s, done_s;
    int neighbours_max;
    uint64_t footprint_mib;
};

static double emulated_s(const struct run *r) { return (now_s() - r->start_s) * r->o->time_scale; }

/* Takes the footprint in steps. 0, 1 (out of memory) or 2 (asked to stop). */
static int ramp(struct run *r, struct oom *why)
{
    int i;

    for (i = 1; i <= RAMP_STEPS; i++) {
        uint64_t mib = r->footprint_mib * (uint64_t)i / RAMP_STEPS;
        if (mib > r->g.slot[0]->memory_mib && gpus_resize(&r->g, mib, why) < 0)
            return 1;
        if (stop_signal)
            return 2;
        sleep_s(r->o->ramp_s / r->o->time_scale / RAMP_STEPS);
    }
    return 0;
}

/* Real memory of the host, so that Slurm's own out-of-memory handling can be tested. */
static void eat_host_memory(const struct options *o)
{
    const char *node = getenv("SLURM_MEM_PER_NODE"), *cpu = getenv("SLURM_MEM_PER_CPU");
    const char *cpus = getenv("SLURM_CPUS_ON_NODE");
    uint64_t asked = o->host_mib, taken;

    if (asked == 0 && node != NULL)
        asked = strtoull(node, NULL, 10);
    else if (asked == 0 && cpu != NULL)
        asked = strtoull(cpu, NULL, 10) * (cpus != NULL ? strtoull(cpus, NULL, 10) : 1);
    if (asked == 0)
        asked = 1024;
    printf("emu-train: taking up to %llu MiB of host memory\n",
           (unsigned long long)(asked + HOST_OVER_MIB));
    fflush(stdout);
    for (taken = 0; taken < asked + HOST_OVER_MIB && !stop_signal; taken += HOST_STEP_MIB) {
        char *block = malloc((size_t)HOST_STEP_MIB << 20);
        if (block == NULL)
            break;
        memset(block, 0x5a, (size_t)HOST_STEP_MIB << 20); /* kept until the process ends */
        sleep_s(0.05);
    }
}

static void say_progress(const struct run *r, double speed, int neighbours, long iteration)
{
    printf("step %ld/%ld  batch %d  loss %.4f  %.1f/%.1f s  speed %.2f  neighbours %d  %llu MiB\n",
           iteration, (long)(r->o->work_s * STEPS_A_SECOND), r->o->batch,
           0.3 + 2.0 / (1.0 + (double)iteration / 50.0), r->done_s, r->o->work_s, speed, neighbours,
           (unsigned long long)r->footprint_mib);
    fflush(stdout);
}

static int gpu_failed(int how)
{
    static const char *const words[] = {"", "unknown error", "unspecified launch failure",
                                        "the MPS client was terminated"};

    fprintf(stderr,
            "Traceback (most recent call last):\n"
            "  File \"train.py\", line 91, in main\n"
            "    loss.backward()\n"
            "RuntimeError: CUDA error: %s\n",
            words[how]);
    return 1;
}

/* Works until work_s seconds of solo work are done. 0, or the exit code. */
static int work(struct run *r)
{
    const struct options *o = r->o;
    double last = now_s(), logged = -1e9, speed;
    int neighbours, how;

    gpus_set(&r->g, o->smact, o->work_s, 0.0);
    while (r->done_s < o->work_s) {
        double left, dt, now;
        how = gpus_tick(&r->g, &speed, &neighbours);
        if (how != 0)
            return gpu_failed(how);
        if (neighbours > r->neighbours_max)
            r->neighbours_max = neighbours;
        if (emulated_s(r) - logged >= o->log_every_s) {
            logged = emulated_s(r);
            say_progress(r, speed, neighbours, (long)(r->done_s * STEPS_A_SECOND));
        }
        left = speed > 0 ? (o->work_s - r->done_s) / speed / o->time_scale : TICK_S;
        sleep_s(left < TICK_S ? left : TICK_S);
        if (stop_signal)
            return 128 + stop_signal;
        now = now_s();
        dt = now - last < MAX_DT_S ? now - last : TICK_S;
        last = now;
        r->done_s += dt * speed * o->time_scale;
        gpus_set(&r->g, o->smact, o->work_s, r->done_s);
    }
    r->done_s = o->work_s;
    return 0;
}

static void say_done(const struct run *r)
{
    char gpus[EMU_MAX_DEVICES * EMU_UUID_LEN] = "";
    uint64_t peak = 0;
    int i;

    for (i = 0; i < r->g.n; i++) {
        const struct emu_proc *p = r->g.slot[i];
        const struct emu_device *d = &r->g.ledger.st->dev[p->device];
        size_t used = strlen(gpus);
        snprintf(gpus + used, sizeof(gpus) - used, "%s%s", i ? "," : "",
                 p->mig >= 0 ? d->mig[p->mig].uuid : d->uuid);
        if (p->peak_mib > peak)
            peak = p->peak_mib;
    }
    printf("emu-train: done work_s=%.2f wall_s=%.2f gpu=%s peak_mib=%llu neighbours_max=%d\n",
           r->done_s, emulated_s(r), gpus, (unsigned long long)peak, r->neighbours_max);
    fflush(stdout);
}

/* One process of the job, from its first byte of GPU memory to its end. */
static int run_rank(const struct options *o, int rank)
{
    struct run r = {.o = o, .rank = rank, .start_s = now_s(), .footprint_mib = o->memory_mib};
    struct oom why;
    int rc = gpus_attach(&r.g, o, rank), ramped;

    if (rc != 0 && stop_signal)
        rc = 128 + stop_signal; /* while it waited for another user's MPS server */
    if (rc != 0)
        goto out;
    rc = framework_refuses(o->framework);
    if (rc != 0)
        goto out;
    r.footprint_mib = gpus_preallocate(&r.g, o, &why);
    ramped = ramp(&r, &why);
    if (ramped == 1) {
        oom_print(o->framework, &why, o->catch_oom);
        rc = 1;
        if (!o->catch_oom)
            goto out;
        r.footprint_mib /= 2;
        gpus_resize(&r.g, 0, &why);
        ramped = ramp(&r, &why);
        if (ramped == 1) {
            oom_print(o->framework, &why, 0);
            goto out;
        }
    }
    rc = ramped == 2 ? 128 + stop_signal : 0;
    if (rc == 0 && o->host_oom)
        eat_host_memory(o);
    if (rc == 0)
        rc = work(&r);
    if (rc == 0) {
        say_done(&r);
        rc = o->exit_code;
    }
out:
    gpus_detach(&r.g);
    return rc;
}

static void end_ranks(const pid_t *pids, int n)
{
    int i;

    for (i = 0; i < n; i++)
        if (pids[i] > 0)
            kill(pids[i], SIGTERM);
}

/* As torchrun: one rank that fails ends the others. */
static int run_ranks(const struct options *o)
{
    pid_t pids[MAX_PROCESSES], parent = getpid();
    int i, status, rc = 0, left = o->processes, told = 0;

    for (i = 0; i < o->processes; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            if (getppid() != parent)
                _exit(1);
            fflush(stdout);
            status = run_rank(o, i);
            fflush(NULL);
            _exit(status);
        }
    }
    while (left > 0) {
        pid_t pid = wait(&status);
        int code;
        if (stop_signal && !told) {
            told = 1;
            end_ranks(pids, o->processes);
        }
        if (pid < 0) {
            if (errno == EINTR)
                continue;
            break;
        }
        left--;
        code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        for (i = 0; i < o->processes && pids[i] != pid; i++)
            ;
        if (i < o->processes)
            pids[i] = 0;
        if (code != 0 && rc == 0) {
            rc = stop_signal ? 128 + stop_signal : code;
            if (!stop_signal)
                fprintf(stderr,
                        "E torch/distributed/elastic/multiprocessing/api.py:869] failed "
                        "(exitcode: %d) local_rank: %d (pid: %d) of binary: emu-train\n",
                        code, i, (int)pid);
            end_ranks(pids, o->processes);
        }
    }
    return rc;
}

static int usage(FILE *f, int rc)
{
    fputs("usage: emu-train --memory-mib M --smact S --work-s W [--ramp-s R] [--batch N]\n"
          "  [--framework pytorch|pytorch-old|tensorflow|jax|cupy|cublas|cudnn|cuda|nccl]\n"
          "  [--processes N] [--gpus N] [--catch-oom] [--exit-code N] [--time-scale X]\n"
          "  [--host-oom] [--host-mib N] [--log-every-s L] [--ledger FILE]\n",
          f);
    return rc;
}

enum {
    OPT_MEMORY = 1,
    OPT_SMACT,
    OPT_WORK,
    OPT_RAMP,
    OPT_FRAMEWORK,
    OPT_PROCESSES,
    OPT_GPUS,
    OPT_BATCH,
    OPT_CATCH,
    OPT_EXIT,
    OPT_HOST_OOM,
    OPT_HOST_MIB,
    OPT_SCALE,
    OPT_LOG,
    OPT_LEDGER,
    OPT_HELP
};

static const struct option long_options[] = {
    {"memory-mib",  1, NULL, OPT_MEMORY   },
    {"smact",       1, NULL, OPT_SMACT    },
    {"work-s",      1, NULL, OPT_WORK     },
    {"ramp-s",      1, NULL, OPT_RAMP     },
    {"framework",   1, NULL, OPT_FRAMEWORK},
    {"processes",   1, NULL, OPT_PROCESSES},
    {"gpus",        1, NULL, OPT_GPUS     },
    {"batch",       1, NULL, OPT_BATCH    },
    {"batch-size",  1, NULL, OPT_BATCH    },
    {"catch-oom",   0, NULL, OPT_CATCH    },
    {"exit-code",   1, NULL, OPT_EXIT     },
    {"host-oom",    0, NULL, OPT_HOST_OOM },
    {"host-mib",    1, NULL, OPT_HOST_MIB },
    {"time-scale",  1, NULL, OPT_SCALE    },
    {"log-every-s", 1, NULL, OPT_LOG      },
    {"ledger",      1, NULL, OPT_LEDGER   },
    {"help",        0, NULL, OPT_HELP     },
    {NULL,          0, NULL, 0            }
};

/* 0 and *out, or -1 where the text is no number within the bounds. */
static int number(const char *text, double low, double high, double *out)
{
    char *end;

    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out >= low && *out <= high ? 0 : -1;
}

static int parse(int argc, char **argv, struct options *o)
{
    double x = 0.0;
    int opt, bad = 0;

    while ((opt = getopt_long(argc, argv, "", long_options, NULL)) != -1 && !bad) {
        switch (opt) {
        case OPT_MEMORY:
            bad = number(optarg, 1, 1e7, &x);
            o->memory_mib = (uint64_t)x;
            break;
        case OPT_SMACT: bad = number(optarg, 0, 1, &o->smact); break;
        case OPT_WORK: bad = number(optarg, 0, 1e9, &o->work_s); break;
        case OPT_RAMP: bad = number(optarg, 0, 1e6, &o->ramp_s); break;
        case OPT_FRAMEWORK: bad = (o->framework = framework_by_name(optarg)) < 0; break;
        case OPT_PROCESSES:
            bad = number(optarg, 1, MAX_PROCESSES, &x);
            o->processes = (int)x;
            break;
        case OPT_GPUS:
            bad = number(optarg, 1, MAX_GPUS, &x);
            o->gpus = (int)x;
            break;
        case OPT_BATCH:
            bad = number(optarg, 1, 2147483647, &x);
            o->batch = (int)x;
            break;
        case OPT_CATCH: o->catch_oom = 1; break;
        case OPT_EXIT:
            bad = number(optarg, 0, 255, &x);
            o->exit_code = (int)x;
            break;
        case OPT_HOST_OOM: o->host_oom = 1; break;
        case OPT_HOST_MIB:
            bad = number(optarg, 1, 1e6, &x);
            o->host_mib = (uint64_t)x;
            break;
        case OPT_SCALE: bad = number(optarg, 1e-3, 1e4, &o->time_scale); break;
        case OPT_LOG: bad = number(optarg, 0.01, 1e9, &o->log_every_s); break;
        case OPT_LEDGER: o->ledger = optarg; break;
        case OPT_HELP: exit(usage(stdout, 0));
        default: return -1;
        }
    }
    return bad || optind != argc || o->memory_mib == 0 || o->work_s < 0 || o->smact < 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
    struct options o = {.smact = -1,
                        .work_s = -1,
                        .ramp_s = 1.0,
                        .time_scale = 1.0,
                        .log_every_s = 2.0,
                        .processes = 1,
                        .gpus = 1,
                        .batch = 32,
                        .framework = FW_PYTORCH};
    struct sigaction sa = {.sa_handler = on_signal};
    const char *scale = getenv("COLOC_EMU_TIME_SCALE");

    if (scale != NULL && number(scale, 1e-3, 1e4, &o.time_scale) < 0)
        return usage(stderr, 2);
    if (parse(argc, argv, &o) < 0)
        return usage(stderr, 2);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGINT, &sa, NULL);
    return o.processes > 1 ? run_ranks(&o) : run_rank(&o, 0);
}
