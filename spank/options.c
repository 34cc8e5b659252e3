/* SPDX-License-Identifier: Apache-2.0
 * The option table. The callbacks only store: Slurm calls them several times (#SBATCH line,
 * environment, command line; the last wins) and answers a callback's failure with a second,
 * unclear line. Values are checked once, when all are known.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coloc.h"

enum {
	OPT_FILE,
	OPT_BATCH_SIZE,
	OPT_SEQ_LEN,
	OPT_INPUT,
	OPT_OPTIMIZER,
	OPT_PRECISION,
	OPT_TRAINING,
	OPT_POLICY,
	OPT_MEMORY,
	OPT_SLOT,
	OPT_MAX_SLOWDOWN,
	OPT_COUNT
};

static char *values[OPT_COUNT];
static char slot_s[24];     /* OPT_SLOT in seconds */
static char memory_mib[24]; /* OPT_MEMORY in MiB */
static struct coloc_request request;

static int store(int val, const char *optarg, int remote)
{
	char error[COLOC_ERROR_MAX];
	char *copy;

	if (val < 0 || val >= OPT_COUNT)
		return -1;
	if (!remote && val == OPT_FILE && !coloc_file_check(optarg, error)) {
		slurm_error("coloc: %s", error);
		return -1;
	}
	copy = strdup(optarg ? optarg : "");
	if (!copy)
		return -1;
	free(values[val]);
	values[val] = copy;
	return 0;
}

static struct spank_option table[OPT_COUNT] = {
	{ "coloc", "FILE",
	  "share a GPU if the model whose summary is in FILE (torchinfo, torchsummary, "
	  "print(model), Keras) fits; in job arrays %a stands for the index; auto: by what "
	  "earlier runs of this script used (a file of that name: ./auto)",
	  1, OPT_FILE, store },
	{ "coloc-batch-size", "N", "batch size of one process, for --coloc", 1, OPT_BATCH_SIZE,
	  store },
	{ "coloc-seq-len", "N", "tokens in a sequence, for --coloc", 1, OPT_SEQ_LEN, store },
	{ "coloc-input", "SHAPE",
	  "shape of one sample, channels first (3x224x224), for --coloc with print(model)", 1,
	  OPT_INPUT, store },
	{ "coloc-optimizer", "NAME",
	  "sgd, sgd-momentum, adam, adamw, adafactor, adam8bit, rmsprop, rmsprop-momentum, "
	  "adagrad, adamax, nadam, radam, lion; adam and adamw also with -fused or -for-loop; "
	  "for --coloc",
	  1, OPT_OPTIMIZER, store },
	{ "coloc-precision", "NAME", "fp32|amp (autocast)|bf16 (the model itself), for --coloc", 1,
	  OPT_PRECISION, store },
	{ "coloc-training", "WORD,...",
	  "what else it does, for --coloc: accumulate, compile, checkpoint, one of "
	  "zero1, zero2, zero3, fsdp",
	  1, OPT_TRAINING, store },
	{ "coloc-policy", "collocate|exclusive",
	  "share a GPU (default with --coloc) or have a whole one", 1, OPT_POLICY, store },
	{ "coloc-memory", "SIZE",
	  "memory that the job needs on one GPU, all its processes there, as --mem is written "
	  "(10G): reserved in place of an estimate; no model is needed",
	  1, OPT_MEMORY, store },
	{ "coloc-slot", "TIME",
	  "run so long at a time (as --time is written), save, and go back into the queue; "
	  "0: no slots",
	  1, OPT_SLOT, store },
	{ "coloc-max-slowdown", "F",
	  "take at most F times the time that the job takes alone on a GPU (1 to 100, such as "
	  "1.25; not given: no limit), for --coloc",
	  1, OPT_MAX_SLOWDOWN, store },
};

static const char *const env_names[OPT_COUNT + 1] = {
	"coloc",           "coloc_batch_size", "coloc_seq_len",      "coloc_input",
	"coloc_optimizer", "coloc_precision",  "coloc_training",     "coloc_policy",
	"coloc_memory",    "coloc_slot",       "coloc_max_slowdown", NULL,
};

static const char *const optimizers[] = { "sgd",           "sgd-momentum",
                                          "adam",          "adamw",
                                          "adafactor",     "adam8bit",
                                          "adam-fused",    "adamw-fused",
                                          "adam-for-loop", "adamw-for-loop",
                                          "rmsprop",       "rmsprop-momentum",
                                          "adagrad",       "adamax",
                                          "nadam",         "radam",
                                          "lion",          NULL };
static const char *const precisions[] = { "fp32", "amp", "bf16", NULL };
static const char *const trainings[] = { "accumulate", "compile", "checkpoint", "zero1",
                                         "zero2",      "zero3",   "fsdp",       NULL };
/* Of those, the ones before the stages, of which there is one at most. */
#define FREE_TRAININGS 3
static const char *const policies[] = { "collocate", "exclusive", NULL };

const char *coloc_option_env_name(size_t i)
{
	return i < OPT_COUNT ? env_names[i] : NULL;
}

int coloc_options_register(spank_t spank)
{
	for (int i = 0; i < OPT_COUNT; i++) {
		spank_err_t err = spank_option_register(spank, &table[i]);

		if (err != ESPANK_SUCCESS) {
			slurm_error("coloc: cannot register --%s: %s", table[i].name,
			            spank_strerror(err));
			return -1;
		}
	}
	return 0;
}

bool coloc_options_given(void)
{
	for (int i = 0; i < OPT_COUNT; i++)
		if (values[i])
			return true;
	return false;
}

const struct coloc_request *coloc_options_get(void)
{
	request.file = values[OPT_FILE];
	request.batch_size = values[OPT_BATCH_SIZE];
	request.seq_len = values[OPT_SEQ_LEN];
	request.input = values[OPT_INPUT];
	request.optimizer = values[OPT_OPTIMIZER];
	request.precision = values[OPT_PRECISION];
	request.training = values[OPT_TRAINING];
	request.policy = values[OPT_POLICY];
	request.memory = values[OPT_MEMORY];
	request.memory_mib = NULL;
	request.slot = values[OPT_SLOT];
	request.slot_s = NULL;
	request.max_slowdown = values[OPT_MAX_SLOWDOWN];
	return &request;
}

static bool check_number(const char *name, const char *value, char *error)
{
	char shown[256];
	size_t digits = value ? strspn(value, "0123456789") : 0;

	if (!value)
		return true;
	/* Ten digits hold 2^31-1; the length check keeps strtoull away from overflow. */
	if (digits && digits <= 10 && value[digits] == '\0') {
		unsigned long long number = strtoull(value, NULL, 10);

		if (number >= 1 && number <= 2147483647ULL)
			return true;
	}
	snprintf(error, COLOC_ERROR_MAX,
	         "--%s=%s is not a whole number: give 1 to 2147483647, digits only", name,
	         coloc_printable(value, shown));
	return false;
}

/* One to four sizes of at most seven digits, as colocd takes them. */
static bool check_shape(const char *value, char *error)
{
	char shown[256];
	const char *rest = value;

	if (!value)
		return true;
	for (int sizes = 1; sizes <= 4; sizes++) {
		size_t digits = strspn(rest, "0123456789");

		if (digits < 1 || digits > 7 || *rest == '0')
			break;
		rest += digits;
		if (*rest == '\0')
			return true;
		if (*rest++ != 'x')
			break;
	}
	snprintf(error, COLOC_ERROR_MAX,
	         "--coloc-input=%s is no shape: give one to four sizes, channels first, such as "
	         "3x224x224",
	         coloc_printable(value, shown));
	return false;
}

/* Words between commas, four at most, one of ZeRO's: colocd takes no others. */
static bool check_training(const char *value, char *error)
{
	char shown[256];
	const char *rest = value;
	int words = 0, stages = 0;

	while (rest && words++ < 4) {
		size_t len = strcspn(rest, ",");
		int known = 0;

		while (trainings[known] && (strlen(trainings[known]) != len ||
		                            strncmp(trainings[known], rest, len) != 0))
			known++;
		stages += known >= FREE_TRAININGS;
		if (!trainings[known] || stages > 1)
			break;
		if (rest[len] == '\0')
			return true;
		rest += len + 1;
	}
	if (!value)
		return true;
	snprintf(error, COLOC_ERROR_MAX,
	         "--coloc-training=%s is not known: give accumulate, compile, checkpoint and one "
	         "of zero1, zero2, zero3, fsdp, with commas between them",
	         coloc_printable(value, shown));
	return false;
}

static bool check_word(const char *name, const char *value, const char *const *words, char *error)
{
	char shown[256];
	int len;

	if (!value)
		return true;
	for (const char *const *word = words; *word; word++)
		if (strcmp(value, *word) == 0)
			return true;
	len = snprintf(error, COLOC_ERROR_MAX, "--%s=%s is not known: give one of", name,
	               coloc_printable(value, shown));
	for (const char *const *word = words; *word && len > 0 && len < COLOC_ERROR_MAX; word++)
		len += snprintf(error + len, (size_t) (COLOC_ERROR_MAX - len), "%s %s",
		                word == words ? "" : ",", *word);
	return false;
}

static bool check_slot(const char *value, char *error)
{
	char shown[256];
	long seconds = value ? coloc_seconds(value) : 0;

	if (!value)
		return true;
	if (seconds >= 0) {
		snprintf(slot_s, sizeof(slot_s), "%ld", seconds);
		request.slot_s = slot_s;
		return true;
	}
	snprintf(error, COLOC_ERROR_MAX,
	         "--coloc-slot=%s is not a time: give minutes, minutes:seconds, "
	         "hours:minutes:seconds, days-hours, days-hours:minutes or "
	         "days-hours:minutes:seconds, at most 365 days",
	         coloc_printable(value, shown));
	return false;
}

static bool check_memory(const char *value, char *error)
{
	char shown[256];
	long mib = value ? coloc_mib(value) : 0;

	if (!value)
		return true;
	if (mib > 0) {
		snprintf(memory_mib, sizeof(memory_mib), "%ld", mib);
		request.memory_mib = memory_mib;
		return true;
	}
	snprintf(
	    error, COLOC_ERROR_MAX,
	    "--coloc-memory=%s is no size: give a whole number with K, M, G or T, such as 10G, "
	    "at most 16T",
	    coloc_printable(value, shown));
	return false;
}

/* A factor from 1 to 100 with at most four digits behind the point. Read digit by digit: strtod
 * would take the user's locale, "inf" and 0x1p3. */
static bool check_factor(const char *value, char *error)
{
	char shown[256];
	size_t whole = value ? strspn(value, "0123456789") : 0;
	size_t part = 0;
	const char *rest = value ? value + whole : NULL;

	if (!value)
		return true;
	if (*rest == '.') {
		part = strspn(rest + 1, "0123456789");
		rest += part ? 1 + part : 0;
	}
	if (whole >= 1 && whole <= 3 && part <= 4 && *rest == '\0') {
		long number = strtol(value, NULL, 10);
		bool over = part && strspn(value + whole + 1, "0") != part;

		if (number >= 1 && number + over <= 100)
			return true;
	}
	snprintf(error, COLOC_ERROR_MAX,
	         "--coloc-max-slowdown=%s is no factor: give a number from 1 to 100, such as 1.25",
	         coloc_printable(value, shown));
	return false;
}

bool coloc_options_check(const struct coloc_request *r, char error[COLOC_ERROR_MAX])
{
	if (!check_slot(r->slot, error) || !check_factor(r->max_slowdown, error) ||
	    !check_memory(r->memory, error) ||
	    !check_number("coloc-batch-size", r->batch_size, error) ||
	    !check_number("coloc-seq-len", r->seq_len, error) || !check_shape(r->input, error) ||
	    !check_word("coloc-optimizer", r->optimizer, optimizers, error) ||
	    !check_word("coloc-precision", r->precision, precisions, error) ||
	    !check_training(r->training, error) ||
	    !check_word("coloc-policy", r->policy, policies, error))
		return false;
	if (r->file || r->memory || (r->policy && strcmp(r->policy, "exclusive") == 0))
		return true;
	if (r->policy)
		snprintf(error, COLOC_ERROR_MAX,
		         "--coloc-policy=collocate needs to know the model: add --coloc=FILE or "
		         "--coloc-memory=SIZE");
	else
		snprintf(error, COLOC_ERROR_MAX,
		         "--coloc-batch-size, --coloc-seq-len, --coloc-input, --coloc-optimizer, "
		         "--coloc-precision, --coloc-training, --coloc-slot and "
		         "--coloc-max-slowdown need "
		         "a model: "
		         "add --coloc=FILE or --coloc-memory=SIZE");
	return false;
}
