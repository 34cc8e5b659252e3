/* SPDX-License-Identifier: Apache-2.0
 * A SPANK plugin of a hostile user: sets variables of any length in slurmctld. Its arguments in
 * plugstack.conf: NAME=BYTES, filled with bytes that are no text.
 */
#include <slurm/spank.h>
#include <stdlib.h>
#include <string.h>

SPANK_PLUGIN(flood, 1)

int slurm_spank_init_post_opt(spank_t spank, int ac, char *argv[])
{
	if (spank_context() != S_CTX_ALLOCATOR)
		return 0;
	for (int i = 0; i < ac; i++) {
		char *equals = strchr(argv[i], '=');
		size_t size = equals ? strtoul(equals + 1, NULL, 10) : 0;
		char *value = malloc(size + 1);

		if (!equals || !value)
			return -1;
		*equals = '\0';
		memset(value, 0xff, size);
		value[size] = '\0';
		if (spank_job_control_setenv(spank, argv[i], value, 1) != ESPANK_SUCCESS)
			return -1;
		free(value);
		*equals = '=';
	}
	return 0;
}
