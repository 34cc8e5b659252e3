/* SPDX-License-Identifier: Apache-2.0
 * A SPANK plugin of a hostile user: sets variables of any length in slurmctld. Its arguments in
 * plugstack.conf: NAME=BYTES, filled with bytes that are no text, and NAME:VALUE.
 */
#include <slurm/spank.h>
#include <stdlib.h>
#include <string.h>

SPANK_PLUGIN(flood, 1)

static spank_err_t fill(spank_t spank, const char *name, size_t size)
{
	char *value = malloc(size + 1);
	spank_err_t err = ESPANK_NOSPACE;

	if (value) {
		memset(value, 0xff, size);
		value[size] = '\0';
		err = spank_job_control_setenv(spank, name, value, 1);
	}
	free(value);
	return err;
}

int slurm_spank_init_post_opt(spank_t spank, int ac, char *argv[])
{
	if (spank_context() != S_CTX_ALLOCATOR)
		return 0;
	for (int i = 0; i < ac; i++) {
		char *name = strdup(argv[i]);
		char *mark = name ? strpbrk(name, "=:") : NULL;
		spank_err_t err = ESPANK_BAD_ARG;

		if (mark) {
			char kind = *mark;

			*mark = '\0';
			err = kind == '=' ? fill(spank, name, strtoul(mark + 1, NULL, 10))
			                  : spank_job_control_setenv(spank, name, mark + 1, 1);
		}
		free(name);
		if (err != ESPANK_SUCCESS)
			return -1;
	}
	return 0;
}
