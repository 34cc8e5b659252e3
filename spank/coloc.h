/* SPDX-License-Identifier: Apache-2.0
 * What the files of the plugin share: limits, the two settings structs and one
 * prototype a function. Nothing here is exported from coloc.so (exports.map).
 */
#ifndef COLOC_H
#define COLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* All our own symbols are hidden (-fvisibility=hidden); what spank.h declares must stay
 * visible, or exports.map has nothing to export. */
#pragma GCC visibility push(default)
#include <slurm/spank.h>
#pragma GCC visibility pop

#define COLOC_MAX_KIB 4096      /* default limit of a summary file, KiB */
#define COLOC_FORWARD_MAX 65536 /* characters forwarded: Linux allows 128 KiB a string */
#define COLOC_DEFLATED_MAX (COLOC_FORWARD_MAX / 4 * 3)
#define COLOC_ARRAY_FILES_MAX 4096 /* directory entries that may match FILE with %a */
#define COLOC_ERROR_MAX 1024
#define COLOC_AUTO "auto" /* FILE that is no file: the job is known by its script */
#define COLOC_RUN_DIR "/run/slurm-coloc-jobs"
#define COLOC_HOOKS "/usr/libexec/slurm-coloc"
#define COLOC_SOCKET "/run/slurm-coloc/colocd.sock"
#ifndef COLOC_TICKET_PROGRAM
#define COLOC_TICKET_PROGRAM "/usr/libexec/slurm-coloc/coloc-ticket"
#endif
#define COLOC_TICKET_MS 1000   /* default of what a submission waits for a ticket */
#define COLOC_TICKET_DIGITS 32 /* hexadecimal, as colocd makes them */

/* The arguments of our line in plugstack.conf. */
struct coloc_args {
	size_t max_bytes;  /* max_kib=N: a larger summary fails the submission */
	char run_dir[256]; /* run_dir=DIR: hooks.run_dir of coloc.toml; %n is the NodeName */
	char hooks[256];  /* hooks=DIR: folder of coloc-prolog and coloc-epilog; "" for hooks=off */
	char ticket[256]; /* ticket=PROGRAM: who asks colocd; "" (ticket=off): nobody */
	char socket[108]; /* socket=PATH: daemon.socket of coloc.toml */
	char controllers[512];  /* controllers=HOST:PORT,...: network.controllers of coloc.toml */
	char slurm_user[64];    /* slurm_user=NAME: as whom the controllers' colocd runs */
	char munge_socket[108]; /* munge_socket=PATH; "": libmunge's own */
	long ticket_ms;         /* ticket_ms=N: what a submission waits for a ticket at most */
	char bad[64];           /* the first argument that we do not know: the plugin is disabled */
};

/* What the user asked for; NULL = option not given. Owned by options.c. */
struct coloc_request {
	const char *file;
	const char *batch_size;
	const char *seq_len;
	const char *input;
	const char *optimizer;
	const char *precision;
	const char *training;
	const char *policy;
	const char *memory;
	const char *slot;
	const char *max_slowdown;
	/* Once coloc_options_check has passed them: slot in seconds, memory in MiB. */
	const char *slot_s;
	const char *memory_mib;
};

/* Bytes of one or more summaries; text is malloc'ed and not NUL-terminated. */
struct coloc_text {
	char *text;
	size_t len;
};

/* plugstack_args.c: false when an argument is unknown or wrong (then args->bad says which). */
bool coloc_args_parse(struct coloc_args *args, int ac, char *argv[]);

/* options.c */
int coloc_options_register(spank_t spank);
bool coloc_options_given(void);
const struct coloc_request *coloc_options_get(void);
bool coloc_options_check(const struct coloc_request *request, char error[COLOC_ERROR_MAX]);
/* Number i of our option names (as in the environment, "coloc_batch_size"), NULL past the end. */
const char *coloc_option_env_name(size_t i);

/* duration.c: a time as sbatch's --time takes it, in seconds; -1 where it is none. */
long coloc_seconds(const char *text);

/* size.c: MiB of a size as --mem takes it; -1 where it is none. */
long coloc_mib(const char *text);

/* allocator.c (sbatch, salloc), local.c (srun), remote.c (slurmstepd) */
void coloc_allocator_init(void);
int coloc_allocator_post_opt(spank_t spank, const struct coloc_args *args);
void coloc_local_init(void);
int coloc_local_post_opt(spank_t spank, const struct coloc_args *args);
void coloc_remote_post_opt(spank_t spank, const struct coloc_args *args);
int coloc_remote_task_init(spank_t spank);

/* step_note.c: for the Epilog. The first as root before the logs are open, the second in the
 * task, where out and err are its standard output and standard error. */
void coloc_step_note(spank_t spank, const struct coloc_args *args);
void coloc_note_logs(int out, int err);

/* run_dir.c: its path with the node's name in it, false when it does not fit; a descriptor of it,
 * -1 unless it is root's. */
bool coloc_node_dir(const char *run_dir, char *out, size_t size);
int coloc_open_dir(const char *path);

/* run_dir.c: a file that root opened for a task to fill as the user. To take it gives its
 * descriptor, once, -1 where there is none; or where slurmstepd closed it meanwhile and gave the
 * number to another file. */
struct coloc_kept {
	int fd;
	struct stat seen;
};
void coloc_keep(struct coloc_kept *kept, int fd);
int coloc_take(struct coloc_kept *kept);

/* mps_note.c: for the Epilog, that a task could not use the MPS daemon of its GPU. The first as
 * root, the second in the task. */
void coloc_mps_note_open(spank_t spank, int dir, uint32_t job);
void coloc_mps_note(const char *why);

/* fence.c: what the Prolog prepared on a shared GPU. Read as root, joined in the task. */
void coloc_fence_read(spank_t spank, const struct coloc_args *args);
void coloc_fence_join(spank_t spank, long shards, long gpus);

/* node_hooks.c: start coloc-prolog or coloc-epilog ("prolog", "epilog") for slurmd; always 0. In the
 * job's own step: look, as root, why a Prolog may be missed, and tell it in the job's output. */
int coloc_node_hook(const struct coloc_args *args, const char *name);
void coloc_node_hook_look(const struct coloc_args *args);
void coloc_node_hook_missed(void);

/* own_gpu.c: the GPU of this task, where the job has several; NULL where it has not one of its own. */
struct coloc_own_gpu {
	int minor;  /* of its device file */
	int number; /* what Slurm calls it */
	char uuid[128];
	char folder[200]; /* of its MPS daemon */
};
void coloc_own_forget(void);
void coloc_own_take(const char *value);
bool coloc_own_any(void);
const struct coloc_own_gpu *coloc_own_gpu(spank_t spank);

/* limit.c: the kernel's limit on the job's cgroup, set as root before the tasks run by the program
 * that the Prolog named ("": none); whether it stands. */
void coloc_limit_prepare(uint32_t job, const char *program, const char *config);
void coloc_limit_set(spank_t spank);
bool coloc_limit_held(void);

/* frameworks.c: let JAX and TensorFlow grow; let frameworks hold themselves to the limit, true where
 * one does. mode: known, always, off. */
void coloc_frameworks_grow(spank_t spank);
bool coloc_frameworks_limit(spank_t spank, const char *mode, long limit_mib, long gpu_mib);

/* forward.c: read, compress, hand to Slurm. Does not return when something is wrong. */
void coloc_forward(spank_t spank, const struct coloc_args *args, const char *kind);
void coloc_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* request_env.c: the variables by which Slurm hands a GPU request on to an inner srun. */
extern const char *const coloc_gpu_request_vars[];
extern const char *const coloc_gpu_list_vars[];
void coloc_strip_items(char *list, const char *name);
void coloc_forget_request(void);
void coloc_forget_job(void);

/* command_line.c: false with *error filled where --coloc took a script or an option for its FILE; of
 * the value, and of the words of sbatch's command line (NULL behind the last). */
bool coloc_file_check(const char *value, char error[COLOC_ERROR_MAX]);
bool coloc_command_line_check(char *const words[], char error[COLOC_ERROR_MAX]);

/* summary_file.c, array_files.c: false with *error filled when the file cannot be used. */
bool coloc_summary_read(const char *path, size_t max_bytes, struct coloc_text *out,
                        char error[COLOC_ERROR_MAX]);
bool coloc_is_script(const char *path);
bool coloc_array_pattern(const char *path);
bool coloc_array_read(const char *path, size_t max_bytes, struct coloc_text *out,
                      char error[COLOC_ERROR_MAX]);
/* The path made fit for one line of a message: control characters become '?', cut at 200. */
const char *coloc_printable(const char *path, char out[256]);

/* ticket.c: the ticket that colocd gives for a text and the options of its estimate; false where it
 * gives none within args->ticket_ms. summary: as it would be forwarded; batch: of sbatch. */
bool coloc_ticket(const struct coloc_args *args, const struct coloc_request *request,
                  const char *summary, bool batch, char ticket[COLOC_TICKET_DIGITS + 1]);

/* base64.c: RFC 4648 with padding; out needs coloc_base64_size(len) bytes, NUL included. */
size_t coloc_base64_size(size_t len);
void coloc_base64(const unsigned char *in, size_t len, char *out);

/* encode.c: base64(zlib(text)), malloc'ed; NULL with *error filled when it is over the limit. */
char *coloc_encode(const struct coloc_text *text, char error[COLOC_ERROR_MAX]);

#endif
