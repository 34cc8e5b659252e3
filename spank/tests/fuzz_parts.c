/* SPDX-License-Identifier: Apache-2.0
 * The parts of the plugin that read a user's, a server's or root's bytes, as a fuzz target: the first
 * byte of an input chooses the part, the rest is its text. Either fuzz.c or libFuzzer calls it.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_spank.h"
#include "fuzz.h"
#include "ticket/ticket.h"

#define WORDS_MAX 16
#define GOOD_TICKET "{\"v\": 1, \"ok\": true, \"ticket\": \"00112233445566778899aabbccddeeff\"}"

static char error[COLOC_ERROR_MAX];

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
	request = (struct coloc_request){ words[0],  words[1], words[2], words[3], words[4],
	                                  words[5],  words[6], words[7], words[8], words[9],
	                                  words[10], NULL,     NULL };
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
	HOLDS(coloc_mib(text) != 0 && coloc_mib(text) >= -1 && coloc_mib(text) <= 16777216);
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

const struct fuzz_part fuzz_parts[] = {
	{ options,
	  { "f.txt\n32\n512\nadamw-fused\namp\ncollocate\n1-02:03:04\n1.5\n",
	    "auto\n2147483647\n1\nsgd\nfp32\nexclusive\n0\n100\n",
	    "%a\n0\n\n\n\n\nUNLIMITED\n1e9\n" } },
	{ arguments,
	  { "max_kib=4096\nrun_dir=/run/%n/x\n",
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
	    "share 1\nmethod streams\nshard_mib 1024\ngpu_mib 40960\ntask 3 GPU-d m3\ntask 1 GPU-b "
	    "m1\n"
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
const size_t fuzz_parts_count = sizeof(fuzz_parts) / sizeof(fuzz_parts[0]);

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
	fuzz_parts[data[0] % fuzz_parts_count].run(text, size - 1);
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
