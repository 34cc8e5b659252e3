/* SPDX-License-Identifier: Apache-2.0
 * Changed inputs to what reads a user's or a server's bytes, under the sanitizers:
 *
 *   fuzz RUNS SEED FOLDER   so many inputs that follow from the seed; the one that is tried stands
 *                           in FOLDER/spank-last, also after a crash; what the plugin and the
 *                           sanitizers say in FOLDER/spank-said
 *   fuzz FILE               that input again
 *
 * With clang's -fsanitize=fuzzer -DLIBFUZZER it is a libFuzzer target, and main is not there. The
 * first byte of an input chooses the part of the plugin, the rest is its text.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_spank.h"
#include "ticket/ticket.h"

#define INPUT_MAX 4096
#define WORDS_MAX 16
#define GOOD_TICKET "{\"v\": 1, \"ok\": true, \"ticket\": \"00112233445566778899aabbccddeeff\"}"

static char error[COLOC_ERROR_MAX];

/* What must hold, whatever the input: abort() is reported with it. */
#define HOLDS(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			dprintf(STDOUT_FILENO, "%s:%d: %s\n", __FILE__, __LINE__, #condition);     \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

static void put(const char *path, const void *bytes, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	HOLDS(fd >= 0 && write(fd, bytes, len) == (ssize_t) len);
	close(fd);
}

/* Cut a text at its newlines. */
static int cut(char *text, char *words[WORDS_MAX])
{
	int count = 0;

	for (char *at = text; at && count < WORDS_MAX;) {
		char *end = strchr(at, '\n');

		words[count++] = at;
		if (end)
			*end++ = '\0';
		at = end;
	}
	return count;
}

static void options(char *text, size_t len)
{
	char *words[WORDS_MAX] = { NULL };
	struct coloc_request request;

	(void) len;
	cut(text, words);
	request = (struct coloc_request){ words[0], words[1], words[2], words[3], words[4],
		                          words[5], words[6], words[7], NULL };
	error[0] = '\0';
	HOLDS(coloc_options_check(&request, error) || error[0]);
	HOLDS(memchr(error, '\0', sizeof(error)) && !strchr(error, '\n'));
}

static void arguments(char *text, size_t len)
{
	static struct coloc_args args;
	char *words[WORDS_MAX];

	(void) len;
	coloc_args_parse(&args, cut(text, words), words);
	HOLDS(memchr(args.run_dir, '\0', sizeof(args.run_dir)));
	HOLDS(memchr(args.bad, '\0', sizeof(args.bad)));
}

static void lists(char *text, size_t len)
{
	size_t before = strlen(text);

	(void) len;
	coloc_strip_items(text, "gpu");
	HOLDS(strlen(text) <= before);
	coloc_strip_items(text, "shard");
}

static void words(char *text, size_t len)
{
	char shown[256], folder[256];

	(void) len;
	HOLDS(coloc_seconds(text) >= -1);
	HOLDS(strlen(coloc_printable(text, shown)) < sizeof(shown));
	coloc_array_pattern(text);
	HOLDS(!coloc_node_dir(text, folder, sizeof(folder)) || strlen(folder) < sizeof(folder));
}

static void summary(char *text, size_t len)
{
	struct coloc_text read = { NULL, 0 };
	char *packed = NULL;

	put("summary", text, len);
	if (coloc_summary_read("summary", INPUT_MAX / 2, &read, error)) {
		HOLDS(read.len <= INPUT_MAX / 2);
		packed = coloc_encode(&read, error);
		HOLDS(packed && strlen(packed) <= COLOC_FORWARD_MAX);
	}
	free(packed);
	free(read.text);
}

/* FILE with %a: the text is the pattern, in a folder with a few files. */
static void array(char *text, size_t len)
{
	struct coloc_text read = { NULL, 0 };

	(void) len;
	if (strchr(text, '/')) /* no other folder is walked */
		return;
	if (coloc_array_pattern(text) && coloc_array_read(text, INPUT_MAX, &read, error))
		HOLDS(read.len <= 2 * INPUT_MAX);
	free(read.text);
}

/* A node's state of a job, and what its task's environment has. */
static void fence(char *text, size_t len)
{
	struct coloc_args args = { .run_dir = "n1/jobs" };
	char *variables = memchr(text, '\x1e', len);

	fake_task_clear();
	if (variables) {
		len = (size_t) (variables - text);
		*variables++ = '\0';
		spank_setenv(NULL, "PYTORCH_CUDA_ALLOC_CONF", variables, 1);
		spank_setenv(NULL, "CUDA_VISIBLE_DEVICES", variables, 1);
		spank_setenv(NULL, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", variables, 1);
		spank_setenv(NULL, "XLA_PYTHON_CLIENT_MEM_FRACTION", variables, 1);
	}
	put("n1/jobs/7.share", text, len);
	coloc_fence_read(NULL, &args);
	coloc_fence_join(NULL, 11, 1);
	coloc_fence_join(NULL, 22, 2);
}

static void frameworks(char *text, size_t len)
{
	(void) len;
	fake_task_clear();
	spank_setenv(NULL, "PYTORCH_CUDA_ALLOC_CONF", text, 1);
	spank_setenv(NULL, "PYTORCH_ALLOC_CONF", text, 1);
	coloc_frameworks_limit(NULL, "always", 1024, 40960);
	coloc_frameworks_limit(NULL, "known", LONG_MAX, 1);
}

static void own_gpu(char *text, size_t len)
{
	(void) len;
	coloc_own_forget();
	coloc_own_take(text);
	coloc_own_gpu(NULL);
}

/* The server's lines of coloc/1. */
static void protocol(char *text, size_t len)
{
	static const unsigned char key[KEY_BYTES] = { 1 };
	struct session session;
	char nonce[NONCE_DIGITS + 1], ticket[TICKET_DIGITS + 1], mac[COLOC_SHA256_HEX + 1];
	const char *inner;
	bool standby;

	if (coloc1_greeting(text, nonce, &standby))
		HOLDS(strlen(nonce) == NONCE_DIGITS);
	coloc1_session(&session, key, "00112233445566778899aabbccddeeff");
	coloc1_seal(&session, text, len, mac);
	HOLDS(!coloc1_open(&session, text, &inner));
	if (coloc1_ticket(text, ticket))
		HOLDS(strspn(ticket, "0123456789abcdef") == TICKET_DIGITS);
}

static const struct part {
	void (*run)(char *text, size_t len);
	const char *examples[4];
} parts[] = {
	{ options,
	  { "f.txt\n32\n512\nadamw-fused\namp\ncollocate\n1-02:03:04\n1.5\n",
	    "auto\n2147483647\n1\nsgd\nfp32\nexclusive\n0\n100\n", "%a\n0\n\n\n\n\nUNLIMITED\n1e9\n" } },
	{ arguments,
	  { "max_kib=4096\nrun_dir=/run/%n/x\nquiet\n",
	    "ticket=/p\nticket_ms=50\nsocket=/s\ncontrollers=a:1,[::1]:2\nslurm_user=me\n",
	    "ticket=off\nmunge_socket=/m" } },
	{ lists,
	  { "cpu:2,gres/gpu:1", "gres:gpu:a100:1,gres/shard:4,gres/gpu",
	    "cpu=2,gres/shard:a100:12,gres/gpu:1" } },
	{ words, { "1-02:03:04", "models/%4a.txt", "/run/%n/jobs", "99999999999999999999:59:59" } },
	{ summary, { "Linear-1 [-1, 10] 110\n", "a\tb\x1b[0m\n", "\n \n", "\xff\xfe" } },
	{ array, { "m_%a.txt", "m_%4a.txt", "%a%a", "%A_%10a" } },
	{ fence,
	  { "share 1\nmethod mps\nshard_mib 1024\nuuid GPU-a\ngpu_mib 40960\npipe pipe\nlog log\n"
	    "threads 40\x1e"
	    "expandable_segments:True",
	    "share 1\nmethod streams\nshard_mib 1024\ngpu_mib 40960\ntask 3 GPU-d m3\ntask 1 GPU-b m1\n"
	    "why there are several\n\x1e"
	    "0",
	    "share 1\nmethod mps\nshard_mib 16777216\ngpu_mib 1\nlimit /bin/true\n" } },
	{ frameworks,
	  { "expandable_segments:True,max_split_size_mb:64", "per_process_memory_fraction:0.5",
	    "roundup_power2_divisions:[256:1,512:2,>:8]", "backend:cudaMallocAsync" } },
	{ own_gpu, { "3 GPU-d m3 1 GPU-b m1", "1 GPU-b m1", "2147483648 GPU-x y" } },
	{ protocol,
	  { "coloc/1 00112233445566778899aabbccddeeff active", GOOD_TICKET,
	    "coloc/1 00112233445566778899aabbccddeeff standby",
	    "0000000000000000000000000000000000000000000000000000000000000000 {}" } },
};
#define PARTS (sizeof(parts) / sizeof(parts[0]))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (size < 1 || size > INPUT_MAX)
		return 0;
	text = malloc(size); /* of its exact size, so that a byte too far is seen */
	if (!text)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	parts[data[0] % PARTS].run(text, size - 1);
	free(text);
	return 0;
}

/* An empty folder with what the parts read. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static char dir[] = "/tmp/coloc-fuzz-XXXXXX";

	(void) argc;
	(void) argv;
	HOLDS(mkdtemp(dir) && chdir(dir) == 0 && mkdir("n1", 0755) == 0);
	HOLDS(mkdir("n1/jobs", 0755) == 0 && mkdir("pipe", 0755) == 0);
	put("pipe/control", "", 0);
	put("m_1.txt", "one", 3);
	put("m_0002.txt", "two", 3);
	put("m_3.txt", "one", 3);
	fake_job = (struct fake_job){ .id = 7, .step = 0, .tasks = 1 };
	return 0;
}

#ifndef LIBFUZZER
static uint64_t state;

static size_t random_below(size_t most)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return most ? (size_t) (state % most) : 0;
}

static const char *const tokens[] = {
	"0", "-1", "1", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808",
	"99999999999999999999", "0x10", "1e308", "nan", "inf", "%s", "%n", "%a", "%10a", "%99a",
	"%A", "/", "..", ":", ",", "=", "\n", "\n\n", " ", "\t", "\x1b", "\x1e", "\xff", "\xc0\x80",
	"[", "]", "\"", "\\", "gpu", "gres/gpu:", "shard", "task ", "uuid ", "pipe ", "threads ",
	"UNLIMITED", "\"ticket\":", "coloc/1 ",
};

static size_t insert(char *text, size_t len, size_t at, const char *what, size_t count)
{
	if (len + count >= INPUT_MAX)
		return len;
	memmove(text + at + count, text + at, len - at);
	memcpy(text + at, what, count);
	return len + count;
}

/* One change; the new length. */
static size_t change(char *text, size_t len)
{
	char part[64];
	size_t at = random_below(len + 1), count;
	const char *token;

	switch (random_below(6)) {
	case 0:
		if (at < len)
			text[at] = (char) random_below(256);
		return len;
	case 1:
		if (at < len)
			text[at] ^= (char) (1 << random_below(8));
		return len;
	case 2: /* remove some */
		count = random_below(8) + 1;
		if (at + count > len)
			return at;
		memmove(text + at, text + at + count, len - at - count);
		return len - count;
	case 3: /* repeat some, now and then often */
		count = random_below(sizeof(part));
		if (at + count > len)
			return len;
		memcpy(part, text + at, count);
		for (size_t times = random_below(8) ? 1 : random_below(60); times; times--)
			len = insert(text, len, at, part, count);
		return len;
	case 4:
		return insert(text, len, at, "\0", random_below(2));
	default:
		token = tokens[random_below(sizeof(tokens) / sizeof(tokens[0]))];
		return insert(text, len, at, token, strlen(token));
	}
}

static size_t input(char *data)
{
	size_t part = random_below(PARTS), count = 0, len;
	const char *example;

	while (count < 4 && parts[part].examples[count])
		count++;
	example = parts[part].examples[random_below(count)];
	data[0] = (char) part;
	len = strlen(example);
	memcpy(data + 1, example, len);
	for (size_t times = random_below(6); times; times--)
		len = change(data + 1, len);
	return len + 1;
}

/* Standard error goes to a file, which stays small. */
static int said(const char *folder)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/spank-said", folder);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
	HOLDS(fd >= 0 && dup2(fd, STDERR_FILENO) == STDERR_FILENO);
	return fd;
}

/* Where the input is that is tried now: a length, then its bytes. */
static char *shown(const char *folder)
{
	char path[PATH_MAX];
	char *at;
	int fd;

	snprintf(path, sizeof(path), "%s/spank-last", folder);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
	HOLDS(fd >= 0 && ftruncate(fd, 4 + INPUT_MAX) == 0);
	at = mmap(NULL, 4 + INPUT_MAX, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	HOLDS(at != MAP_FAILED);
	close(fd);
	return at;
}

static int again(const char *path)
{
	static char file[4 + INPUT_MAX];
	int fd = open(path, O_RDONLY);
	uint32_t len;

	HOLDS(fd >= 0 && read(fd, file, sizeof(file)) == (ssize_t) sizeof(file));
	memcpy(&len, file, sizeof(len));
	HOLDS(len <= INPUT_MAX);
	LLVMFuzzerInitialize(NULL, NULL);
	return LLVMFuzzerTestOneInput((const uint8_t *) file + 4, len);
}

int main(int argc, char *argv[])
{
	unsigned long runs = argc == 4 ? strtoul(argv[1], NULL, 10) : 0;
	char *last;
	int log;

	if (argc == 2)
		return again(argv[1]);
	if (argc != 4) {
		fputs("usage: fuzz RUNS SEED FOLDER | fuzz FILE\n", stderr);
		return 2;
	}
	state = 0x9e3779b97f4a7c15u ^ strtoull(argv[2], NULL, 10);
	last = shown(argv[3]);
	log = said(argv[3]);
	LLVMFuzzerInitialize(NULL, NULL);
	for (unsigned long number = 0; number < runs; number++) {
		uint32_t len = (uint32_t) input(last + 4);

		memcpy(last, &len, sizeof(len));
		if (number % 1024 == 0)
			HOLDS(ftruncate(log, 0) == 0);
		LLVMFuzzerTestOneInput((const uint8_t *) last + 4, len);
	}
	printf("fuzz spank: %lu inputs, %zu parts, no failure\n", runs, PARTS);
	return 0;
}
#endif
