/* SPDX-License-Identifier: Apache-2.0
 * Small changes to a plan: what the search tries next.
 */
#include <string.h>

#include "schedules.h"

/* Beside how many jobs one may start; -1 is as many as a slot holds. */
static const int32_t BESIDE[] = { -1, -1, 3, 2, 2, 1, 1, 0 };

static int32_t clamp(int32_t value, int32_t low, int32_t high)
{
	return value < low ? low : value > high ? high : value;
}

/* Different slots of one of the sets from which a job is placed, in ascending order. */
static void some_slots(const struct lines_problem *p, int32_t job, uint64_t *draw, int32_t *slots)
{
	int32_t node = p->nodes_at[job] + draw_below(draw, p->nodes_at[job + 1] - p->nodes_at[job]);
	int32_t left = p->node_at[node + 1] - p->node_at[node], wanted = p->gpus[job], found = 0;

	/* Knuth, The Art of Computer Programming 3.4.2, algorithm S */
	for (int32_t i = p->node_at[node]; found < wanted; i++, left--)
		if (draw_part(draw) * left < wanted - found)
			slots[found++] = p->node_slot[i];
}

/* To other slots, or to another place in the order, or both. */
static int move(const struct plan *plan, const struct lines_ways *ways, int32_t job, uint64_t *draw,
                struct spot *to)
{
	const struct lines_problem *p = plan->p;
	int32_t count = 0, before = 0, index, slot, open = p->open_at[job + 1] - p->open_at[job];
	double low = 0.0, high = 0.0, own = plan->spot.key[job];

	plan_keep(plan, job, to);
	if (p->gpus[job] == 1)
		to->slot[0] = p->open_slot[p->open_at[job] + draw_below(draw, open)];
	else if (draw_part(draw) < 0.5)
		some_slots(p, job, draw, to->slot);
	slot = to->slot[draw_below(draw, p->gpus[job])];

	const int32_t *line = plan_line(plan, slot);
	for (int32_t i = 0; i < plan->count[slot]; i++) {
		if (line[i] == job || line[i] >= p->movable)
			continue;
		count++;
		before += plan->spot.key[line[i]] < own;
	}
	if (count == 0) {
		to->key =
		    draw_part(draw); /* not the same for two jobs: their order would be open */
		return 1;
	}
	if (draw_part(draw) < ways->near)
		index = clamp(before + (int32_t) lrint(draw_normal(draw, ways->width)), 0, count);
	else
		index = draw_below(draw, count + 1);
	/* A key between those of the jobs before and after that place. */
	for (int32_t i = 0, number = 0; i < plan->count[slot]; i++) {
		if (line[i] == job || line[i] >= p->movable)
			continue;
		if (number == index - 1)
			low = plan->spot.key[line[i]];
		if (number == index)
			high = plan->spot.key[line[i]];
		number++;
	}
	if (index == 0)
		low = high - 1.0;
	if (index == count)
		high = low + 1.0;
	to->key = low + (high - low) * (0.1 + 0.8 * draw_part(draw));
	return 1;
}

/* A job to change places with: mostly one that starts at about the same time. */
static int32_t partner(const struct plan *plan, const struct lines_ways *ways, int32_t job,
                       uint64_t *draw)
{
	const struct lines_problem *p = plan->p;
	int32_t slot, index, other;

	if (draw_part(draw) >= ways->near)
		return draw_below(draw, p->movable);
	slot =
	    p->open_slot[p->open_at[job] + draw_below(draw, p->open_at[job + 1] - p->open_at[job])];
	if (plan->count[slot] == 0)
		return job;
	index = plan_index(plan, slot, plan->spot.key[job]);
	index += (int32_t) lrint(draw_normal(draw, ways->width));
	other = plan_line(plan, slot)[clamp(index, 0, plan->count[slot] - 1)];
	return other < p->movable ? other : job;
}

static bool fits(const struct plan *plan, int32_t job, const int32_t *slots, int32_t count)
{
	for (int32_t i = 0; i < count; i++)
		if (!plan->open[(long) job * plan->p->slots + slots[i]])
			return false;
	return true;
}

/* Two jobs change places; where they need different numbers of GPUs, in the order alone. */
static int swap(const struct plan *plan, int32_t one, int32_t two, struct spot changes[2])
{
	const int32_t *gpus = plan->p->gpus;
	const int32_t *first = plan_slots(plan, one), *second = plan_slots(plan, two);

	if (one == two)
		return 0;
	plan_keep(plan, one, &changes[0]);
	plan_keep(plan, two, &changes[1]);
	changes[0].key = plan->spot.key[two];
	changes[1].key = plan->spot.key[one];
	if (gpus[one] == gpus[two] && fits(plan, one, second, gpus[one]) &&
	    fits(plan, two, first, gpus[one])) {
		memcpy(changes[0].slot, second, sizeof(*second) * gpus[one]);
		memcpy(changes[1].slot, first, sizeof(*first) * gpus[one]);
	}
	return 2;
}

int propose(const struct plan *plan, const struct lines_ways *ways, int32_t job, uint64_t *draw,
            struct spot changes[2])
{
	double drawn = draw_part(draw);
	int32_t most, limit;

	if (drawn < ways->move)
		return move(plan, ways, job, draw, &changes[0]);
	if (drawn < ways->move + ways->swap)
		return swap(plan, job, partner(plan, ways, job, draw), changes);
	most = BESIDE[draw_below(draw, sizeof(BESIDE) / sizeof(*BESIDE))];
	limit = (plan->p->most - 1) * plan->p->gpus[job];
	most = most < 0 || most > limit ? limit : most;
	plan_keep(plan, job, &changes[0]);
	changes[0].beside = most;
	return most != plan->spot.beside[job];
}
