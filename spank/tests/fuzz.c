/* SPDX-License-Identifier: Apache-2.0
 * Changed inputs to fuzz_parts.c, under the sanitizers:
 *
 *   fuzz RUNS SEED FOLDER   so many inputs that follow from the seed; the one that is tried stands
 *                           in FOLDER/spank-last, also after a crash; what the plugin and the
 *                           sanitizers say in FOLDER/spank-said
 *   fuzz FILE               that input again
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"

static uint64_t state;

static size_t random_below(size_t most)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return most ? (size_t) (state % most) : 0;
}

static const char *const tokens[] = {
	"0",
	"-1",
	"1",
	"2147483647",
	"2147483648",
	"9223372036854775807",
	"9223372036854775808",
	"99999999999999999999",
	"0x10",
	"1e308",
	"nan",
	"inf",
	"%s",
	"%n",
	"%a",
	"%10a",
	"%99a",
	"%A",
	"/",
	"..",
	":",
	",",
	"=",
	"\n",
	"\n\n",
	" ",
	"\t",
	"\x1b",
	"\x1e",
	"\xff",
	"\xc0\x80",
	"[",
	"]",
	"\"",
	"\\",
	"gpu",
	"gres/gpu:",
	"shard",
	"task ",
	"uuid ",
	"pipe ",
	"threads ",
	"UNLIMITED",
	"\"ticket\":",
	"coloc/1 ",
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
	size_t part = random_below(fuzz_parts_count), count = 0, len;
	const char *example;

	while (count < 4 && fuzz_parts[part].examples[count])
		count++;
	example = fuzz_parts[part].examples[random_below(count)];
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
	printf("fuzz spank: %lu inputs, %zu parts, no failure\n", runs, fuzz_parts_count);
	return 0;
}
