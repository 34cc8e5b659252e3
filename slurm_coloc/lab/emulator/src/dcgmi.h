/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of dcgmi. Each gets the words behind its name; the exit code. */
#ifndef EMU_DCGMI_H
#define EMU_DCGMI_H

#include "entities.h"

/* group -c NAME [-a GPU,..|--default], -l, -d ID */
int cmd_group(struct emu_ledger *l, int argc, char **argv);
/* stats [-g GROUP] -e [-u MS] [-m S] | -s JOB | -x JOB | [-v] -j JOB | -r JOB */
int cmd_stats(struct emu_ledger *l, int argc, char **argv);

#endif
