/* SPDX-License-Identifier: Apache-2.0
 * The numbers of core/draw.py: one seed gives the same ones here and there.
 */
#include "schedules.h"

#define TWO_PI 6.283185307179586

uint64_t draw_next(uint64_t *state)
{
	uint64_t mixed = *state += UINT64_C(0x9E3779B97F4A7C15);

	mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
	return mixed ^ (mixed >> 31);
}

double draw_part(uint64_t *state)
{
	return (double) (draw_next(state) >> 11) * 0x1p-53;
}

int32_t draw_below(uint64_t *state, int32_t bound)
{
	return (int32_t) (draw_next(state) % (uint64_t) bound);
}

double draw_normal(uint64_t *state, double sigma)
{
	double radius = sqrt(-2.0 * log(1.0 - draw_part(state)));

	return sigma * radius * cos(TWO_PI * draw_part(state));
}
