/* SPDX-License-Identifier: Apache-2.0
 * The search: changes to one plan, rated by the mean over the cases of its run times.
 */
#include <stdlib.h>
#include <string.h>

#include "schedules.h"

/* What Python calls: 0, or why not. */
#define NO_MEMORY 1
#define ASK_FAILED 2
int32_t lines_anneal(const struct lines_problem *p, const struct lines_ways *ways,
                     struct lines_spots *spots, int32_t tries, uint64_t *draw, double *score,
                     double *makespan_s);
int32_t lines_times(const struct lines_problem *p, struct lines_spots *spots, double *start_s,
                    double *end_s);

struct search {
	const struct lines_problem *p;
	const struct lines_ways *ways;
	struct plan plan;
	struct speeds *known;
	struct world *world;
	struct played *now, *next; /* [cases] */
	double *rates, *nexts;     /* [cases] */
	double score;
	struct spot changes[2], before[4];
	int32_t undo;
	/* the best plan so far */
	double best_score, best_makespan_s;
	int32_t *best_slot, *best_beside;
	double *best_key;
};

static const double *run_of(const struct search *s, int32_t number)
{
	return s->p->run + (long) number * s->p->jobs;
}

/* What one case's schedule counts (s). */
static double rate(const struct search *s, const struct played *played)
{
	return played->makespan_s + s->ways->slots * played->mean_s +
	       s->ways->jobs * played->total / (s->p->jobs ? s->p->jobs : 1);
}

/* Remember the present plan where it is the best: by makespan, then by score; where run times are
 * not certain by score alone, of which the makespan is but a part.
 */
static void keep(struct search *s)
{
	const struct lines_problem *p = s->p;
	double makespan_s = 0.0;

	for (int32_t i = 0; i < p->cases; i++)
		makespan_s += s->now[i].makespan_s / p->cases;
	if (p->cases == 1 && makespan_s > s->best_makespan_s)
		return;
	if ((p->cases > 1 || makespan_s == s->best_makespan_s) && s->score >= s->best_score)
		return;
	s->best_score = s->score;
	s->best_makespan_s = makespan_s;
	memcpy(s->best_slot, s->plan.spot.slot, sizeof(int32_t) * s->plan.spot.at[p->jobs]);
	memcpy(s->best_key, s->plan.spot.key, sizeof(double) * p->jobs);
	memcpy(s->best_beside, s->plan.spot.beside, sizeof(int32_t) * p->jobs);
}

/* A job of the slot that ends last, in one of the cases, or any job. */
static int32_t pick(const struct search *s, uint64_t *draw)
{
	int32_t movable = s->p->movable;

	if (draw_part(draw) < s->ways->critical) {
		int32_t number = s->p->cases == 1 ? 0 : draw_below(draw, s->p->cases);
		int32_t slot = s->now[number].latest, count = 0;
		const int32_t *line = plan_line(&s->plan, slot);

		for (int32_t i = 0; i < s->plan.count[slot]; i++)
			count += line[i] < movable;
		if (count) {
			int32_t wanted = draw_below(draw, count);

			for (int32_t i = 0;; i++)
				if (line[i] < movable && wanted-- == 0)
					return line[i];
		}
	}
	return draw_below(draw, movable);
}

static void undo(struct search *s)
{
	while (s->undo)
		plan_put(&s->plan, &s->before[--s->undo]);
}

/* Whether the changed plan's score is not above so much; all cases are played only then. */
static bool good(struct search *s, double highest)
{
	/* What the cases may lose together: what the first ones lose already is not tried on. */
	double left = (highest - s->score) * s->p->cases;

	for (int32_t i = 0; i < s->p->cases; i++) {
		if (!play(s->world, &s->plan, run_of(s, i), &s->next[i], NULL, NULL))
			return false;
		s->nexts[i] = rate(s, &s->next[i]);
		left -= s->nexts[i] - s->rates[i];
		if (left < 0.0)
			return false;
	}
	return true;
}

static void attempt(struct search *s, double highest, uint64_t *draw)
{
	int rounds = draw_part(draw) < s->ways->twice ? 2 : 1;

	s->undo = 0;
	while (rounds--) {
		int count = propose(&s->plan, s->ways, pick(s, draw), draw, s->changes);

		for (int i = 0; i < count; i++) {
			plan_keep(&s->plan, s->changes[i].job, &s->before[s->undo++]);
			plan_put(&s->plan, &s->changes[i]);
		}
	}
	if (!s->undo)
		return;
	if (!good(s, highest)) {
		undo(s);
		return;
	}
	struct played *played = s->now;
	double *rates = s->rates;
	s->now = s->next;
	s->next = played;
	s->rates = s->nexts;
	s->nexts = rates;
	s->score = 0.0;
	for (int32_t i = 0; i < s->p->cases; i++)
		s->score += s->rates[i] / s->p->cases;
	keep(s);
}

static bool begin(struct search *s, struct lines_spots *spots)
{
	const struct lines_problem *p = s->p;
	int32_t most = 1;

	for (int32_t job = 0; job < p->jobs; job++)
		most = p->gpus[job] > most ? p->gpus[job] : most;
	s->best_score = s->best_makespan_s = INFINITY;
	s->known = speeds_begin(p);
	s->world = s->known ? world_begin(p, s->known) : NULL;
	s->now = calloc(p->cases, sizeof(*s->now));
	s->next = calloc(p->cases, sizeof(*s->next));
	s->rates = calloc(p->cases, sizeof(*s->rates));
	s->nexts = calloc(p->cases, sizeof(*s->nexts));
	s->best_slot = malloc(sizeof(int32_t) * (spots->at[p->jobs] + 1));
	s->best_key = malloc(sizeof(double) * (p->jobs + 1));
	s->best_beside = malloc(sizeof(int32_t) * (p->jobs + 1));
	bool there = plan_begin(&s->plan, p, spots) && s->world && s->now && s->next && s->rates &&
	             s->nexts && s->best_slot && s->best_key && s->best_beside;
	for (int i = 0; i < 6; i++) {
		struct spot *one = i < 2 ? &s->changes[i] : &s->before[i - 2];

		one->slot = malloc(sizeof(int32_t) * most);
		there = there && one->slot;
	}
	return there;
}

static void finish(struct search *s)
{
	world_end(s->world);
	speeds_end(s->known);
	plan_end(&s->plan);
	for (int i = 0; i < 6; i++)
		free(i < 2 ? s->changes[i].slot : s->before[i - 2].slot);
	void *const all[] = { s->now,       s->next,     s->rates,      s->nexts,
	                      s->best_slot, s->best_key, s->best_beside };
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		free(all[i]);
}

static void run(struct search *s, int32_t tries, uint64_t *draw)
{
	const struct lines_problem *p = s->p;

	for (int32_t i = 0; i < p->cases; i++) {
		if (!play(s->world, &s->plan, run_of(s, i), &s->now[i], NULL, NULL))
			s->now[i].makespan_s = s->now[i].mean_s = INFINITY;
		s->rates[i] = rate(s, &s->now[i]);
		s->score += s->rates[i] / p->cases;
	}
	keep(s);
	if (!p->movable)
		return;
	/* Where the first plan is no schedule any that is one will do. */
	double one_s = s->score < INFINITY ? s->best_makespan_s * p->slots / p->jobs : 1.0;
	double hot = s->ways->hot * one_s, cold = s->ways->cold * one_s;
	for (int32_t number = 0; number < tries && !speeds_failed(s->known); number++) {
		double warmth = hot * pow(cold / hot, (double) number / tries);

		attempt(s, s->score - warmth * log(1.0 - draw_part(draw)), draw);
	}
}

/* The best plan of so many tries, into ``spots``. */
int32_t lines_anneal(const struct lines_problem *p, const struct lines_ways *ways,
                     struct lines_spots *spots, int32_t tries, uint64_t *draw, double *score,
                     double *makespan_s)
{
	struct search s = { .p = p, .ways = ways };
	int32_t failed = NO_MEMORY;

	if (begin(&s, spots)) {
		run(&s, tries, draw);
		failed = speeds_failed(s.known) ? ASK_FAILED : 0;
		*score = s.best_score;
		*makespan_s = s.best_makespan_s;
		if (!failed && s.best_score < INFINITY) {
			memcpy(spots->slot, s.best_slot, sizeof(int32_t) * spots->at[p->jobs]);
			memcpy(spots->key, s.best_key, sizeof(double) * p->jobs);
			memcpy(spots->beside, s.best_beside, sizeof(int32_t) * p->jobs);
		}
	}
	finish(&s);
	return failed;
}

/* When each job of a plan starts and ends in the first case; INFINITY: never. */
int32_t lines_times(const struct lines_problem *p, struct lines_spots *spots, double *start_s,
                    double *end_s)
{
	struct search s = { .p = p };
	struct played played;
	int32_t failed = NO_MEMORY;

	for (int32_t job = 0; job < p->jobs; job++)
		start_s[job] = end_s[job] = INFINITY;
	if (begin(&s, spots)) {
		play(s.world, &s.plan, p->run, &played, start_s, end_s);
		failed = speeds_failed(s.known) ? ASK_FAILED : 0;
	}
	finish(&s);
	return failed;
}
