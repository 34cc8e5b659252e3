/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "model.h"

#define LOCK_LIMIT_NS (10ull * 1000000000ull)
#define REAP_EVERY_NS (200ull * 1000000ull) /* /proc is read for all slots at most so often */

uint64_t emu_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

uint64_t emu_epoch_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000ull + (uint64_t)ts.tv_nsec / 1000ull;
}

/* The ledger of a machine that is emulated as a whole: a container that is one node. */
#define MACHINE "/var/lib/coloc-emu/ledger"

const char *emu_program_dir(char *buf, size_t len)
{
    ssize_t n = readlink("/proc/self/exe", buf, len - 1);
    char *slash;

    if (n <= 0) {
        snprintf(buf, len, ".");
        return buf;
    }
    buf[n] = '\0';
    slash = strrchr(buf, '/');
    if (slash != NULL)
        *slash = '\0';
    return buf;
}

const char *emu_find(char *buf, size_t len, const char *program_dir)
{
    const char *env = getenv("COLOC_EMU_LEDGER");
    const char *node = getenv("SLURMD_NODENAME");
    int n;

    if (env != NULL && *env != '\0') {
        n = snprintf(buf, len, "%s", env);
        return n >= 0 && (size_t)n < len ? buf : NULL;
    }
    if (node != NULL && *node != '\0' && strchr(node, '/') == NULL && program_dir != NULL) {
        n = snprintf(buf, len, "%s/../nodes/%s/ledger", program_dir, node);
        /* A machine of its own is asked only where no lab's node is. */
        if (n >= 0 && (size_t)n < len && (access(buf, F_OK) == 0 || access(MACHINE, F_OK) != 0))
            return buf;
    }
    n = snprintf(buf, len, "%s", MACHINE);
    return (size_t)n < len && access(buf, F_OK) == 0 ? buf : NULL;
}

int emu_open(struct emu_ledger *l, const char *path)
{
    struct stat sb;
    void *map;
    int fd = open(path, O_RDWR | O_CLOEXEC);

    l->fd = -1;
    l->st = NULL;
    if (fd < 0)
        return -errno;
    if (fstat(fd, &sb) < 0 || (size_t)sb.st_size < sizeof(struct emu_state)) {
        close(fd);
        return -EPROTO;
    }
    map = mmap(NULL, sizeof(struct emu_state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        int err = errno;
        close(fd);
        return -err;
    }
    l->fd = fd;
    l->st = map;
    if (l->st->magic != EMU_MAGIC || l->st->version != EMU_VERSION ||
        l->st->size != sizeof(struct emu_state) || l->st->n_devices > EMU_MAX_DEVICES) {
        emu_close(l);
        return -EPROTO;
    }
    return 0;
}

void emu_close(struct emu_ledger *l)
{
    if (l->st != NULL)
        munmap(l->st, sizeof(struct emu_state));
    if (l->fd >= 0)
        close(l->fd);
    l->st = NULL;
    l->fd = -1;
}

void emu_open_or_die(struct emu_ledger *l, const char *path, const char *who)
{
    char dir[4096], found[4352];
    int rc;

    if (path == NULL)
        path = emu_find(found, sizeof(found), emu_program_dir(dir, sizeof(dir)));
    if (path == NULL) {
        fprintf(stderr, "%s: no ledger: set COLOC_EMU_LEDGER\n", who);
        exit(9);
    }
    rc = emu_open(l, path);
    if (rc < 0) {
        fprintf(stderr, "%s: %s: %s\n", who, path,
                rc == -EPROTO ? "not a ledger of this version" : strerror(-rc));
        exit(9);
    }
}

int emu_create(const char *path, const struct emu_state *st, int force)
{
    char tmp[4096];
    int fd, rc = 0;

    if (!force && access(path, F_OK) == 0)
        return -EEXIST;
    if (snprintf(tmp, sizeof(tmp), "%s.XXXXXX", path) >= (int)sizeof(tmp))
        return -ENAMETOOLONG;
    fd = mkostemp(tmp, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    /* Jobs of any user take memory in it, as they do on a GPU. */
    if (fchmod(fd, 0666) < 0 || write(fd, st, sizeof(*st)) != (ssize_t)sizeof(*st) ||
        rename(tmp, path) < 0) {
        rc = -(errno ? errno : EIO);
        unlink(tmp);
    }
    close(fd);
    return rc;
}

int emu_lock(struct emu_ledger *l)
{
    struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    struct timespec pause = {0, 200000};
    uint64_t deadline = emu_now_ns() + LOCK_LIMIT_NS;

    /* Tried again and again rather than F_OFD_SETLKW: a holder that was stopped (SIGSTOP) must
     * not hang a hook for ever. */
    while (fcntl(l->fd, F_OFD_SETLK, &fl) < 0) {
        if (emu_now_ns() > deadline)
            return -ETIMEDOUT;
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 3000000)
            pause.tv_nsec *= 2;
    }
    emu_advance(l);
    emu_reap(l, 0);
    return 0;
}

void emu_unlock(struct emu_ledger *l)
{
    struct flock fl = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};

    fcntl(l->fd, F_OFD_SETLK, &fl);
}

uint64_t emu_start_ticks(pid_t pid)
{
    char path[64], buf[1024], *p;
    ssize_t n;
    int fd, field;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    n = read(fd, buf, sizeof(buf) - 1);
    close(fd);
    if (n <= 0)
        return 0;
    buf[n] = '\0';
    p = strrchr(buf, ')'); /* the command's name may hold blanks and brackets */
    if (p == NULL || p[1] == '\0' || p[2] == 'Z' || p[2] == 'X')
        return 0;
    p += 2;
    for (field = 3; field < 22 && p != NULL; field++) {
        p = strchr(p, ' ');
        if (p != NULL)
            p++;
    }
    return p != NULL ? strtoull(p, NULL, 10) : 0;
}

static int alive(const struct emu_proc *p)
{
    uint64_t start = emu_start_ticks(p->pid);

    if (start == 0) /* /proc may hide another user's processes; a zombie holds no GPU memory */
        return kill(p->pid, 0) < 0 && errno == EPERM && access("/proc/self/stat", R_OK) < 0;
    return start == p->start_ticks;
}

int emu_reap(struct emu_ledger *l, int force)
{
    uint64_t now = emu_now_ns();
    int i, n = 0;

    if (!force && now < l->st->reaped_ns + REAP_EVERY_NS && now >= l->st->reaped_ns)
        return 0;
    for (i = 0; i < (int)l->st->n_slots; i++) {
        struct emu_proc *p = &l->st->proc[i];
        if (p->kind != EMU_FREE && !alive(p)) {
            emu_proc_remove(l, p);
            n++;
        }
    }
    while (l->st->n_slots > 0 && l->st->proc[l->st->n_slots - 1].kind == EMU_FREE)
        l->st->n_slots--;
    l->st->reaped_ns = now;
    l->st->reaped_count += (uint64_t)n;
    return n;
}

int emu_proc_on(const struct emu_state *st, const struct emu_proc *p, int device, int mig)
{
    if (p->kind == EMU_FREE || p->device != device)
        return 0;
    if (mig < 0)
        return 1;
    return p->mig >= 0 && st->dev[device].mig[p->mig].gi == st->dev[device].mig[mig].gi;
}

uint64_t emu_used_mib(const struct emu_state *st, int device, int mig)
{
    uint64_t sum = 0;
    int i;

    for (i = 0; i < (int)st->n_slots; i++)
        if (emu_proc_on(st, &st->proc[i], device, mig))
            sum += st->proc[i].memory_mib;
    return sum;
}

uint64_t emu_capacity_mib(const struct emu_state *st, int device, int mig)
{
    const struct emu_device *d = &st->dev[device];

    return mig >= 0 ? d->mig[mig].memory_mib : d->total_mib - d->reserved_mib;
}

struct emu_proc *emu_proc_add(struct emu_ledger *l, int device, int mig, const char *label)
{
    int i;

    for (i = 0; i < EMU_MAX_PROCS; i++) {
        struct emu_proc *p = &l->st->proc[i];
        if (p->kind != EMU_FREE)
            continue;
        memset(p, 0, sizeof(*p));
        p->pid = (int32_t)getpid();
        p->start_ticks = emu_start_ticks(getpid());
        p->uid = (uint32_t)getuid();
        p->device = device;
        p->mig = mig;
        p->mps_fault_seq = l->st->dev[device].mps_fault_seq;
        p->speed = 1.0;
        p->start_us = emu_epoch_us();
        if (getenv("SLURM_JOB_ID") != NULL)
            p->job = (uint32_t)strtoul(getenv("SLURM_JOB_ID"), NULL, 10);
        snprintf(p->label, sizeof(p->label), "%s", label);
        emu_own_group(p->group, sizeof(p->group));
        if (l->st->n_slots <= (uint32_t)i)
            l->st->n_slots = (uint32_t)i + 1;
        p->kind = EMU_TRAIN;
        return p;
    }
    return NULL;
}

void emu_proc_remove(struct emu_ledger *l, struct emu_proc *p)
{
    struct emu_past *past = &l->st->past[l->st->n_past % EMU_MAX_PAST];

    *past = (struct emu_past){p->pid, p->device, p->mig, p->start_us, emu_epoch_us(), p->peak_mib};
    l->st->n_past++;
    p->kind = EMU_FREE;
    p->memory_mib = 0;
}

int emu_proc_resize(struct emu_ledger *l, struct emu_proc *p, uint64_t mib)
{
    uint64_t capacity = emu_capacity_mib(l->st, p->device, p->mig);
    uint64_t others = emu_used_mib(l->st, p->device, p->mig) - p->memory_mib;

    if (others + mib > capacity) {
        emu_reap(l, 1); /* a neighbour that was just killed gives its memory back first */
        others = emu_used_mib(l->st, p->device, p->mig) - p->memory_mib;
        if (others + mib > capacity)
            return -ENOMEM;
    }
    p->memory_mib = mib;
    if (mib > p->peak_mib)
        p->peak_mib = mib;
    return 0;
}

static void advance_stats(struct emu_state *st)
{
    int i;
    uint32_t d;

    for (i = 0; i < EMU_MAX_STATS; i++) {
        if (st->stats[i].state != 1)
            continue;
        for (d = 0; d < st->n_devices; d++) {
            uint64_t used = emu_used_mib(st, (int)d, -1);
            if (used > st->stats[i].max_mib[d])
                st->stats[i].max_mib[d] = used;
        }
    }
}

void emu_advance(struct emu_ledger *l)
{
    struct emu_state *st = l->st;
    uint64_t now = emu_now_ns();
    uint32_t d;
    int i;

    model_speeds(st);
    for (d = 0; d < st->n_devices; d++) {
        struct emu_device *dev = &st->dev[d];
        double dt = now > dev->updated_ns ? (double)(now - dev->updated_ns) / 1e9 : 0.0;

        if (dev->updated_ns == 0)
            dt = 0.0;
        dev->energy_j += dt * model_power_w(st, (int)d);
        dev->sm_active_s += dt * model_smact(st, (int)d, -1);
        dev->gr_active_s += dt * model_gract(st, (int)d, -1);
        for (i = 0; i < (int)st->n_slots; i++)
            if (st->proc[i].kind != EMU_FREE && st->proc[i].device == (int32_t)d)
                st->proc[i].sm_active_s += dt * st->proc[i].smact * st->proc[i].speed;
        dev->updated_ns = now;
    }
    advance_stats(st);
}

static int same_bus_id(const char *a, const char *b)
{
    size_t la = strlen(a), lb = strlen(b);
    /* "0000:01:00.0" and "00000000:01:00.0" are one: the tail from the bus on decides. */
    return la >= 7 && lb >= 7 && strcasecmp(a + la - 7, b + lb - 7) == 0;
}

int emu_device_by_name(const struct emu_state *st, const char *name, int *mig)
{
    uint32_t d, m;
    char *end;
    unsigned long index;

    *mig = -1;
    for (d = 0; d < st->n_devices; d++) {
        const struct emu_device *dev = &st->dev[d];
        if (strcasecmp(dev->uuid, name) == 0)
            return (int)d;
        if (strchr(name, ':') != NULL && same_bus_id(dev->bus_id, name))
            return (int)d;
        for (m = 0; m < dev->n_mig; m++) {
            if (strcasecmp(dev->mig[m].uuid, name) == 0) {
                *mig = (int)m;
                return (int)d;
            }
        }
    }
    if (!isdigit((unsigned char)*name))
        return -1;
    index = strtoul(name, &end, 10);
    return *end == '\0' && index < st->n_devices ? (int)index : -1;
}
