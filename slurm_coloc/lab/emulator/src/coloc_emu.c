/* SPDX-License-Identifier: Apache-2.0 */
/* coloc-emu: makes, shows and breaks emulated nodes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ledger.h"
#include "machines.h"
#include "monitor.h"
#include "show.h"

static int usage(FILE *f, int rc)
{
    fputs("usage: coloc-emu machines [--json]\n"
          "       coloc-emu init --machine NAME [--uuid-seed S] [--minors 1,0,..] [--force]\n"
          "                      [--sharing mps|streams|auto] [--driver VERSION] [--no-events] "
          "LEDGER\n"
          "       coloc-emu show [LEDGER] [--json]\n"
          "       coloc-emu fault LEDGER GPU|all lost|nvml-busy|mps-fault|stale|clear\n"
          "       coloc-emu xid LEDGER GPU|MIG NUMBER\n"
          "       coloc-emu reap [LEDGER]\n"
          "LEDGER defaults to $COLOC_EMU_LEDGER where it may be left out.\n",
          f);
    return rc;
}

static int parse_minors(const char *text, uint32_t *minors, uint32_t n)
{
    uint32_t i;
    char *end;

    for (i = 0; i < n; i++) {
        minors[i] = (uint32_t)strtoul(text, &end, 10);
        if (end == text || (*end != (i + 1 < n ? ',' : '\0')))
            return -1;
        text = end + 1;
    }
    return 0;
}

static void random_seed(char *buf, size_t len)
{
    unsigned char raw[16] = {0};
    FILE *f = fopen("/dev/urandom", "rb");
    size_t i, n = f != NULL ? fread(raw, 1, sizeof(raw), f) : 0;

    if (f != NULL)
        fclose(f);
    for (i = 0; i < n && 2 * i + 2 < len; i++)
        snprintf(buf + 2 * i, len - 2 * i, "%02x", raw[i]);
}

static int parse_sharing(const char *text)
{
    static const char *const words[] = {"mps", "streams", "auto"};
    int i;

    for (i = 0; i < 3; i++)
        if (strcmp(text, words[i]) == 0)
            return i;
    return -1;
}

static int cmd_init(int argc, char **argv)
{
    const char *name = NULL, *path = NULL, *minors_text = NULL, *driver = NULL;
    char seed[64] = "";
    uint32_t minors[EMU_MAX_DEVICES];
    int i, rc, force = 0, events = 1, sharing = EMU_SHARING_MPS;
    const struct machine *m;
    static struct emu_state st;

    for (i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--force") == 0)
            force = 1;
        else if (strcmp(argv[i], "--no-events") == 0)
            events = 0;
        else if (strcmp(argv[i], "--machine") == 0 && i + 1 < argc)
            name = argv[++i];
        else if (strcmp(argv[i], "--uuid-seed") == 0 && i + 1 < argc)
            snprintf(seed, sizeof(seed), "%s", argv[++i]);
        else if (strcmp(argv[i], "--minors") == 0 && i + 1 < argc)
            minors_text = argv[++i];
        else if (strcmp(argv[i], "--sharing") == 0 && i + 1 < argc)
            sharing = parse_sharing(argv[++i]);
        else if (strcmp(argv[i], "--driver") == 0 && i + 1 < argc)
            driver = argv[++i];
        else if (argv[i][0] != '-' && path == NULL)
            path = argv[i];
        else
            return usage(stderr, 2);
    }
    if (name == NULL || path == NULL || sharing < 0)
        return usage(stderr, 2);
    m = machine_find(name);
    if (m == NULL) {
        fprintf(stderr, "coloc-emu: no machine named %s (see coloc-emu machines)\n", name);
        return 2;
    }
    if (minors_text != NULL && parse_minors(minors_text, minors, m->n_gpus) < 0) {
        fprintf(stderr, "coloc-emu: --minors wants %u numbers\n", m->n_gpus);
        return 2;
    }
    if (*seed == '\0')
        random_seed(seed, sizeof(seed));
    machine_build(&st, m, seed, minors_text != NULL ? minors : NULL);
    st.sharing = (uint32_t)sharing;
    st.without_events = !events;
    if (driver != NULL)
        snprintf(st.driver, sizeof(st.driver), "%s", driver);
    rc = emu_create(path, &st, force);
    if (rc < 0) {
        fprintf(stderr, "coloc-emu: %s: %s\n", path, strerror(-rc));
        return 9;
    }
    return 0;
}

static int lock_or_complain(struct emu_ledger *l)
{
    int rc = emu_lock(l);

    if (rc < 0)
        fprintf(stderr, "coloc-emu: the ledger's lock: %s\n", strerror(-rc));
    return rc;
}

static int cmd_show(int argc, char **argv)
{
    const char *path = NULL;
    static struct emu_state copy;
    struct emu_ledger l;
    int i, json = 0;

    for (i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = 1;
        else if (argv[i][0] != '-' && path == NULL)
            path = argv[i];
        else
            return usage(stderr, 2);
    }
    emu_open_or_die(&l, path, "coloc-emu");
    if (lock_or_complain(&l) < 0)
        return 9;
    emu_reap(&l, 1);
    emu_advance(&l);
    copy = *l.st;
    emu_unlock(&l);
    emu_close(&l);
    if (json)
        show_json(&copy);
    else
        show_table(&copy);
    return 0;
}

static void raise_xid(struct emu_state *st, int device, int mig, uint64_t xid)
{
    const struct emu_mig *m = mig >= 0 ? &st->dev[device].mig[mig] : NULL;

    st->xid[st->n_xids % EMU_MAX_XIDS] = (struct emu_xid){
        device, m != NULL ? m->gi : EMU_NO_INSTANCE, m != NULL ? m->ci : EMU_NO_INSTANCE, xid};
    /* Who waits for it looks without the lock. */
    __atomic_store_n(&st->n_xids, st->n_xids + 1, __ATOMIC_RELEASE);
    emu_wake_xid(st);
}

/* What the driver reports beside a fault. */
enum { XID_PAGE_FAULT = 31, XID_OFF_THE_BUS = 79 };

static int set_fault(struct emu_ledger *l, struct emu_device *d, int device, const char *what)
{
    if (strcmp(what, "clear") == 0) {
        d->faults = 0;
    } else if (strcmp(what, "lost") == 0) {
        d->faults |= EMU_FAULT_LOST;
        raise_xid(l->st, device, -1, XID_OFF_THE_BUS);
    } else if (strcmp(what, "nvml-busy") == 0) {
        d->faults |= EMU_FAULT_NVML_BUSY;
    } else if (strcmp(what, "mps-fault") == 0) {
        d->mps_fault_seq++;
        raise_xid(l->st, device, -1, XID_PAGE_FAULT);
    } else if (strcmp(what, "stale") == 0) {
        monitor_freeze(l->st, device);
        d->faults |= EMU_FAULT_STALE;
    } else {
        return -1;
    }
    return 0;
}

static int cmd_fault(int argc, char **argv)
{
    struct emu_ledger l;
    int first, last, mig, rc = 0, d;

    if (argc != 3)
        return usage(stderr, 2);
    emu_open_or_die(&l, argv[0], "coloc-emu");
    first = last = emu_device_by_name(l.st, argv[1], &mig);
    if (strcmp(argv[1], "all") == 0) {
        first = 0;
        last = (int)l.st->n_devices - 1;
    }
    if (first < 0) {
        fprintf(stderr, "coloc-emu: no GPU %s\n", argv[1]);
        return 2;
    }
    if (lock_or_complain(&l) < 0)
        return 9;
    for (d = first; d <= last && rc == 0; d++)
        rc = set_fault(&l, &l.st->dev[d], d, argv[2]);
    emu_unlock(&l);
    emu_close(&l);
    return rc < 0 ? usage(stderr, 2) : 0;
}

static int cmd_xid(int argc, char **argv)
{
    struct emu_ledger l;
    unsigned long number;
    char *end;
    int device, mig;

    if (argc != 3)
        return usage(stderr, 2);
    number = strtoul(argv[2], &end, 10);
    if (end == argv[2] || *end != '\0')
        return usage(stderr, 2);
    emu_open_or_die(&l, argv[0], "coloc-emu");
    device = emu_device_by_name(l.st, argv[1], &mig);
    if (device < 0) {
        fprintf(stderr, "coloc-emu: no GPU %s\n", argv[1]);
        return 2;
    }
    if (lock_or_complain(&l) < 0)
        return 9;
    raise_xid(l.st, device, mig, number);
    emu_unlock(&l);
    emu_close(&l);
    return 0;
}

static int cmd_reap(int argc, char **argv)
{
    struct emu_ledger l;
    uint64_t before;

    if (argc > 1)
        return usage(stderr, 2);
    emu_open_or_die(&l, argc == 1 ? argv[0] : NULL, "coloc-emu");
    before = l.st->reaped_count;
    if (lock_or_complain(&l) < 0)
        return 9;
    emu_reap(&l, 1);
    printf("reaped %llu\n", (unsigned long long)(l.st->reaped_count - before));
    emu_unlock(&l);
    emu_close(&l);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return usage(stderr, 2);
    if (strcmp(argv[1], "machines") == 0 && argc <= 3) {
        if (argc == 3 && strcmp(argv[2], "--json") != 0)
            return usage(stderr, 2);
        show_machines(argc == 3);
        return 0;
    }
    if (strcmp(argv[1], "init") == 0)
        return cmd_init(argc - 2, argv + 2);
    if (strcmp(argv[1], "show") == 0)
        return cmd_show(argc - 2, argv + 2);
    if (strcmp(argv[1], "fault") == 0)
        return cmd_fault(argc - 2, argv + 2);
    if (strcmp(argv[1], "xid") == 0)
        return cmd_xid(argc - 2, argv + 2);
    if (strcmp(argv[1], "reap") == 0)
        return cmd_reap(argc - 2, argv + 2);
    if (strcmp(argv[1], "--help") == 0)
        return usage(stdout, 0);
    return usage(stderr, 2);
}
