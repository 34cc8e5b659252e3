/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for the next Xid in the ledger: a futex on its count, shared by all that have it mapped.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ledger.h"

/* The half of the count that changes each time. */
static uint32_t *low(struct emu_state *st)
{
    return (uint32_t *)&st->n_xids + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

int emu_wait_xid(struct emu_state *st, uint64_t seen, uint64_t deadline_ns)
{
    struct timespec until = {(time_t)(deadline_ns / 1000000000ull),
                             (long)(deadline_ns % 1000000000ull)};

    /* FUTEX_WAIT_BITSET takes a moment of CLOCK_MONOTONIC, FUTEX_WAIT a length. */
    while (__atomic_load_n(&st->n_xids, __ATOMIC_ACQUIRE) == seen) {
        if (syscall(SYS_futex, low(st), FUTEX_WAIT_BITSET, (uint32_t)seen, &until, NULL,
                    FUTEX_BITSET_MATCH_ANY) == 0 ||
            errno == EAGAIN || errno == EINTR)
            continue;
        return -1;
    }
    return 0;
}

void emu_wake_xid(struct emu_state *st)
{
    syscall(SYS_futex, low(st), FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}
