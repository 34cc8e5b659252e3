/* SPDX-License-Identifier: Apache-2.0
 * Unit tests of the pure files, under the address and undefined sanitizers. Each check prints
 * its line on failure; the exit code is the number of failures (at most 99).
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "unit.h"

int failures;
char error[COLOC_ERROR_MAX];

void put(const char *path, const void *bytes, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || write(fd, bytes, len) != (ssize_t) len)
		abort();
	close(fd);
}

static bool reads(const char *path, size_t max_bytes)
{
	struct coloc_text text;
	bool ok = coloc_summary_read(path, max_bytes, &text, error);

	if (ok)
		error[0] = '\0';
	free(text.text);
	return ok;
}

static bool says(const char *words)
{
	return strstr(error, words) != NULL;
}

static void test_base64(void)
{
	/* RFC 4648 section 10, and "ok" */
	static const char *const vectors[][2] = {
		{ "", "" },
		{ "f", "Zg==" },
		{ "ok", "b2s=" },
		{ "foo", "Zm9v" },
		{ "foob", "Zm9vYg==" },
		{ "fooba", "Zm9vYmE=" },
		{ "foobar", "Zm9vYmFy" },
	};
	char out[32];

	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		size_t len = strlen(vectors[i][0]);

		coloc_base64((const unsigned char *) vectors[i][0], len, out);
		CHECK(strcmp(out, vectors[i][1]) == 0);
		CHECK(coloc_base64_size(len) == strlen(out) + 1);
	}
	coloc_base64((const unsigned char *) "\xff\xfe\xfd", 3, out);
	CHECK(strcmp(out, "//79") == 0);
}

static void test_encode(void)
{
	size_t len = (size_t) 4 << 20;
	struct coloc_text text = { malloc(len), len };
	unsigned int state = 1;
	char *encoded;

	memset(text.text, 'a', len);
	encoded = coloc_encode(&text, error);
	CHECK(encoded && strlen(encoded) < COLOC_FORWARD_MAX && strncmp(encoded, "eN", 2) == 0);
	free(encoded);

	for (size_t i = 0; i < len; i++) {
		state = state * 1103515245 + 12345;
		text.text[i] = (char) ('!' + (state >> 16) % 64);
	}
	CHECK(!coloc_encode(&text, error) && says("after compression"));
	text.len = 60000; /* 6 bits of entropy a character: 45 KiB, just inside */
	encoded = coloc_encode(&text, error);
	CHECK(encoded && strlen(encoded) <= COLOC_FORWARD_MAX);
	free(encoded);
	free(text.text);
}

static void test_summary_file(void)
{
	char big[5000];

	memset(big, 'x', sizeof(big));
	put("good", "Total params: 1\n", 16);
	put("empty", "", 0);
	put("blank", " \n\t\r\n", 5);
	put("nul", "Tot\0al", 6);
	put("control", "\001\002\003\004abcd", 8);
	put("colours", "\033[31mTotal\033[0m\r\b", 16);
	put("big", big, sizeof(big));
	CHECK(mkdir("dir", 0700) == 0);
	CHECK(mkfifo("fifo", 0600) == 0);
	CHECK(symlink("good", "link") == 0);

	CHECK(reads("good", 4096));
	CHECK(reads("good", 16));
	CHECK(!reads("good", 15) && says("larger than 0 KiB"));
	CHECK(reads("link", 4096));
	CHECK(reads("colours", 4096));
	CHECK(reads("/proc/self/status", 65536)); /* says it has size 0 */
	CHECK(!reads("missing", 4096) && says("No such file"));
	CHECK(!reads("empty", 4096) && says("it is empty"));
	CHECK(!reads("blank", 4096) && says("it is empty"));
	CHECK(!reads("nul", 4096) && says("NUL byte at offset 3"));
	CHECK(!reads("control", 4096) && says("4 control characters in 8 bytes"));
	CHECK(!reads("big", 4096) && says("larger than 4 KiB"));
	CHECK(reads("big", 5000));
	CHECK(!reads("dir", 4096) && says("it is a directory"));
	CHECK(!reads("fifo", 4096) && says("it is a FIFO"));
	CHECK(!reads("/dev/zero", 4096) && says("it is a device"));
}

static bool array_gives(const char *pattern, const char *expected, size_t len)
{
	struct coloc_text text;
	bool same = false;

	error[0] = '\0';
	if (coloc_array_read(pattern, 4096, &text, error))
		same = text.len == len && memcmp(text.text, expected, len) == 0;
	free(text.text);
	return same;
}

static bool array_fails(const char *pattern, const char *words)
{
	struct coloc_text text;
	bool ok = coloc_array_read(pattern, 4096, &text, error);

	free(text.text);
	return !ok && says(words);
}

static void test_array_files(void)
{
	char path[64];

	CHECK(coloc_array_pattern("m-%a.txt") && coloc_array_pattern("%4a/m") &&
	      coloc_array_pattern("m-%A"));
	CHECK(!coloc_array_pattern("m.txt") && !coloc_array_pattern("100%") &&
	      !coloc_array_pattern("%j%"));

	put("m-1.txt", "one", 3);
	put("m-2.txt", "second\n", 7);
	put("m-3.txt", "one", 3);
	put("m-04.txt", "padded", 6);
	put("m-x.txt", "never", 5);
	put("m-5.txt.bak", "never", 5);
	CHECK(array_gives("m-%a.txt", "second\n\f\none", 12));
	CHECK(array_gives("./m-%a.txt", "second\n\f\none", 12));
	CHECK(array_gives("m-%2a.txt", "padded", 6));
	CHECK(array_fails("m-%A.txt", "%A is not known"));
	CHECK(array_fails("n-%a.txt", "no file matches"));
	CHECK(array_fails("nowhere/%a.txt", "No such file"));
	put("m-9.txt", "", 0);
	CHECK(array_fails("m-%a.txt", "m-9.txt: it is empty"));

	CHECK(mkdir("r1", 0700) == 0 && mkdir("r2", 0700) == 0 && mkdir("r3", 0700) == 0);
	put("r1/s1.txt", "a", 1);
	put("r2/s2.txt", "a", 1);
	CHECK(array_gives("r%a/s%a.txt", "a", 1));

	CHECK(mkdir("many", 0700) == 0);
	for (int i = 0; i <= COLOC_ARRAY_FILES_MAX; i++) {
		snprintf(path, sizeof(path), "many/%d", i);
		put(path, "a", 1);
	}
	CHECK(array_fails("many/%a", "more than 4096 files"));
	unlink(path);
	CHECK(array_gives("many/%a", "a", 1));
}

static void test_plugstack_args(void)
{
	struct coloc_args args;
	char *good[] = { "max_kib=16384", "run_dir=/r/%n/j", "hooks=/h" };
	char *off[] = { "hooks=off" };
	char longer[300] = "run_dir=/";
	char *too_long = longer;
	char *bad[] = { "max_kib=0",  "max_kib=16385", "max_kib=", "max_kib=1k",
	                "max_kib=-1", "quiet",         "run_dir=", "run_dir=r",
	                "run_dir",    "hooks=",        "hooks=h",  "hooks" };

	CHECK(coloc_args_parse(&args, 0, NULL) && args.max_bytes == (size_t) 4 << 20 &&
	      strcmp(args.run_dir, COLOC_RUN_DIR) == 0 && strcmp(args.hooks, COLOC_HOOKS) == 0);
	CHECK(coloc_args_parse(&args, 3, good) && strcmp(args.hooks, "/h") == 0);
	CHECK(coloc_args_parse(&args, 1, off) && args.hooks[0] == '\0');
	memset(longer + 9, 'r', sizeof(longer) - 10);
	CHECK(!coloc_args_parse(&args, 1, &too_long));
	CHECK(coloc_args_parse(&args, 2, good) && strcmp(args.run_dir, "/r/%n/j") == 0);
	CHECK(coloc_args_parse(&args, 1, good) && args.max_bytes == (size_t) 16 << 20);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK(!coloc_args_parse(&args, 1, &bad[i]) && strcmp(args.bad, bad[i]) == 0);
}

static void test_strip(void)
{
	static const char *const cases[][2] = {
		{ "cpu:2,gres/gpu:1", "cpu:2" },
		{ "gres:gpu:a100:1", "" },
		{ "gpu=1,license/x=1", "license/x=1" },
		{ "gres/gpu", "" },
		{ "gres/gputer:1", "gres/gputer:1" },
		{ "gres/shard:4,gres/gpu:1,cpu:1", "gres/shard:4,cpu:1" },
		{ "", "" },
		{ ",", "" },
	};
	char list[64];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(list, sizeof(list), "%s", cases[i][0]);
		coloc_strip_items(list, "gpu");
		CHECK(strcmp(list, cases[i][1]) == 0);
	}
	snprintf(list, sizeof(list), "cpu=2,gres/shard:a100:12,gres/gpu:1");
	coloc_strip_items(list, "shard");
	CHECK(strcmp(list, "cpu=2,gres/gpu:1") == 0);
}

int main(void)
{
	char dir[] = "/tmp/coloc-unit-XXXXXX";
	char command[64];

	if (!mkdtemp(dir) || chdir(dir) != 0) {
		perror("mkdtemp");
		return 99;
	}
	test_base64();
	test_encode();
	test_summary_file();
	test_array_files();
	test_options();
	test_duration();
	test_plugstack_args();
	test_strip();
	test_sha256();
	test_ticket_args();
	test_ticket();
	test_coloc1();
	test_step_note();
	test_note_logs();
	test_fence();
	test_limit();
	test_frameworks();
	test_node_hooks();
	if (chdir("/") != 0)
		return 99;
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	if (system(command) != 0)
		return 99;
	if (failures == 0)
		puts("spank: all unit tests pass");
	return failures > 99 ? 99 : failures;
}
