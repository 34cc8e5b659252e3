/* SPDX-License-Identifier: Apache-2.0
 * slurmstepd: the frameworks' own limits, in the task's environment.
 *
 * JAX and TensorFlow are always asked to grow, on a whole GPU too. A limit of the framework's own is the last rung: only
 * where nothing stronger holds the job. What the user set is lowered where it is above the job's
 * share, never raised. A limit that the user did not set is added only where it cannot break the
 * program: PyTorch before 2.10 fails at its import of a key that it does not know, and JAX where both
 * names of its fraction are set. So it takes a step whose program is a Python all of whose PyTorchs
 * are new enough ("known"), or the site's word ("always").
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coloc.h"

#define VALUE_MAX 4096
#define KEY "per_process_memory_fraction"
/* First release with KEY: c10/cuda/CUDAAllocatorConfig.h of 2.9.1 has none, that of 2.10.0 has. */
#define TORCH_MAJOR 2
#define TORCH_MINOR 10

static const char *const torch_vars[] = { "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", NULL };
static const char *const jax_vars[] = { "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION",
                                        NULL };

static bool value_of(spank_t spank, const char *name, char *value)
{
	return spank_getenv(spank, name, value, VALUE_MAX) == ESPANK_SUCCESS && value[0] != '\0';
}

/* The value of KEY in an allocator configuration, where it begins, NULL without it. */
static char *key_value(char *conf)
{
	char *at = conf;

	while ((at = strstr(at, KEY))) {
		bool first = at == conf || at[-1] == ',' || at[-1] == ' ';

		at += strlen(KEY);
		while (*at == ' ')
			at++;
		if (first && *at == ':')
			return at + 1;
	}
	return NULL;
}

/* Lower KEY where the user set it; whether it is there. */
static bool lower_torch(spank_t spank, const char *name, char *conf, const char *fraction)
{
	char changed[VALUE_MAX + 32];
	char *at = key_value(conf);
	char *end;

	if (!at)
		return false;
	if (strtod(at, &end) > strtod(fraction, NULL)) {
		snprintf(changed, sizeof(changed), "%.*s%s%s", (int) (at - conf), conf, fraction,
		         end);
		spank_setenv(spank, name, changed, 1);
	}
	return true;
}

static bool limit_torch(spank_t spank, const char *fraction, bool add)
{
	char changed[VALUE_MAX + 64];
	char conf[VALUE_MAX];
	bool limited = false;
	bool found = false;

	for (const char *const *name = torch_vars; *name; name++) {
		if (!value_of(spank, *name, conf))
			continue;
		found = true;
		if (lower_torch(spank, *name, conf, fraction)) {
			limited = true;
		} else if (add) {
			/* Which of the two is looked at first differs by release: both get it. */
			snprintf(changed, sizeof(changed), "%s,%s:%s", conf, KEY, fraction);
			spank_setenv(spank, *name, changed, 1);
			limited = true;
		}
	}
	if (add && !found) {
		/* This name, for either that the script sets itself then wins. */
		snprintf(changed, sizeof(changed), "%s:%s", KEY, fraction);
		limited = spank_setenv(spank, torch_vars[0], changed, 1) == ESPANK_SUCCESS;
	}
	return limited;
}

static bool limit_jax(spank_t spank, const char *fraction, bool add)
{
	char value[VALUE_MAX];
	bool found = false;

	for (const char *const *name = jax_vars; *name; name++) {
		if (!value_of(spank, *name, value))
			continue;
		found = true;
		if (strtod(value, NULL) > strtod(fraction, NULL))
			spank_setenv(spank, *name, fraction, 1);
	}
	if (found || !add)
		return found;
	return spank_setenv(spank, jax_vars[0], fraction, 0) == ESPANK_SUCCESS;
}

/* 1: new enough, 0: there is none, -1: too old or not to be understood. */
static int torch_at(const char *folder)
{
	char path[PATH_MAX + 32];
	char text[1024];
	char *at;
	char *end;
	long major;
	long minor;
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "%s/torch/version.py", folder);
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -1;
	len = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[len > 0 ? len : 0] = '\0';
	at = strstr(text, "__version__ = '");
	if (!at)
		return -1;
	at += strlen("__version__ = '");
	major = strtol(at, &end, 10);
	minor = *end == '.' ? strtol(end + 1, &end, 10) : -1;
	if (major != TORCH_MAJOR || minor != TORCH_MINOR)
		return major > TORCH_MAJOR || (major == TORCH_MAJOR && minor > TORCH_MINOR) ? 1
		                                                                            : -1;
	/* Of 2.10 the finished ones: some pre-releases were made before the key came. */
	end += strspn(end, ".0123456789");
	return *end == '+' || *end == '\'' ? 1 : -1;
}

static void tally(const char *folder, int *found)
{
	int one = *found < 0 ? 0 : torch_at(folder);

	if (one != 0)
		*found = one;
}

static void tally_all(const char *pattern, int *found)
{
	glob_t all;

	if (glob(pattern, GLOB_NOSORT, NULL, &all) == 0)
		for (size_t i = 0; i < all.gl_pathc; i++)
			tally(all.gl_pathv[i], found);
	globfree(&all);
}

/* The folders of packages beside a Python's own folder. */
static void tally_prefix(const char *python, int *found)
{
	static const char *const kinds[] = {
		"lib/python3*/site-packages",       "lib64/python3*/site-packages",
		"lib/python3*/dist-packages",       "lib/python3/dist-packages",
		"local/lib/python3*/dist-packages", NULL
	};
	char pattern[PATH_MAX + 64];
	char prefix[PATH_MAX];
	char *slash;

	snprintf(prefix, sizeof(prefix), "%s", python);
	for (int up = 0; up < 2; up++) {
		slash = strrchr(prefix, '/');
		if (!slash)
			return;
		*slash = '\0';
	}
	for (const char *const *kind = kinds; *kind; kind++) {
		snprintf(pattern, sizeof(pattern), "%s/%s", prefix, *kind);
		tally_all(pattern, found);
	}
}

/* The program of a task by its name and the task's PATH; false where it is not found. */
static bool find_program(spank_t spank, const char *name, char *out)
{
	char path[VALUE_MAX];
	char *save = NULL;

	if (strchr(name, '/')) {
		snprintf(out, PATH_MAX, "%s", name);
		return access(out, X_OK) == 0;
	}
	if (!value_of(spank, "PATH", path))
		return false;
	for (char *dir = strtok_r(path, ":", &save); dir; dir = strtok_r(NULL, ":", &save)) {
		if (snprintf(out, PATH_MAX, "%s/%s", dir, name) >= PATH_MAX)
			continue;
		if (access(out, X_OK) == 0)
			return true;
	}
	return false;
}

/* Whether the task's program is a Python, and every PyTorch that it might import takes KEY. */
static bool torch_is_known(spank_t spank)
{
	char program[PATH_MAX];
	char real[PATH_MAX];
	char value[VALUE_MAX];
	char pattern[VALUE_MAX + 64];
	char **argv = NULL;
	char *save = NULL;
	const char *name;
	int argc = 0;
	int found = 0;

	if (spank_get_item(spank, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS || argc < 1 || !argv)
		return false;
	name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
	if (strncmp(name, "python", 6) != 0 || name[6 + strspn(name + 6, ".0123456789")] != '\0' ||
	    !find_program(spank, argv[0], program))
		return false;
	tally_prefix(program, &found);
	if (realpath(program, real))
		tally_prefix(real, &found);
	if (value_of(spank, "HOME", value)) {
		snprintf(pattern, sizeof(pattern), "%s/.local/lib/python3*/site-packages", value);
		tally_all(pattern, &found);
	}
	if (value_of(spank, "PYTHONPATH", value))
		for (char *dir = strtok_r(value, ":", &save); dir; dir = strtok_r(NULL, ":", &save))
			tally(dir, &found);
	return found > 0;
}

void coloc_frameworks_grow(spank_t spank)
{
	spank_setenv(spank, "XLA_PYTHON_CLIENT_PREALLOCATE", "false", 0);
	spank_setenv(spank, "TF_FORCE_GPU_ALLOW_GROWTH", "true", 0);
}

bool coloc_frameworks_limit(spank_t spank, const char *mode, long limit_mib, long gpu_mib)
{
	bool always = strcmp(mode, "always") == 0;
	char fraction[24];
	long parts;
	bool torch;

	if (strcmp(mode, "off") == 0 || mode[0] == '\0' || limit_mib <= 0 || gpu_mib <= limit_mib)
		return false;
	/* Rounded down; neither framework takes a fraction of 0. */
	parts = limit_mib * 10000 / gpu_mib;
	snprintf(fraction, sizeof(fraction), "0.%04ld", parts > 0 ? parts : 1);
	torch = limit_torch(spank, fraction, always || torch_is_known(spank));
	return limit_jax(spank, fraction, always) || torch;
}
