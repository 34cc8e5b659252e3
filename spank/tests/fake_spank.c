/* SPDX-License-Identifier: Apache-2.0
 * The three functions of Slurm that the files under test name but never call in the unit test:
 * options.c registers its table through them. Everything that acts through Slurm is tested in
 * a real one (tests/cluster).
 */
#include "coloc.h"

const char *spank_strerror(spank_err_t err)
{
	(void) err;
	return "no Slurm here";
}

spank_err_t spank_option_register(spank_t spank, struct spank_option *opt)
{
	(void) spank;
	(void) opt;
	return ESPANK_NOT_AVAIL;
}

void slurm_error(const char *format, ...)
{
	(void) format;
}
