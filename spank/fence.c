/* SPDX-License-Identifier: Apache-2.0
 * slurmstepd: the MPS pipe and the memory fence of a task on shards of one GPU, from the file
 * <run_dir>/<job id>.share that the Prolog wrote (README.md here has its lines).
 *
 * It is read as root before the tasks are made, and used in each task as the user. The size of
 * the fence is the shards that Slurm itself gave this step times the size of a shard, shared among
 * the tasks that this step has here. Without the file, or inside a container that does not show
 * the pipe, the task runs as it would have without us, and says so. The other rungs of the ladder
 * are in limit.c (the kernel's limit, which stands already) and frameworks.c.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <slurm/slurm.h> /* NO_VAL and the numbers of steps */

#include "coloc.h"

#define FILE_MAX 4096
/* 16 TiB in MiB: times the shards of a GPU (SHARDS_MAX) it is far from the end of a long. */
#define NUMBER_MAX (1L << 24)
#define SHARDS_MAX (1L << 24)

static struct {
	bool known;
	long shard_mib;
	long gpu_mib;
	long threads;
	long limit_mib; /* of the MPS server, as it was read back; 0: it was not */
	char method[16];
	char uuid[128];
	char visible[2048]; /* where Slurm's numbers are not CUDA's: the run's GPUs by UUID */
	char pipe[256];
	char log[256];
	char why[256];
	char frameworks[16];
	char
	    program[256]; /* sets the limit of the job's cgroup; "" where there is none to be had */
	char config[256];
	dev_t shm_device; /* /dev/shm as the daemon has it */
	ino_t shm_inode;
} share;

/* A number of MiB or per cent in root's file: what is none, or is absurd, counts as not there. */
static long number_of(const char *value)
{
	char *end;
	long number = strtol(value, &end, 10);

	return end != value && *end == '\0' && number > 0 && number <= NUMBER_MAX ? number : 0;
}

static void text_of(const char *value, char *out, size_t size)
{
	if (strlen(value) < size)
		strcpy(out, value);
}

static void take(const char *name, const char *value)
{
	if (strcmp(name, "method") == 0)
		text_of(value, share.method, sizeof(share.method));
	else if (strcmp(name, "shard_mib") == 0)
		share.shard_mib = number_of(value);
	else if (strcmp(name, "gpu_mib") == 0)
		share.gpu_mib = number_of(value);
	else if (strcmp(name, "threads") == 0)
		share.threads = number_of(value);
	else if (strcmp(name, "limit") == 0)
		share.limit_mib = number_of(value);
	else if (strcmp(name, "uuid") == 0)
		text_of(value, share.uuid, sizeof(share.uuid));
	else if (strcmp(name, "visible") == 0)
		text_of(value, share.visible, sizeof(share.visible));
	else if (strcmp(name, "pipe") == 0)
		text_of(value, share.pipe, sizeof(share.pipe));
	else if (strcmp(name, "log") == 0)
		text_of(value, share.log, sizeof(share.log));
	else if (strcmp(name, "frameworks") == 0)
		text_of(value, share.frameworks, sizeof(share.frameworks));
	else if (strcmp(name, "program") == 0)
		text_of(value, share.program, sizeof(share.program));
	else if (strcmp(name, "config") == 0)
		text_of(value, share.config, sizeof(share.config));
	else if (strcmp(name, "task") == 0)
		coloc_own_take(value);
	else if (strcmp(name, "why") == 0)
		text_of(value, share.why, sizeof(share.why));
}

static void parse(char *text)
{
	char *save = NULL;
	char *line = strtok_r(text, "\n", &save);

	if (!line || strcmp(line, "share 1") != 0)
		return; /* of another release of slurm-coloc */
	while ((line = strtok_r(NULL, "\n", &save))) {
		char *value = strchr(line, ' ');

		if (!value)
			continue;
		*value = '\0';
		take(line, value + 1);
	}
	share.known = true;
}

void coloc_fence_read(spank_t spank, const struct coloc_args *args)
{
	char path[sizeof(args->run_dir) + 256];
	char name[48];
	char text[FILE_MAX];
	uint32_t job = 0;
	struct stat st;
	ssize_t len = -1;
	int dir;
	int fd;

	memset(&share, 0, sizeof(share));
	coloc_own_forget();
	coloc_limit_prepare(0, "", "");
	if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
	    !coloc_node_dir(args->run_dir, path, sizeof(path)))
		return;
	dir = coloc_open_dir(path);
	if (dir < 0)
		return;
	snprintf(name, sizeof(name), "%" PRIu32 ".share", job);
	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		goto done;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	    !(st.st_mode & 022))
		len = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (len <= 0)
		goto done;
	text[len] = '\0';
	parse(text);
	if (strcmp(share.method, "mps") == 0 || coloc_own_any())
		coloc_mps_note_open(spank, dir, job);
	coloc_limit_prepare(job, share.program, share.config);
	if (stat("/dev/shm", &st) == 0) {
		share.shm_device = st.st_dev;
		share.shm_inode = st.st_ino;
	}
done:
	close(dir);
}

/* Whether the task sees the daemon's socket and its /dev/shm: not in a container or under
 * job_container/tmpfs that hides them, where a client would wait or fail. */
static const char *hidden(void)
{
	char path[sizeof(share.pipe) + 16];
	struct stat st;

	snprintf(path, sizeof(path), "%s/control", share.pipe);
	if (access(path, W_OK) != 0)
		return "the MPS pipe cannot be seen from inside of the job";
	if (stat("/dev/shm", &st) != 0 || st.st_dev != share.shm_device ||
	    st.st_ino != share.shm_inode)
		return "the job has a /dev/shm of its own";
	return NULL;
}

/* Processes of this step here, among which its memory is shared: MPS fences each by itself. */
static long tasks_here(spank_t spank, bool batch)
{
	uint32_t tasks = 1;

	if (batch || spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &tasks) != ESPANK_SUCCESS)
		return 1;
	return tasks > 0 ? (long) tasks : 1;
}

static void join_mps(spank_t spank, long limit_mib)
{
	char value[64];

	spank_setenv(spank, "CUDA_MPS_PIPE_DIRECTORY", share.pipe, 1);
	spank_setenv(spank, "CUDA_MPS_LOG_DIRECTORY", share.log, 1);
	/* The daemon has this GPU alone, as its number 0: Slurm's number may be another. */
	spank_setenv(spank, "CUDA_VISIBLE_DEVICES", share.uuid, 1);
	/* By the daemon's number: by UUID the limit was seen not to apply. */
	snprintf(value, sizeof(value), "0=%ldM", limit_mib);
	spank_setenv(spank, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", value, 1);
	/* Less than the site's share is the user's own business. */
	if (share.threads > 0 && (spank_getenv(spank, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", value,
	                                       sizeof(value)) != ESPANK_SUCCESS ||
	                          !(atof(value) > 0 && atof(value) <= (double) share.threads))) {
		snprintf(value, sizeof(value), "%ld", share.threads);
		spank_setenv(spank, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", value, 1);
	}
}

static size_t items(const char *list)
{
	size_t count = *list != '\0';

	for (; *list; list++)
		count += *list == ',';
	return count;
}

/* A step that has fewer devices than the run keeps Slurm's numbers: which are its own is not known
 * here. */
static void name_devices(spank_t spank)
{
	char now[2048];

	if (share.visible[0] == '\0' ||
	    spank_getenv(spank, "CUDA_VISIBLE_DEVICES", now, sizeof(now)) != ESPANK_SUCCESS)
		return;
	if (items(now) == items(share.visible))
		spank_setenv(spank, "CUDA_VISIBLE_DEVICES", share.visible, 1);
}

/* Where the job has several GPUs and this task one of them, it is a client of that GPU's daemon. */
static void take_own(spank_t spank)
{
	const struct coloc_own_gpu *own = coloc_own_gpu(spank);

	if (!own)
		return;
	strcpy(share.method, "mps");
	strcpy(share.uuid, own->uuid);
	snprintf(share.pipe, sizeof(share.pipe), "%s/pipe", own->folder);
	snprintf(share.log, sizeof(share.log), "%s/log", own->folder);
}

static bool on_slice(void)
{
	return strncmp(share.uuid, "MIG-", 4) == 0;
}

/* What of MPS was verified: its server holds each process to the job's share; or to the larger one
 * of another job, and then only the variable that this job may unset holds it to its own. */
static void by_mps(long limit_mib, char *out, size_t size)
{
	if (share.limit_mib == 0)
		snprintf(out, size, "MPS, not read back");
	else if (share.limit_mib <= limit_mib)
		snprintf(out, size, "MPS");
	else
		snprintf(out, size, "MPS; its server allows a process %.1f GiB",
		         (double) share.limit_mib / 1024);
}

/* One line in the job's output: what stands between the job and its neighbours. */
static void tell(bool mps, bool kernel, bool framework, long limit_mib, long gpus, const char *why)
{
	double gpu_gib = (double) share.gpu_mib / 1024;
	double own_gib = (double) limit_mib / 1024;
	const char *each = gpus > 1 ? " of each" : "";
	char card[48] = "";
	char holder[96];

	if (share.gpu_mib > 0)
		snprintf(card, sizeof(card), "%.0f GiB GPU, ", gpu_gib);
	by_mps(limit_mib, holder, sizeof(holder));

	if (gpus > 1)
		dprintf(STDERR_FILENO, "coloc: %ld GPUs: ", gpus);
	else
		dprintf(STDERR_FILENO, "coloc: ");

	if (on_slice() && share.gpu_mib > 0 && limit_mib >= share.gpu_mib)
		dprintf(STDERR_FILENO, "MIG device, %.1f GiB for this job%s\n", gpu_gib,
		        mps ? " (MPS)" : "");
	else if (mps || kernel)
		dprintf(STDERR_FILENO, "%s%.1f GiB%s for this job (%s)\n", card, own_gib, each,
		        !kernel ? holder
		        : mps   ? "MPS, held by the kernel"
		                : "held by the kernel");
	else
		dprintf(STDERR_FILENO, "%s%.1f GiB%s for this job, %s: no MPS, %s\n", card, own_gib,
		        each, framework ? "held by its framework only" : "not fenced", why);
}

/* Whether this task's output is the place to say what the job has: the batch script's, or that of
 * the first task of the first step of srun or salloc, which have no script. */
static bool tells(spank_t spank, uint32_t step)
{
	char kind[16];
	uint32_t task = 1;

	if (step == SLURM_BATCH_SCRIPT)
		return true;
	if ((step != 0 && step != SLURM_INTERACTIVE_STEP) ||
	    spank_get_item(spank, S_TASK_GLOBAL_ID, &task) != ESPANK_SUCCESS || task != 0)
		return false;
	/* An srun that made the job itself has no job environment of ours. */
	return spank_getenv(spank, "SLURM_SPANK_COLOC_KIND", kind, sizeof(kind)) !=
	           ESPANK_SUCCESS ||
	       strcmp(kind, "batch") != 0;
}

void coloc_fence_join(spank_t spank, long shards, long gpus)
{
	uint32_t step = NO_VAL;
	bool batch = spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS &&
	             step == SLURM_BATCH_SCRIPT;
	bool told = tells(spank, step);
	bool kernel = coloc_limit_held();
	bool framework = false;
	const char *why = share.why;
	long limit_mib;
	long each_mib;
	bool mps;

	if (!share.known) {
		if (told && shards > 0)
			coloc_node_hook_missed();
		return;
	}
	name_devices(spank);
	if (shards <= 0 && on_slice())
		shards = 1; /* a MIG device is one share of its own size */
	/* Also on a whole GPU: the run is measured, and what a framework takes at once is no need. */
	if (shards > 0 || strcmp(share.method, "alone") == 0)
		coloc_frameworks_grow(spank);
	if (share.shard_mib <= 0 || shards <= 0 || shards > SHARDS_MAX || gpus <= 0)
		return;
	take_own(spank);
	mps = strcmp(share.method, "mps") == 0 && share.pipe[0] != '\0';
	if (mps && (why = hidden())) {
		coloc_mps_note(why);
		mps = false;
	}
	limit_mib = shards / gpus * share.shard_mib;
	/* The kernel counts all processes of the job together, MPS each by itself. */
	each_mib = kernel ? limit_mib : limit_mib / ((tasks_here(spank, batch) + gpus - 1) / gpus);
	if (mps)
		join_mps(spank, each_mib);
	else if (!kernel)
		framework =
		    coloc_frameworks_limit(spank, share.frameworks, each_mib, share.gpu_mib);
	if (told)
		tell(mps, kernel, framework, limit_mib, gpus, why);
}
