/* SPDX-License-Identifier: Apache-2.0
 * The schedule that a plan gives, from event to event: the hot loop of the search.
 */
#include <stdlib.h>
#include <string.h>

#include "schedules.h"

/* The world between two events. The jobs on a slot are sorted by their kinds. */
struct world {
	const struct lines_problem *p;
	struct speeds *known;
	double now;
	int32_t *position;              /* [slots]: jobs of its line that have started */
	int32_t *count, *mates, *kinds; /* [slots], [slots][jobs], [slots][jobs] */
	double *speed;                  /* [slots][jobs], as mates */
	int64_t *free_mib;              /* [slots] */
	double *wake, *last;            /* [slots]: waits for a submission; latest end */
	int32_t *running, runs;         /* jobs */
	double *ends, *pace;            /* [jobs]: when it ends at the present pace */
	int32_t *look, looks; /* slots where something may start; a slot stands there once */
	uint8_t *looked;
	int32_t *changed, changes; /* slots whose jobs are others than before */
	uint8_t *marked;
	int32_t *scratch; /* [jobs] */
	uint8_t *begun;   /* [jobs] */
};

struct world *world_begin(const struct lines_problem *p, struct speeds *known)
{
	struct world *w = calloc(1, sizeof(*w));
	size_t slots = p->slots, jobs = p->jobs + 1;

	if (!w)
		return NULL;
	w->p = p;
	w->known = known;
	w->position = malloc(sizeof(int32_t) * slots);
	w->count = malloc(sizeof(int32_t) * slots);
	w->mates = malloc(sizeof(int32_t) * slots * jobs);
	w->kinds = malloc(sizeof(int32_t) * slots * jobs);
	w->speed = malloc(sizeof(double) * slots * jobs);
	w->free_mib = malloc(sizeof(int64_t) * slots);
	w->wake = malloc(sizeof(double) * slots);
	w->last = malloc(sizeof(double) * slots);
	w->running = malloc(sizeof(int32_t) * jobs);
	w->ends = malloc(sizeof(double) * jobs);
	w->pace = malloc(sizeof(double) * jobs);
	w->look = malloc(sizeof(int32_t) * slots);
	w->looked = malloc(slots);
	w->changed = malloc(sizeof(int32_t) * slots);
	w->marked = malloc(slots);
	w->scratch = malloc(sizeof(int32_t) * jobs);
	w->begun = malloc(jobs);
	if (w->position && w->count && w->mates && w->kinds && w->speed && w->free_mib && w->wake &&
	    w->last && w->running && w->ends && w->pace && w->look && w->looked && w->changed &&
	    w->marked && w->scratch && w->begun)
		return w;
	world_end(w);
	return NULL;
}

void world_end(struct world *w)
{
	if (!w)
		return;
	void *const all[] = { w->position, w->count,  w->mates,   w->kinds,   w->speed, w->free_mib,
	                      w->wake,     w->last,   w->running, w->ends,    w->pace,  w->look,
	                      w->looked,   w->marked, w->changed, w->scratch, w->begun };
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		free(all[i]);
	free(w);
}

static void look_at(struct world *w, int32_t slot)
{
	if (!w->looked[slot]) {
		w->looked[slot] = 1;
		w->look[w->looks++] = slot;
	}
}

static void mark(struct world *w, int32_t slot)
{
	if (!w->marked[slot]) {
		w->marked[slot] = 1;
		w->changed[w->changes++] = slot;
	}
}

static void join(struct world *w, int32_t job, int32_t slot)
{
	long base = (long) slot * w->p->jobs;
	int32_t *mates = w->mates + base, *kinds = w->kinds + base;
	int32_t kind = w->p->kind[job], at = w->count[slot]++;

	for (; at > 0 && kinds[at - 1] > kind; at--) {
		mates[at] = mates[at - 1];
		kinds[at] = kinds[at - 1];
	}
	mates[at] = job;
	kinds[at] = kind;
	w->free_mib[slot] -= w->p->need[base + job];
	w->position[slot]++;
	w->wake[slot] = INFINITY;
	mark(w, slot);
}

static void part(struct world *w, int32_t job, int32_t slot)
{
	long base = (long) slot * w->p->jobs;
	int32_t *mates = w->mates + base, *kinds = w->kinds + base, at = 0;

	while (mates[at] != job)
		at++;
	w->count[slot]--;
	memmove(mates + at, mates + at + 1, sizeof(*mates) * (w->count[slot] - at));
	memmove(kinds + at, kinds + at + 1, sizeof(*kinds) * (w->count[slot] - at));
	w->free_mib[slot] += w->p->need[base + job];
	w->last[slot] = w->now;
	mark(w, slot);
	look_at(w, slot);
}

/* Whether everybody's bound on slowdown holds with one more job on a slot. */
static bool bearable(struct world *w, int32_t job, int32_t slot)
{
	const struct lines_problem *p = w->p;
	long base = (long) slot * p->jobs;
	int32_t count = w->count[slot], at = count, *kinds = w->scratch;

	memcpy(kinds, w->kinds + base, sizeof(*kinds) * count);
	for (; at > 0 && kinds[at - 1] > p->kind[job]; at--)
		kinds[at] = kinds[at - 1];
	kinds[at] = p->kind[job];
	const double *speeds = speeds_of(w->known, slot, count + 1, kinds);
	if (!speeds || p->bound[job] * speeds[at] + 1e-9 < 1.0)
		return false;
	for (int32_t i = 0; i < count; i++)
		if (p->bound[w->mates[base + i]] * speeds[i + (i >= at)] + 1e-9 < 1.0)
			return false;
	return true;
}

/* Whether the conditions let a job join those on a slot; memory is another matter. */
static bool may(struct world *w, int32_t job, int32_t slot)
{
	const struct lines_problem *p = w->p;
	const int32_t *mates = w->mates + (long) slot * p->jobs;
	double smact = p->smact[job];

	if (job >= p->movable || w->count[slot] == 0)
		return true;
	if (p->lone[job] || p->group[job] != p->group[mates[0]])
		return false;
	for (int32_t i = 0; i < w->count[slot]; i++)
		smact += p->smact[mates[i]];
	if (smact > p->budget + 1e-9)
		return false;
	return !p->bounded || bearable(w, job, slot);
}

/* Whether a job can start: it is next on all of its slots, and fits. */
static bool ready(struct world *w, const struct plan *plan, int32_t job)
{
	const struct lines_problem *p = w->p;
	int32_t gpus = p->gpus[job], beside = plan->spot.beside[job];
	const int32_t *slots = plan_slots(plan, job);

	for (int32_t i = 0; i < gpus; i++) {
		int32_t slot = slots[i], next = w->position[slot];

		if (gpus > 1 && (next >= plan->count[slot] || plan_line(plan, slot)[next] != job))
			return false;
		if (p->need[(long) slot * p->jobs + job] > w->free_mib[slot])
			return false;
		if (gpus > 1 && w->count[slot] >= p->most)
			return false;
		beside -= w->count[slot];
		if (beside < 0 || (p->ruled && !may(w, job, slot)))
			return false;
	}
	return true;
}

/* Everything that can start on the slots that are to be looked at does. */
static void start(struct world *w, const struct plan *plan, const double *run, double *start_s)
{
	const struct lines_problem *p = w->p;

	while (w->looks) {
		int32_t slot = w->look[--w->looks];

		w->looked[slot] = 0;
		while (w->position[slot] < plan->count[slot]) {
			int32_t job = plan_line(plan, slot)[w->position[slot]];

			if (p->submit[job] > w->now) {
				w->wake[slot] = p->submit[job];
				break;
			}
			if (p->after[job] >= 0 && !w->begun[p->after[job]])
				break;
			if (!ready(w, plan, job))
				break;
			for (int32_t i = 0; i < p->gpus[job]; i++) {
				int32_t one = plan_slots(plan, job)[i];

				join(w, job, one);
				if (one != slot)
					look_at(w, one);
			}
			w->begun[job] = 1;
			if (p->leads[job]) /* others waited for that alone */
				for (int32_t one = 0; one < p->slots; one++)
					look_at(w, one);
			w->pace[job] = 1.0;
			w->ends[job] = w->now + run[job];
			w->running[w->runs++] = job;
			if (start_s)
				start_s[job] = w->now;
		}
	}
}

/* A job's speed is that on the slowest of its slots. */
static double slowest(const struct world *w, const struct plan *plan, int32_t job, double speed)
{
	const int32_t *slots = plan_slots(plan, job);

	for (int32_t i = 0; i < w->p->gpus[job]; i++) {
		long base = (long) slots[i] * w->p->jobs, at = 0;

		while (w->mates[base + at] != job)
			at++;
		if (w->speed[base + at] < speed)
			speed = w->speed[base + at];
	}
	return speed;
}

/* New speeds where somebody came or went. */
static bool adjust(struct world *w, const struct plan *plan)
{
	for (int32_t c = 0; c < w->changes; c++) {
		int32_t slot = w->changed[c], count = w->count[slot];
		long base = (long) slot * w->p->jobs;

		w->marked[slot] = 0;
		if (count == 0)
			continue;
		const double *speeds = speeds_of(w->known, slot, count, w->kinds + base);
		if (!speeds)
			return false;
		memcpy(w->speed + base, speeds, sizeof(*speeds) * count);
	}
	for (int32_t c = 0; c < w->changes; c++) {
		long base = (long) w->changed[c] * w->p->jobs;

		for (int32_t i = 0; i < w->count[w->changed[c]]; i++) {
			int32_t job = w->mates[base + i];
			double speed = w->speed[base + i];

			if (w->p->gpus[job] > 1)
				speed = slowest(w, plan, job, speed);
			if (speed != w->pace[job]) {
				w->ends[job] =
				    w->now + (w->ends[job] - w->now) * w->pace[job] / speed;
				w->pace[job] = speed;
			}
		}
	}
	w->changes = 0;
	return true;
}

static void reset(struct world *w)
{
	const struct lines_problem *p = w->p;

	w->runs = w->changes = w->looks = 0;
	memset(w->begun, 0, p->jobs);
	for (int32_t slot = 0; slot < p->slots; slot++) {
		w->position[slot] = w->count[slot] = 0;
		w->free_mib[slot] = p->room[slot];
		w->wake[slot] = 0.0;
		w->last[slot] = 0.0;
		w->looked[slot] = w->marked[slot] = 0;
	}
}

bool play(struct world *w, const struct plan *plan, const double *run, struct played *played,
          double *start_s, double *end_s)
{
	const struct lines_problem *p = w->p;
	double total = 0.0;

	reset(w);
	for (;;) {
		w->now = INFINITY;
		for (int32_t slot = 0; slot < p->slots; slot++)
			if (w->wake[slot] < w->now)
				w->now = w->wake[slot];
		for (int32_t i = 0; i < w->runs; i++)
			if (w->ends[w->running[i]] < w->now)
				w->now = w->ends[w->running[i]];
		if (w->now == INFINITY)
			break;
		for (int32_t i = 0; i < w->runs; i++) {
			int32_t job = w->running[i];

			if (w->ends[job] > w->now)
				continue;
			for (int32_t k = 0; k < p->gpus[job]; k++)
				part(w, job, plan_slots(plan, job)[k]);
			total += w->now * p->weight[job];
			if (end_s)
				end_s[job] = w->now;
			w->running[i--] = w->running[--w->runs];
		}
		for (int32_t slot = 0; slot < p->slots; slot++) {
			if (w->wake[slot] <= w->now) {
				w->wake[slot] = INFINITY;
				look_at(w, slot);
			}
		}
		start(w, plan, run, start_s);
		if (!adjust(w, plan))
			return false;
	}
	played->total = total;
	played->makespan_s = played->mean_s = 0.0;
	played->latest = 0;
	for (int32_t slot = 0; slot < p->slots; slot++) {
		if (w->position[slot] < plan->count[slot])
			return false;
		played->mean_s += w->last[slot] / p->slots;
		if (w->last[slot] > played->makespan_s) {
			played->makespan_s = w->last[slot];
			played->latest = slot;
		}
	}
	return true;
}
