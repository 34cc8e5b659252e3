/* SPDX-License-Identifier: Apache-2.0
 *
 * PyTorch's caching allocator played over a list of allocations and frees: the rules of
 * ../allocator.py where PYTORCH_CUDA_ALLOC_CONF says nothing and memory has no limit. That file
 * says where the rules are from and handles all other cases; the tests hold the two together.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define KIB INT64_C(1024)
#define MIB (KIB * KIB)
#define ROUND INT64_C(512)
#define SMALL MIB
#define SMALL_SEGMENT (2 * MIB)
#define MEDIUM (10 * MIB)
#define MEDIUM_SEGMENT (20 * MIB)
#define LARGE_ROUND (2 * MIB)
/* No sum of what is reserved leaves 63 bits below this: larger is not played here. */
#define LARGEST (INT64_C(1) << 60)

enum { DONE = 0, NO_MEMORY = 1, TOO_LARGE = 2, NOT_THERE = 3 };

/* Blocks of one segment are linked in the order of their addresses. */
struct block {
	int64_t size, start;
	int32_t before, after; /* -1: the segment ends */
	bool used, small;
};

struct pool {
	int32_t *free; /* blocks by (size, start) */
	int32_t count, room;
};

struct gpu {
	struct block *blocks;
	int32_t count, room;
	int32_t unused; /* blocks that merged away, linked by ``after``; -1: none */
	struct pool small, large;
	int64_t next_start;
	int64_t reserved, allocated, most_allocated;
};

static bool less(const struct gpu *g, int32_t a, int64_t size, int64_t start)
{
	const struct block *b = &g->blocks[a];

	return b->size < size || (b->size == size && b->start < start);
}

/* The first place in the pool that is not before (size, start). */
static int32_t find(const struct gpu *g, const struct pool *pool, int64_t size, int64_t start)
{
	int32_t low = 0, high = pool->count;

	while (low < high) {
		int32_t middle = low + (high - low) / 2;

		if (less(g, pool->free[middle], size, start))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void take_out(struct pool *pool, int32_t place)
{
	pool->count--;
	memmove(&pool->free[place], &pool->free[place + 1],
	        sizeof(*pool->free) * (size_t) (pool->count - place));
}

static bool put_in(struct gpu *g, struct pool *pool, int32_t block)
{
	if (pool->count == pool->room) {
		int32_t room = pool->room ? 2 * pool->room : 256;
		int32_t *more = realloc(pool->free, sizeof(*more) * (size_t) room);

		if (!more)
			return false;
		pool->free = more;
		pool->room = room;
	}
	int32_t place = find(g, pool, g->blocks[block].size, g->blocks[block].start);

	memmove(&pool->free[place + 1], &pool->free[place],
	        sizeof(*pool->free) * (size_t) (pool->count - place));
	pool->free[place] = block;
	pool->count++;
	return true;
}

static int32_t new_block(struct gpu *g)
{
	if (g->unused >= 0) {
		int32_t found = g->unused;

		g->unused = g->blocks[found].after;
		return found;
	}
	if (g->count == g->room) {
		int32_t room = g->room ? 2 * g->room : 1024;
		struct block *more = realloc(g->blocks, sizeof(*more) * (size_t) room);

		if (!more)
			return -1;
		g->blocks = more;
		g->room = room;
	}
	return g->count++;
}

static void forget(struct gpu *g, int32_t block)
{
	g->blocks[block].after = g->unused;
	g->unused = block;
}

static int32_t segment(struct gpu *g, bool small, int64_t size)
{
	int32_t block = new_block(g);
	int64_t length = small ? SMALL_SEGMENT : MEDIUM_SEGMENT;

	if (!small && size >= MEDIUM)
		length = (size + LARGE_ROUND - 1) / LARGE_ROUND * LARGE_ROUND;
	if (block < 0)
		return -1;
	g->blocks[block] = (struct block){
		.size = length,
		.start = g->next_start,
		.before = -1,
		.after = -1,
		.small = small,
	};
	g->next_start += length;
	g->reserved += length;
	return block;
}

/* The block for ``size`` bytes; -1 where this process has no memory left. */
static int32_t allocate(struct gpu *g, int64_t size)
{
	size = (size + ROUND - 1) / ROUND * ROUND;
	bool small = size <= SMALL;
	struct pool *pool = small ? &g->small : &g->large;
	int32_t place = find(g, pool, size, -1), block;

	if (place < pool->count) {
		block = pool->free[place];
		take_out(pool, place);
	} else {
		block = segment(g, small, size);
		if (block < 0)
			return -1;
	}
	int64_t rest = g->blocks[block].size - size;

	if (small ? rest >= ROUND : rest > SMALL) {
		int32_t other = new_block(g);

		if (other < 0)
			return -1;
		struct block *b = &g->blocks[block];

		g->blocks[other] = (struct block){
			.size = rest,
			.start = b->start + size,
			.before = block,
			.after = b->after,
			.small = small,
		};
		if (b->after >= 0)
			g->blocks[b->after].before = other;
		b->after = other;
		b->size = size;
		if (!put_in(g, pool, other))
			return -1;
	}
	g->blocks[block].used = true;
	g->allocated += g->blocks[block].size;
	if (g->allocated > g->most_allocated)
		g->most_allocated = g->allocated;
	return block;
}

/* ``block`` swallows the one after it, which is in no pool any more. */
static void merge(struct gpu *g, int32_t block)
{
	struct block *b = &g->blocks[block];
	int32_t gone = b->after;

	b->size += g->blocks[gone].size;
	b->after = g->blocks[gone].after;
	if (b->after >= 0)
		g->blocks[b->after].before = block;
	forget(g, gone);
}

static bool release(struct gpu *g, int32_t block)
{
	struct pool *pool = g->blocks[block].small ? &g->small : &g->large;
	int32_t before = g->blocks[block].before, after = g->blocks[block].after;

	g->allocated -= g->blocks[block].size;
	g->blocks[block].used = false;
	if (after >= 0 && !g->blocks[after].used) {
		take_out(pool, find(g, pool, g->blocks[after].size, g->blocks[after].start));
		merge(g, block);
	}
	if (before >= 0 && !g->blocks[before].used) {
		take_out(pool, find(g, pool, g->blocks[before].size, g->blocks[before].start));
		merge(g, before);
		block = before;
	}
	return put_in(g, pool, block);
}

static int32_t play(struct gpu *g, int32_t *where, const int64_t *events, int64_t number,
                    int64_t *bad)
{
	int64_t made = 0;

	for (int64_t i = 0; i < number; i++) {
		int64_t event = events[i];

		*bad = i;
		if (event >= 0) {
			if (event > LARGEST || g->reserved > LARGEST)
				return TOO_LARGE;
			where[made] = event ? allocate(g, event) : INT32_MAX;
			if (where[made] < 0)
				return NO_MEMORY;
			made++;
			continue;
		}
		int64_t index = -1 - event;

		if (index >= made || where[index] < 0)
			return NOT_THERE;
		if (where[index] != INT32_MAX && !release(g, where[index]))
			return NO_MEMORY;
		where[index] = -1;
	}
	return DONE;
}

/*
 * Play ``number`` events (see replay() in allocator.py). ``reserved``, ``allocated``: bytes at their
 * highest. ``bad``: the event at which it ended where the answer is not DONE.
 */
int32_t allocator_replay(const int64_t *events, int64_t number, int64_t *reserved,
                         int64_t *allocated, int64_t *bad)
{
	struct gpu g = { .unused = -1 };
	int32_t *where = malloc(sizeof(*where) * (size_t) (number + 1));
	int32_t result =
	    where && number < INT32_MAX / 2 ? play(&g, where, events, number, bad) : NO_MEMORY;

	*reserved = g.reserved;
	*allocated = g.most_allocated;
	free(where);
	free(g.blocks);
	free(g.small.free);
	free(g.large.free);
	return result;
}
