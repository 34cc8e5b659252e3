/* SPDX-License-Identifier: Apache-2.0
 * Unit tests of limit.c with programs that answer as `coloc fence` does or does not, and of
 * frameworks.c on real folders; run by unit.c in an empty folder.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <slurm/slurm.h>

#include "fake_spank.h"
#include "unit.h"

/* Whether the limit is held after this program has run for one step. */
static bool held_by(const char *script)
{
	char path[PATH_MAX];
	char here[PATH_MAX / 2];

	put("limiter", script, strlen(script));
	CHECK(chmod("limiter", 0755) == 0);
	CHECK(getcwd(here, sizeof(here)) != NULL);
	snprintf(path, sizeof(path), "%s/limiter", here);
	coloc_limit_prepare(7, path, "/etc/c.toml");
	CHECK(!coloc_limit_held());
	coloc_limit_set(NULL);
	return coloc_limit_held();
}

void test_limit(void)
{
	time_t began;

	fake_job = (struct fake_job){ .id = 7, .pid = 4711 };
	CHECK(held_by("#!/bin/sh\n[ \"$*\" = 'fence 7 4711' ] && [ $COLOC_CONFIG = /etc/c.toml ] &&"
	              " echo cgroup 4096\n"));
	/* The environment of slurmstepd, which is the user's in part, does not reach it. */
	setenv("LD_PRELOAD_", "x", 1);
	CHECK(held_by("#!/bin/sh\n[ -z \"$LD_PRELOAD_\" ] && echo cgroup 1\n"));
	unsetenv("LD_PRELOAD_");
	CHECK(!held_by("#!/bin/sh\necho cgroup 4096; exit 5\n"));
	CHECK(!held_by("#!/bin/sh\necho error=nvml no >&2\n"));
	CHECK(!held_by("#!/bin/sh\nkill -9 $$\n"));
	/* Endless answers have no room, and one that hangs is not waited for. */
	CHECK(held_by("#!/bin/sh\necho cgroup 1; head -c 300000 /dev/zero | tr '\\0' x\n"));
	began = time(NULL);
	CHECK(!held_by("#!/bin/sh\necho cgroup 1; exec sleep 60\n"));
	CHECK(time(NULL) - began <= 6);
	/* One that closes its output and stays, as one that the driver holds: not waited for. */
	began = time(NULL);
	CHECK(!held_by("#!/bin/sh\necho cgroup 1; exec >/dev/null 2>&1; exec sleep 30\n"));
	CHECK(time(NULL) - began <= 6);

	/* Nothing wanted, no absolute path, no room: nothing is started. */
	coloc_limit_prepare(7, "", "");
	coloc_limit_set(NULL);
	CHECK(!coloc_limit_held());
	coloc_limit_prepare(7, "limiter", "");
	coloc_limit_set(NULL);
	CHECK(!coloc_limit_held());
}

static void torch(const char *prefix, const char *version)
{
	char path[512];
	char text[128];

	snprintf(path, sizeof(path), "mkdir -p %s/bin %s/lib/python3.11/site-packages/torch",
	         prefix, prefix);
	CHECK(system(path) == 0);
	snprintf(path, sizeof(path), "%s/bin/python", prefix);
	put(path, "", 0);
	CHECK(chmod(path, 0755) == 0);
	snprintf(path, sizeof(path), "%s/lib/python3.11/site-packages/torch/version.py", prefix);
	snprintf(text, sizeof(text), "import x\n__version__ = '%s'\ndebug = False\n", version);
	put(path, text, strlen(text));
}

static bool has(const char *name, const char *value)
{
	const char *found = fake_task_env(name);

	return found && value ? strcmp(found, value) == 0 : found == value;
}

/* A limit of 10 of 40 GiB, in a task that begins with these variables (name, value, ..., NULL). */
static bool limited(const char *mode, const char *const *env)
{
	fake_task_clear();
	spank_setenv(NULL, "HOME", "home", 1);
	for (; *env; env += 2)
		spank_setenv(NULL, env[0], env[1], 1);
	return coloc_frameworks_limit(NULL, mode, 10240, 40960);
}

#define ENV(...) ((const char *const[]){ __VA_ARGS__ __VA_OPT__(, ) NULL })
#define CONF "PYTORCH_ALLOC_CONF"
#define OLD_CONF "PYTORCH_CUDA_ALLOC_CONF"
#define KEY "per_process_memory_fraction"

static bool torch_is_limited(const char *version)
{
	torch("env", version);
	return limited("known", ENV()) && has(CONF, KEY ":0.2500");
}

void test_frameworks(void)
{
	char *python[] = { "env/bin/python", "train.py", NULL };
	char *named[] = { "python", "train.py", NULL };
	char *other[] = { "/bin/sh", "train.sh", NULL };

	fake_job = (struct fake_job){ .id = 7, .argv = python };
	CHECK(torch_is_limited("2.10.0+cu128") && torch_is_limited("2.11.0a0+git1234"));
	CHECK(torch_is_limited("2.10.1") && torch_is_limited("3.0.0"));
	CHECK(!torch_is_limited("2.9.1+cu128") && has(CONF, NULL));
	CHECK(!torch_is_limited("2.10.0a0+b4e4ee8") && !torch_is_limited("2.10.0.dev2") &&
	      !torch_is_limited("1.13.1") && !torch_is_limited("") && !torch_is_limited("2"));

	/* What the user has said stays, and is lowered where it is above. */
	torch("env", "2.10.0");
	CHECK(limited("known", ENV(OLD_CONF, "expandable_segments:True")));
	CHECK(has(OLD_CONF, "expandable_segments:True," KEY ":0.2500") && has(CONF, NULL));
	CHECK(limited("known", ENV(OLD_CONF, KEY ":0.1,expandable_segments:True")));
	CHECK(has(OLD_CONF, KEY ":0.1,expandable_segments:True"));
	CHECK(limited("known", ENV(CONF, "a:[1,2], " KEY " :0.9,b:1")));
	CHECK(has(CONF, "a:[1,2], " KEY " :0.2500,b:1"));
	CHECK(limited("known", ENV(CONF, "not_" KEY ":0.1")));
	CHECK(has(CONF, "not_" KEY ":0.1," KEY ":0.2500"));

	/* An older one beside it, which the program might import. */
	torch("home/.local", "2.8.0");
	CHECK(!limited("known", ENV()));
	CHECK(unlink("home/.local/lib/python3.11/site-packages/torch/version.py") == 0);
	CHECK(limited("known", ENV()));
	CHECK(limited("known", ENV("PYTHONPATH", "x:old/lib/python3.11/site-packages")));
	torch("old", "2.2.0");
	CHECK(!limited("known", ENV("PYTHONPATH", "x:old/lib/python3.11/site-packages")));

	fake_job.argv = named;
	CHECK(limited("known", ENV("PATH", "/nowhere:env/bin")));
	CHECK(!limited("known", ENV("PATH", "/nowhere:old/bin")));
	CHECK(!limited("known", ENV()));

	/* Another program: nothing is added, but what is there is lowered. */
	fake_job.argv = other;
	CHECK(!limited("known", ENV(OLD_CONF, "expandable_segments:True")));
	CHECK(has(OLD_CONF, "expandable_segments:True"));
	CHECK(limited("known", ENV("XLA_CLIENT_MEM_FRACTION", "0.9")));
	CHECK(has("XLA_CLIENT_MEM_FRACTION", "0.2500") &&
	      has("XLA_PYTHON_CLIENT_MEM_FRACTION", NULL));
	CHECK(limited("known", ENV("XLA_PYTHON_CLIENT_MEM_FRACTION", ".05")));
	CHECK(has("XLA_PYTHON_CLIENT_MEM_FRACTION", ".05"));
	CHECK(limited("always", ENV()) && has(CONF, KEY ":0.2500"));
	CHECK(has("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.2500"));
	CHECK(!limited("off", ENV("XLA_CLIENT_MEM_FRACTION", "0.9")));
	CHECK(has("XLA_CLIENT_MEM_FRACTION", "0.9"));
	CHECK(!coloc_frameworks_limit(NULL, "always", 40960, 40960));
}
