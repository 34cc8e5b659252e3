/* SPDX-License-Identifier: Apache-2.0
 * Lines: the jobs of each slot by the keys of their spots.
 */
#include <stdlib.h>
#include <string.h>

#include "schedules.h"

static void enter(struct plan *plan, int32_t job)
{
	double key = plan->spot.key[job];
	int32_t *slots = plan_slots(plan, job);

	for (int32_t i = 0; i < plan->p->gpus[job]; i++) {
		int32_t *line = plan_line(plan, slots[i]);
		int32_t at = plan_index(plan, slots[i], key);

		memmove(line + at + 1, line + at, sizeof(*line) * (plan->count[slots[i]] - at));
		line[at] = job;
		plan->count[slots[i]]++;
	}
}

static void leave(struct plan *plan, int32_t job)
{
	int32_t *slots = plan_slots(plan, job);

	for (int32_t i = 0; i < plan->p->gpus[job]; i++) {
		int32_t *line = plan_line(plan, slots[i]);
		int32_t at = 0;

		while (line[at] != job)
			at++;
		plan->count[slots[i]]--;
		memmove(line + at, line + at + 1, sizeof(*line) * (plan->count[slots[i]] - at));
	}
}

bool plan_begin(struct plan *plan, const struct lines_problem *p, const struct lines_spots *spots)
{
	plan->p = p;
	plan->spot = *spots;
	plan->line = malloc(sizeof(*plan->line) * p->slots * (p->jobs + 1));
	plan->count = calloc(p->slots, sizeof(*plan->count));
	plan->open = calloc(p->jobs, p->slots);
	if (!plan->line || !plan->count || !plan->open)
		return false;
	for (int32_t job = 0; job < p->jobs; job++) {
		for (int32_t i = p->open_at[job]; i < p->open_at[job + 1]; i++)
			plan->open[(long) job * p->slots + p->open_slot[i]] = 1;
		enter(plan, job);
	}
	return true;
}

void plan_end(struct plan *plan)
{
	free(plan->line);
	free(plan->count);
	free(plan->open);
}

/* The first place in a slot's line whose key is not below this one. */
int32_t plan_index(const struct plan *plan, int32_t slot, double key)
{
	const int32_t *line = plan_line(plan, slot);
	int32_t low = 0, high = plan->count[slot];

	while (low < high) {
		int32_t middle = (low + high) / 2;

		if (plan->spot.key[line[middle]] < key)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void plan_keep(const struct plan *plan, int32_t job, struct spot *kept)
{
	kept->job = job;
	kept->key = plan->spot.key[job];
	kept->beside = plan->spot.beside[job];
	memcpy(kept->slot, plan_slots(plan, job), sizeof(*kept->slot) * plan->p->gpus[job]);
}

void plan_put(struct plan *plan, const struct spot *to)
{
	leave(plan, to->job);
	plan->spot.key[to->job] = to->key;
	plan->spot.beside[to->job] = to->beside;
	memcpy(plan_slots(plan, to->job), to->slot, sizeof(*to->slot) * plan->p->gpus[to->job]);
	enter(plan, to->job);
}
