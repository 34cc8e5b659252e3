/* SPDX-License-Identifier: Apache-2.0
 * Unit tests of fence.c on real files; run by unit.c in an empty folder, after unit_note.c.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <slurm/slurm.h>

#include "fake_spank.h"
#include "unit.h"

#define MPS "share 1\nmethod mps\nshard_mib 1024\nuuid GPU-a\ngpu_mib 40960\npipe pipe\nlog log\n"

/* What the plugin says in the job's output, kept in a file. */
static char said[512];

static long gpus = 1;    /* of the step */
static const char *kind; /* what submitted the job */

static void join(const char *text, long shards)
{
	struct coloc_args args = { .run_dir = "n1/jobs" };
	int kept = dup(STDERR_FILENO);
	int file = open("said", O_RDWR | O_CREAT | O_TRUNC, 0600);
	ssize_t len;

	fake_task_clear();
	unlink("n1/jobs/7.share");
	if (text)
		put("n1/jobs/7.share", text, strlen(text));
	chmod("n1/jobs/7.share", 0644);
	if (kind)
		spank_setenv(NULL, "SLURM_SPANK_COLOC_KIND", kind, 1);
	coloc_fence_read(NULL, &args);
	dup2(file, STDERR_FILENO);
	coloc_fence_join(NULL, shards, gpus);
	dup2(kept, STDERR_FILENO);
	close(kept);
	len = pread(file, said, sizeof(said) - 1, 0);
	said[len > 0 ? len : 0] = '\0';
	close(file);
}

/* The same in a task whose user has set a thread share. */
static bool threads_after(const char *own, const char *expected)
{
	struct coloc_args args = { .run_dir = "n1/jobs" };

	join(MPS "threads 40\n", 11);
	fake_task_clear();
	coloc_fence_read(NULL, &args);
	spank_setenv(NULL, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", own, 1);
	coloc_fence_join(NULL, 11, 1);
	return strcmp(fake_task_env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), expected) == 0;
}

static bool has(const char *name, const char *value)
{
	const char *found = fake_task_env(name);

	return found && value ? strcmp(found, value) == 0 : found == value;
}

#define LIMIT "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"

#define TASKS                                                                                      \
	"share 1\nmethod streams\nshard_mib 1024\ngpu_mib 40960\ntask 3 GPU-d m3\ntask 1 GPU-b "   \
	"m1\n"                                                                                     \
	"why there are several\n"

#define NUMBERED                                                                                   \
	"share 1\nmethod streams\nshard_mib 1024\ngpu_mib 40960\ntask 1 GPU-b m1 0\n"              \
	"task 3 GPU-d m3 1\n"

/* Whether a task of a step on both GPUs, with this CUDA_VISIBLE_DEVICES, is a client of `uuid`. */
static bool client_of(const char *visible, const char *uuid)
{
	fake_task_clear();
	coloc_fence_read(NULL, &(struct coloc_args){ .run_dir = "n1/jobs" });
	spank_setenv(NULL, "CUDA_VISIBLE_DEVICES", visible, 1);
	coloc_fence_join(NULL, 22, 2);
	if (!uuid)
		return has(LIMIT, NULL) && has("CUDA_VISIBLE_DEVICES", visible);
	return has(LIMIT, "0=11264M") && has("CUDA_VISIBLE_DEVICES", uuid);
}

static void own_gpu(void)
{
	fake_job.step = 0;
	fake_job.tasks = 2;
	mkdir("dev", 0755);
	mkdir("m1", 0755);
	mkdir("m1/pipe", 0755);
	mkdir("m3", 0755);
	mkdir("m3/pipe", 0755);
	put("m1/pipe/control", "", 0);
	put("m3/pipe/control", "", 0);
	put("n1/jobs/7.share", TASKS, strlen(TASKS));
	chmod("n1/jobs/7.share", 0644);
	CHECK(client_of("0", NULL)); /* no device can be opened, and a number says nothing */
	CHECK(client_of("GPU-b", "GPU-b"));
	put("dev/nvidia3", "", 0);
	CHECK(client_of("0", "GPU-d") && has("CUDA_MPS_PIPE_DIRECTORY", "m3/pipe"));
	put("dev/nvidia1", "", 0);
	CHECK(client_of("1", "GPU-b") && has("CUDA_MPS_LOG_DIRECTORY", "m1/log"));
	CHECK(client_of("3", "GPU-d") && client_of("0", NULL) && client_of("1,3", NULL));
	/* Where gres.conf leaves a card out, Slurm calls it by another number than its file has. */
	put("n1/jobs/7.share", NUMBERED, strlen(NUMBERED));
	CHECK(client_of("0", "GPU-b") && client_of("1", "GPU-d") && client_of("3", NULL));
	put("n1/jobs/7.share", TASKS, strlen(TASKS));
	unlink("m1/pipe/control");
	CHECK(client_of("1", NULL));
	fake_job.step = SLURM_BATCH_SCRIPT;
}

void test_fence(void)
{
	CHECK(mkdir("pipe", 0755) == 0);
	put("pipe/control", "", 0);
	fake_job = (struct fake_job){ .id = 7, .step = SLURM_BATCH_SCRIPT, .tasks = 4 };

	join(MPS, 11);
	CHECK(has("CUDA_MPS_PIPE_DIRECTORY", "pipe") && has("CUDA_VISIBLE_DEVICES", "GPU-a"));
	CHECK(has(LIMIT, "0=11264M") && has("TF_FORCE_GPU_ALLOW_GROWTH", "true"));
	CHECK(has("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", NULL));
	CHECK(strcmp(said, "coloc: 40 GiB GPU, 11.0 GiB for this job (MPS, not read back)\n") == 0);
	join(MPS "limit 11264\n", 11);
	CHECK(strcmp(said, "coloc: 40 GiB GPU, 11.0 GiB for this job (MPS)\n") == 0);
	join(MPS "limit 20480\n", 11);
	CHECK(strstr(said, "11.0 GiB for this job (MPS; its server allows a process 20.0 GiB)\n"));

	/* Absurd numbers in root's file: no overflow, and nothing is set. */
	join("share 1\nmethod mps\npipe pipe\nshard_mib 9223372036854775807\n", 11);
	CHECK(has(LIMIT, NULL) && said[0] == '\0');
	join("share 1\nmethod mps\npipe pipe\nshard_mib -5\n", 11);
	CHECK(has(LIMIT, NULL));
	join(MPS "shard_mib 16777216\n", 16777216);
	CHECK(has(LIMIT, "0=281474976710656M"));
	join(MPS, 9223372036854775807);
	CHECK(has(LIMIT, NULL));

	/* A GPU of which nothing is known: the job is told all the same. */
	join("share 1\nmethod streams\nshard_mib 1024\nwhy x\n", 2);
	CHECK(strcmp(said, "coloc: 2.0 GiB for this job, not fenced: no MPS, x\n") == 0);

	/* The tasks of a step share the memory; the batch script says so, or the first step of srun
	 * and salloc. */
	fake_job.step = 0;
	join(MPS, 11);
	CHECK(strstr(said, "11.0 GiB for this job"));
	kind = "salloc";
	join(MPS, 11);
	CHECK(strcmp(said, "coloc: 40 GiB GPU, 11.0 GiB for this job (MPS, not read back)\n") == 0);
	fake_job.step = 1;
	join(MPS, 11);
	CHECK(said[0] == '\0');
	fake_job.step = 0;
	kind = "batch";
	join(MPS "threads 40\n", 11);
	CHECK(has(LIMIT, "0=2816M") && has("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "40"));
	CHECK(said[0] == '\0');
	CHECK(threads_after("20", "20") && threads_after("12.5", "12.5"));
	CHECK(threads_after("90", "40") && threads_after("", "40") && threads_after("-1", "40"));
	fake_job.step = SLURM_BATCH_SCRIPT;

	/* Not seen from inside of the job: the Epilog must not take it for fenced. */
	CHECK(text_is("n1/jobs/7.nomps", ""));
	CHECK(rename("pipe", "away") == 0);
	join(MPS, 11);
	CHECK(text_is("n1/jobs/7.nomps", "the MPS pipe cannot be seen from inside of the job\n"));
	CHECK(has("CUDA_MPS_PIPE_DIRECTORY", NULL) && has("CUDA_VISIBLE_DEVICES", NULL));
	CHECK(strstr(said, "not fenced") && strstr(said, "cannot be seen"));
	fake_job.step = 0;
	join(MPS, 11); /* a second task says no more, a step after it takes nothing back */
	CHECK(text_is("n1/jobs/7.nomps", "the MPS pipe cannot be seen from inside of the job\n"));
	fake_job.step = SLURM_BATCH_SCRIPT;
	CHECK(rename("away", "pipe") == 0);
	join(MPS, 11); /* the next run of the job */
	CHECK(text_is("n1/jobs/7.nomps", ""));

	/* A whole GPU of ours is measured: JAX and TensorFlow must not take most of it at once. */
	join("share 1\nmethod alone\n", 0);
	CHECK(has("XLA_PYTHON_CLIENT_PREALLOCATE", "false"));
	CHECK(has("TF_FORCE_GPU_ALLOW_GROWTH", "true") && has(LIMIT, NULL) && said[0] == '\0');
	/* One that colocd did not place, as in observe mode, is left as it is. */
	join("share 1\nmethod streams\nshard_mib 1024\ngpu_mib 40960\n", 0);
	CHECK(has("XLA_PYTHON_CLIENT_PREALLOCATE", NULL) && has("TF_FORCE_GPU_ALLOW_GROWTH", NULL));

	join("share 1\nmethod streams\nshard_mib 1024\ngpu_mib 40960\nwhy of this\n", 2);
	CHECK(has(LIMIT, NULL) && has("XLA_PYTHON_CLIENT_PREALLOCATE", "false"));
	CHECK(strstr(said, "2.0 GiB for this job, not fenced: no MPS, of this\n"));

	/* Several GPUs: the shards are those of all; a task has one of them. */
	gpus = 2;
	join("share 1\nmethod streams\nshard_mib 1024\ngpu_mib 40960\nframeworks always\nwhy x\n",
	     20);
	CHECK(has("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.2500"));
	CHECK(strcmp(said, "coloc: 2 GPUs: 40 GiB GPU, 10.0 GiB of each for this job, "
	                   "held by its framework only: no MPS, x\n") == 0);
	fake_job.step = 0;
	fake_job.tasks = 4;
	join("share 1\nmethod streams\nshard_mib 1024\ngpu_mib 40960\nframeworks always\nwhy x\n",
	     20);
	CHECK(has("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.1250"));
	fake_job.step = SLURM_BATCH_SCRIPT;
	gpus = 1;

	/* Several GPUs: a task that has one of them, by what it may open, by number, by UUID. */
	own_gpu();

	/* No Prolog, another release of it, a link, somebody else's: the task is left as it was, and
	 * the job's output says so. */
	join(NULL, 11);
	CHECK(has("XLA_PYTHON_CLIENT_PREALLOCATE", NULL) && strstr(said, "not set up"));
	join("share 2\nmethod mps\nshard_mib 1024\n", 11);
	CHECK(has("XLA_PYTHON_CLIENT_PREALLOCATE", NULL) && strstr(said, "not set up"));
	join(NULL, 0); /* on a whole GPU there is nothing to hold */
	CHECK(said[0] == '\0');
	fake_job.step = 0;
	join(NULL, 11);
	CHECK(said[0] == '\0');
	fake_job.step = SLURM_BATCH_SCRIPT;
	put("n1/jobs/real", MPS, strlen(MPS));
	unlink("n1/jobs/7.share");
	CHECK(symlink("real", "n1/jobs/7.share") == 0);
	fake_task_clear();
	coloc_fence_read(NULL, &(struct coloc_args){ .run_dir = "n1/jobs" });
	coloc_fence_join(NULL, 11, 1);
	CHECK(has(LIMIT, NULL));
	unlink("n1/jobs/7.share");
}
