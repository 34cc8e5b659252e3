/* SPDX-License-Identifier: Apache-2.0
 * Unit tests of the options' values: options.c, duration.c, size.c, command_line.c.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"

static bool says(const char *words)
{
	return strstr(error, words) != NULL;
}

static void test_factor(struct coloc_request r)
{
	static const char *const good[] = {
		"1", "1.0", "1.25", "2.5000", "99.9999", "100", "100.0"
	};
	static const char *const bad[] = { "",    "0",       "0.9", "-1",    "+1",   "1.",
	                                   ".5",  "1,5",     "1e1", "100.1", "1000", "inf",
	                                   "nan", "1.00000", "0x2", "1 " };

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		r.max_slowdown = good[i];
		CHECK(coloc_options_check(&r, error));
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		r.max_slowdown = bad[i];
		CHECK(!coloc_options_check(&r, error) && says("--coloc-max-slowdown="));
	}
}

static void test_shape(struct coloc_request r)
{
	static const char *const good[] = { "1", "3x224x224", "1x1x1x9999999", "3x32x32" };
	static const char *const bad[] = { "",     "x",         "3x",     "x3",     "0x3",
	                                   "3x0",  "3X3",       "3,224",  "3 x 3",  "10000000",
	                                   "-3",   "1x2x3x4x5", "3x224x", "3xx224", "3x224x224 ",
	                                   "03x3", "3.5" };

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		r.input = good[i];
		CHECK(coloc_options_check(&r, error));
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		r.input = bad[i];
		CHECK(!coloc_options_check(&r, error) && says("--coloc-input="));
	}
}

static void test_training(struct coloc_request r)
{
	static const char *const good[] = { "accumulate",
	                                    "compile",
	                                    "fsdp",
	                                    "zero1",
	                                    "accumulate,compile,zero3",
	                                    "zero2,accumulate",
	                                    "checkpoint",
	                                    "accumulate,compile,checkpoint,zero3" };
	static const char *const bad[] = { "",
	                                   ",",
	                                   "accumulate,",
	                                   ",fsdp",
	                                   "zero4",
	                                   "zero",
	                                   "fsdpx",
	                                   "FSDP",
	                                   "zero1,fsdp",
	                                   "accumulate,x",
	                                   "accumulate,,fsdp",
	                                   "accumulate,compile,checkpoint,zero3,compile",
	                                   "compile " };

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		r.training = good[i];
		CHECK(coloc_options_check(&r, error));
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		r.training = bad[i];
		CHECK(!coloc_options_check(&r, error) && says("--coloc-training="));
	}
}

static void test_memory(struct coloc_request r)
{
	static const char *const bad[] = {
		"",       "0",   "G",     "10 G",          "10G ", "-1",   "+1G",
		"1e3",    "17T", "1.5G",  "10Gb",          "10X",  "0x10", "10 ",
		"16385G", "GB",  "10GBB", "9999999999999", "1G2"
	};

	CHECK(coloc_mib("1") == 1 && coloc_mib("512") == 512 && coloc_mib("512M") == 512);
	CHECK(coloc_mib("10G") == 10240 && coloc_mib("10g") == 10240);
	CHECK(coloc_mib("8GB") == 8192 && coloc_mib("8GiB") == 8192);
	CHECK(coloc_mib("1K") == 1 && coloc_mib("1024k") == 1 && coloc_mib("1025k") == 2);
	CHECK(coloc_mib("16T") == 16777216 && coloc_mib("16384G") == 16777216);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK(coloc_mib(bad[i]) == -1);
		r.memory = bad[i];
		CHECK(!coloc_options_check(&r, error) && says("--coloc-memory="));
	}
	r.memory = "10G";
	r.file = NULL;
	r.policy = NULL;
	CHECK(coloc_options_check(&r, error));
}

/* What sbatch would take for the FILE of --coloc, before it reads a script. */
static void test_command_line(void)
{
	static const char *const good[][8] = {
		{ NULL },
		{ "train.sh" },
		{ "--coloc", "model.txt", "train.sh" },
		{ "--coloc", "missing", "train.sh" },
		{ "--coloc" },
		{ "--wrap=true", "--gpus=1" },
		/* the script's own words */
		{ "job.sh", "--coloc", "train.sh" },
		{ "-p", "gpu", "job.sh", "--coloc", "--wrap=x" },
		{ "--partition", "gpu", "--coloc", "train.sh" }, /* not told from the one above */
		{ "-J", "--coloc", "train.sh" },
	};
	static const char *const bad[][8] = {
		{ "--coloc", "train.sh" },
		{ "--coloc=train.sh" },
		{ "--coloc", "train.sh", "train.sh" },
		{ "-n", "4", "-t", "1:00:00", "-p", "gpu", "--coloc", "train.sh" },
		{ "--gpus=1", "-H", "--coloc", "train.sh" },
		{ "--time", "2-00:10:00", "--coloc", "train.sh" },
	};
	FILE *script = fopen("train.sh", "w"), *model = fopen("model.txt", "w");

	CHECK(script && fputs("#!/bin/bash\n", script) >= 0 && fclose(script) == 0);
	CHECK(model && fputs("Total params: 1\n", model) >= 0 && fclose(model) == 0);
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		char *words[9] = { NULL };

		memcpy(words, good[i], sizeof(good[i]));
		CHECK(coloc_command_line_check(words, error));
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char *words[9] = { NULL };

		memcpy(words, bad[i], sizeof(bad[i]));
		CHECK(!coloc_command_line_check(words, error));
		CHECK(says("and train.sh is a script: --coloc=MODEL.txt train.sh"));
	}
	char *option[] = { "--coloc", "--wrap=true", NULL };
	CHECK(!coloc_command_line_check(option, error) && says("and --wrap=true is an option"));
	CHECK(!coloc_file_check("./train.sh", error) && coloc_file_check(NULL, error));
}

void test_options(void)
{
	struct coloc_request r = { .file = "f",
	                           .batch_size = "1",
	                           .seq_len = "2147483647",
	                           .input = "3x224x224",
	                           .optimizer = "adam8bit",
	                           .precision = "amp",
	                           .policy = "collocate" };
	static const char *const bad[] = { "",   "0",   "-1",         "+1",          " 1",
	                                   "1 ", "1.5", "2147483648", "99999999999", "0x10" };

	test_command_line();
	CHECK(coloc_options_check(&r, error));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		r.batch_size = bad[i];
		CHECK(!coloc_options_check(&r, error) && says("--coloc-batch-size="));
	}
	r.batch_size = NULL;
	r.optimizer = "a\nb";
	CHECK(!coloc_options_check(&r, error) && says("=a?b is not known: give one of sgd, "));
	r.optimizer = NULL;
	r.file = NULL;
	CHECK(!coloc_options_check(&r, error) && says("collocate needs"));
	r.policy = "exclusive";
	CHECK(coloc_options_check(&r, error));
	r.policy = NULL;
	CHECK(!coloc_options_check(&r, error) && says("add --coloc=FILE"));
	r.file = "f";
	r.slot = "1-0:30";
	CHECK(coloc_options_check(&r, error));
	r.slot = "soon";
	CHECK(!coloc_options_check(&r, error) && says("--coloc-slot=soon is not a time"));
	r.slot = NULL;
	test_factor(r);
	test_shape(r);
	test_training(r);
	test_memory(r);
}

void test_duration(void)
{
	static const char *const bad[] = { "",      "-",       "-1",        "1-",    "1:",
	                                   ":1",    "1:2:3:4", "1.5",       " 1",    "1 ",
	                                   "1-2-3", "0x1",     "999999999", "366-0", "9999999999",
	                                   "1h",    "+1",      "1-1:",      "1:2-3" };

	CHECK(coloc_seconds("30") == 1800);
	CHECK(coloc_seconds("0") == 0);
	CHECK(coloc_seconds("0:08") == 8);
	CHECK(coloc_seconds("1:02:03") == 3723);
	CHECK(coloc_seconds("2-0") == 172800);
	CHECK(coloc_seconds("2-1:30") == 178200);
	CHECK(coloc_seconds("2-1:30:05") == 178205);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK(coloc_seconds(bad[i]) == -1);
}
