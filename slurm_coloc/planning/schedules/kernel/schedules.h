/* SPDX-License-Identifier: Apache-2.0
 * Simulated annealing over plans (../plan.py, ../anneal.py). Python fills the structures below
 * (../native.py) and answers how fast jobs are beside each other; everything else is here, because
 * a plan is tried a million times.
 */
#ifndef COLOC_LINES_H
#define COLOC_LINES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* Speeds of jobs of these kinds (sorted) beside each other on a slot; not 0: it failed. */
typedef int32_t (*lines_ask)(int32_t slot, int32_t count, const int32_t *kinds, double *speeds);

/* planning/schedules/problem.py in arrays. Lists of lists stand in two arrays: those of number i are at
 * at[i] .. at[i + 1] - 1 of the other.
 */
struct lines_problem {
	int32_t jobs, movable, slots, most, cases, ruled, bounded;
	double budget;
	const int32_t *gpus, *kind, *group; /* [jobs] */
	const int32_t *after;               /* [jobs]: the job that starts before it; -1: none */
	const uint8_t *lone, *leads;        /* leads: some job starts after it */
	const double *submit, *weight, *smact, *bound;
	const double *run;                  /* [cases][jobs], seconds alone */
	const int64_t *room;                /* [slots], MiB */
	const int64_t *need;                /* [slots][jobs], MiB */
	const int32_t *alike;               /* [slots]: slots of one number are alike */
	const int32_t *open_at, *open_slot; /* of each job: slots where it can be */
	const int32_t *nodes_at;            /* of each job: sets from which it is placed */
	const int32_t *node_at, *node_slot; /* of each such set: slots */
	lines_ask ask;
};

/* Spots of all jobs; the slots of job i are at[i] .. at[i + 1] - 1 of slot, gpus[i] of them. */
struct lines_spots {
	const int32_t *at;
	int32_t *slot;
	double *key;
	int32_t *beside;
};

/* Weights of what is minimised, and how often what is tried. */
struct lines_ways {
	double slots, jobs, critical, twice, hot, cold, move, swap, near, width;
};

/* draw.c: SplitMix64, as core/draw.py */
uint64_t draw_next(uint64_t *state);
double draw_part(uint64_t *state);
int32_t draw_below(uint64_t *state, int32_t bound);
double draw_normal(uint64_t *state, double sigma);

/* plan.c: spots, and the line of each slot that follows from them */
struct plan {
	const struct lines_problem *p;
	struct lines_spots spot;
	int32_t *line, *count; /* [slots][jobs], [slots] */
	uint8_t *open;         /* [jobs][slots] */
};

/* A spot apart from a plan: what it was before a change. */
struct spot {
	int32_t job, beside, *slot;
	double key;
};

bool plan_begin(struct plan *plan, const struct lines_problem *p, const struct lines_spots *spots);
void plan_end(struct plan *plan);
void plan_keep(const struct plan *plan, int32_t job, struct spot *kept);
void plan_put(struct plan *plan, const struct spot *to);
int32_t plan_index(const struct plan *plan, int32_t slot, double key);

static inline int32_t *plan_line(const struct plan *plan, int32_t slot)
{
	return plan->line + (long) slot * plan->p->jobs;
}

static inline int32_t *plan_slots(const struct plan *plan, int32_t job)
{
	return plan->spot.slot + plan->spot.at[job];
}

/* moves.c: the spots of one or two jobs that a change gives them (0: no change) */
int propose(const struct plan *plan, const struct lines_ways *ways, int32_t job, uint64_t *draw,
            struct spot changes[2]);

/* speeds.c: what was asked, remembered */
struct speeds;
struct speeds *speeds_begin(const struct lines_problem *p);
void speeds_end(struct speeds *known);
const double *speeds_of(struct speeds *known, int32_t slot, int32_t count, const int32_t *kinds);
bool speeds_failed(const struct speeds *known);

/* play.c: the schedule that a plan gives */
struct world;
struct played {
	double makespan_s, mean_s, total; /* latest and mean last end of the slots; sum of ends */
	int32_t latest;                   /* the slot that ends last */
};
struct world *world_begin(const struct lines_problem *p, struct speeds *known);
void world_end(struct world *world);
/* start_s and end_s: of each job, or NULL. False where a job never starts. */
bool play(struct world *world, const struct plan *plan, const double *run, struct played *played,
          double *start_s, double *end_s);

#endif
