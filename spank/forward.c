/* SPDX-License-Identifier: Apache-2.0
 * The common work of sbatch, salloc and srun: check, read, compress, ask colocd for a ticket, hand to
 * Slurm, which carries it to job_submit, Prolog and Epilog (spank_job_env). Contract in README.md.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coloc.h"
#include "sha256.h"

/* plugstack.conf has us as `optional`, so that a broken plugin never stops a cluster; but then
 * Slurm ignores what our functions return, and the job would go on without what was asked.
 * Nothing has been submitted yet: one line, and the program ends as it does for its own
 * wrong options (SLURM_EXIT_ERROR, default 1). */
void coloc_fail(const char *format, ...)
{
	char line[COLOC_ERROR_MAX * 2];
	const char *code = getenv("SLURM_EXIT_ERROR");
	int status = code ? atoi(code) : 1;
	va_list ap;

	va_start(ap, format);
	vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	slurm_error("coloc: %s", line);
	exit(status ? status : 1);
}

static void put(spank_t spank, const char *name, const char *value)
{
	spank_err_t err;

	if (!value)
		return;
	err = spank_job_control_setenv(spank, name, value, 1);
	if (err != ESPANK_SUCCESS)
		coloc_fail("cannot forward %s to Slurm, tell your administrator: %s", name,
		           spank_strerror(err));
}

static char *read_and_encode(const char *path, size_t max_bytes)
{
	struct coloc_text text = { 0 };
	char error[COLOC_ERROR_MAX];
	char shown[256];
	char *encoded;
	bool ok;

	coloc_printable(path, shown);
	if (path[0] == '\0')
		coloc_fail("--coloc needs the path of a model summary: its FILE is empty");
	ok = coloc_array_pattern(path) ? coloc_array_read(path, max_bytes, &text, error)
	                               : coloc_summary_read(path, max_bytes, &text, error);
	if (!ok)
		coloc_fail("cannot use --coloc=%s (give the text that torchinfo, torchsummary, "
		           "print(model) or Keras wrote, in a file you can read): %s",
		           shown, error);
	encoded = coloc_encode(&text, error);
	free(text.text);
	if (!encoded)
		coloc_fail("cannot forward --coloc=%s (give a shorter summary, without the "
		           "output around it): %s",
		           shown, error);
	return encoded;
}

static void hash_of(const char *summary, char hash[COLOC_SHA256_HEX + 1])
{
	unsigned char raw[COLOC_SHA256_BYTES];
	struct coloc_sha256 sum;

	coloc_sha256_begin(&sum);
	coloc_sha256_add(&sum, summary, strlen(summary));
	coloc_sha256_end(&sum, raw);
	coloc_hex(raw, sizeof(raw), hash);
}

/* With a ticket colocd has the text already, and slurmctld need not carry it. */
void coloc_forward(spank_t spank, const struct coloc_args *args, const char *kind)
{
	const struct coloc_request *request = coloc_options_get();
	char error[COLOC_ERROR_MAX], ticket[COLOC_TICKET_DIGITS + 1], hash[COLOC_SHA256_HEX + 1];
	char *summary = NULL;
	bool known = false;
	/* Without a text the job is known by its script, also where its memory is told. */
	bool automatic =
	    request->file ? strcmp(request->file, COLOC_AUTO) == 0 : request->memory != NULL;

	if (!coloc_options_check(request, error))
		coloc_fail("%s", error);
	if (request->file && !automatic)
		summary = read_and_encode(request->file, args->max_bytes);
	if (summary)
		known = coloc_ticket(args, request, summary, strcmp(kind, "batch") == 0, ticket);

	put(spank, "COLOC_V", "1");
	put(spank, "COLOC_KIND", kind);
	if (known) {
		hash_of(summary, hash);
		put(spank, "COLOC_TICKET", ticket);
		put(spank, "COLOC_TEXT_SHA256", hash);
	} else {
		put(spank, "COLOC_SUMMARY", summary);
	}
	put(spank, "COLOC_AUTO", automatic ? "1" : NULL);
	put(spank, "COLOC_BATCH_SIZE", request->batch_size);
	put(spank, "COLOC_SEQ_LEN", request->seq_len);
	put(spank, "COLOC_INPUT", request->input);
	put(spank, "COLOC_OPTIMIZER", request->optimizer);
	put(spank, "COLOC_PRECISION", request->precision);
	put(spank, "COLOC_TRAINING", request->training);
	put(spank, "COLOC_POLICY", request->policy);
	put(spank, "COLOC_MEMORY", request->memory_mib);
	put(spank, "COLOC_SLOT", request->slot_s);
	put(spank, "COLOC_MAX_SLOWDOWN", request->max_slowdown);
	free(summary);
}
