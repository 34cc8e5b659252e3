/* SPDX-License-Identifier: Apache-2.0 */
/* What coloc-emu prints. */
#ifndef EMU_SHOW_H
#define EMU_SHOW_H

#include "ledger.h"

void show_json(const struct emu_state *st);
void show_table(const struct emu_state *st);
void show_machines(int json);

#endif
