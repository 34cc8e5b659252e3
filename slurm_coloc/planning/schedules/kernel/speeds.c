/* SPDX-License-Identifier: Apache-2.0
 * What the model of interference said of each set of kinds: it is in Python, and asked once.
 */
#include <stdlib.h>
#include <string.h>

#include "schedules.h"

/* Sets that are remembered; all are dropped when there are more (some 20 MiB). */
#define MOST 100000

struct entry {
	uint32_t hash;
	int32_t alike, count;
	int32_t *kinds;
	double *speeds; /* kinds and speeds are one piece of memory */
};

struct speeds {
	const struct lines_problem *p;
	struct entry *table;
	uint32_t size, used; /* size is a power of two */
	bool failed;
};

static uint32_t hash_of(int32_t alike, int32_t count, const int32_t *kinds)
{
	uint32_t hash = 2166136261u ^ (uint32_t) alike;

	for (int32_t i = 0; i < count; i++)
		hash = (hash ^ (uint32_t) kinds[i]) * 16777619u;
	return hash ^ (hash >> 15);
}

struct speeds *speeds_begin(const struct lines_problem *p)
{
	struct speeds *known = calloc(1, sizeof(*known));

	if (!known)
		return NULL;
	known->p = p;
	known->size = 1024;
	known->table = calloc(known->size, sizeof(*known->table));
	if (!known->table) {
		free(known);
		return NULL;
	}
	return known;
}

static void forget(struct speeds *known)
{
	for (uint32_t i = 0; i < known->size; i++)
		free(known->table[i].speeds);
	memset(known->table, 0, sizeof(*known->table) * known->size);
	known->used = 0;
}

void speeds_end(struct speeds *known)
{
	if (!known)
		return;
	forget(known);
	free(known->table);
	free(known);
}

bool speeds_failed(const struct speeds *known)
{
	return known->failed;
}

static struct entry *place(struct entry *table, uint32_t size, uint32_t hash, int32_t alike,
                           int32_t count, const int32_t *kinds)
{
	uint32_t at = hash & (size - 1);

	for (; table[at].speeds; at = (at + 1) & (size - 1))
		if (table[at].hash == hash && table[at].alike == alike &&
		    table[at].count == count &&
		    memcmp(table[at].kinds, kinds, sizeof(*kinds) * count) == 0)
			break;
	return &table[at];
}

static bool grow(struct speeds *known)
{
	uint32_t size = known->size * 2;
	struct entry *table = calloc(size, sizeof(*table));

	if (!table)
		return false;
	for (uint32_t i = 0; i < known->size; i++) {
		const struct entry *one = &known->table[i];

		if (one->speeds)
			*place(table, size, one->hash, one->alike, one->count, one->kinds) = *one;
	}
	free(known->table);
	known->table = table;
	known->size = size;
	return true;
}

/* NULL where memory ran out or Python failed. */
const double *speeds_of(struct speeds *known, int32_t slot, int32_t count, const int32_t *kinds)
{
	int32_t alike = known->p->alike[slot];
	uint32_t hash = hash_of(alike, count, kinds);
	struct entry *found = place(known->table, known->size, hash, alike, count, kinds);

	if (found->speeds)
		return found->speeds;
	if (known->used >= MOST)
		forget(known);
	if (known->used * 2 >= known->size && !grow(known)) {
		known->failed = true;
		return NULL;
	}
	found = place(known->table, known->size, hash, alike, count, kinds);
	double *speeds = malloc((sizeof(double) + sizeof(int32_t)) * count);
	if (!speeds || known->p->ask(slot, count, kinds, speeds) != 0) {
		free(speeds);
		known->failed = true;
		return NULL;
	}
	int32_t *mine = (int32_t *) (speeds + count);
	memcpy(mine, kinds, sizeof(*kinds) * count);
	*found = (struct entry){ hash, alike, count, mine, speeds };
	known->used++;
	return speeds;
}
