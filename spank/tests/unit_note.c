/* SPDX-License-Identifier: Apache-2.0
 * Unit tests of step_note.c on real files; run by unit.c in an empty folder.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <slurm/slurm.h>

#include "fake_spank.h"
#include "unit.h"

/* Whether the file holds exactly this text; NULL = it is not there. */
bool text_is(const char *path, const char *text)
{
	char found[1024];
	int fd = open(path, O_RDONLY | O_NOFOLLOW);
	ssize_t len;

	if (fd < 0)
		return !text;
	len = read(fd, found, sizeof(found) - 1);
	close(fd);
	if (len < 0 || !text)
		return false;
	found[len] = '\0';
	return strcmp(found, text) == 0;
}

static bool notes(const char *run_dir, const char *text)
{
	struct coloc_args args = { 0 };
	bool same;

	snprintf(args.run_dir, sizeof(args.run_dir), "%s", run_dir);
	coloc_step_note(NULL, &args);
	same = text_is("n1/jobs/7.step", text);
	coloc_note_logs(-1, -1);
	unlink("n1/jobs/7.step");
	unlink("n1/jobs/7.logs");
	return same;
}

void test_step_note(void)
{
	char name[2000];

	CHECK(mkdir("n1", 0700) == 0 && mkdir("n1/jobs", 0755) == 0);
	fake_job = (struct fake_job){ 7, SLURM_BATCH_SCRIPT, 5, 2, "a b", 1, NULL, 0 };
	setenv("SLURMD_NODENAME", "n1", 1);
	CHECK(notes("n1/jobs", NULL)); /* no Prolog, no Epilog */
	put("n1/jobs/7.json", "{}", 2);
	CHECK(notes("n1/jobs", "5 2\na b\n"));
	CHECK(notes("%n/jobs", "5 2\na b\n"));
	fake_job.task = 0;
	CHECK(notes("n1/jobs", "5 0\na b\n"));
	fake_job.master = 0;
	fake_job.task = NO_VAL;
	CHECK(notes("n1/jobs", "none\na b\n"));
	fake_job.name = NULL;
	CHECK(notes("n1/jobs", "none\n"));
	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	fake_job.name = name;
	CHECK(notes("n1/jobs", "none\n"));
	fake_job.name = "a";
	fake_job.step = 0;
	CHECK(notes("n1/jobs", NULL));
	fake_job.step = SLURM_BATCH_SCRIPT;

	/* What others have put there is neither followed nor written. */
	put("victim", "mine", 4);
	CHECK(symlink("../../victim", "n1/jobs/.7.step.tmp") == 0);
	CHECK(symlink("../../victim", "n1/jobs/7.step") == 0);
	CHECK(notes("n1/jobs", "none\na\n") && text_is("victim", "mine"));
	CHECK(symlink("jobs", "n1/link") == 0 && notes("n1/link", NULL));
	CHECK(notes("n1/nowhere", NULL) && notes("n1/jobs/7.json", NULL));
	CHECK(chmod("n1/jobs", 0775) == 0 && notes("n1/jobs", NULL));
	CHECK(chmod("n1/jobs", 0755) == 0 && notes("n1/jobs", "none\na\n"));
	setenv("SLURMD_NODENAME", "../n1", 1);
	CHECK(notes("%n/jobs", NULL));
	setenv("SLURMD_NODENAME", "..", 1);
	CHECK(notes("n1/%n/n1/jobs", NULL));
	unsetenv("SLURMD_NODENAME");
	CHECK(notes("%n/jobs", NULL));
}

void test_note_logs(void)
{
	struct coloc_args args = { .run_dir = "n1/jobs" };
	char text[128];
	struct stat st;
	int log;

	put("log", "before\n", 7);
	log = open("log", O_WRONLY | O_APPEND);
	CHECK(log >= 0 && fstat(log, &st) == 0);
	coloc_step_note(NULL, &args);
	CHECK(text_is("n1/jobs/7.logs", ""));
	coloc_note_logs(log, log);
	snprintf(text, sizeof(text), "%ju 7 %ju 7\n", (uintmax_t) st.st_ino, (uintmax_t) st.st_ino);
	CHECK(text_is("n1/jobs/7.logs", text));
	coloc_note_logs(log, log); /* once a job */
	CHECK(text_is("n1/jobs/7.logs", text));
	close(log);

	log = open("/dev/null", O_WRONLY);
	coloc_step_note(NULL, &args);
	coloc_note_logs(log, -1);
	CHECK(text_is("n1/jobs/7.logs", "0 0 0 0\n"));
	close(log);

	/* A descriptor that became another file's in between is left alone. */
	coloc_step_note(NULL, &args);
	log = open("log", O_WRONLY | O_APPEND);
	CHECK(dup2(log, log + 1) == log + 1); /* where the note was open */
	coloc_note_logs(-1, -1);
	CHECK(text_is("log", "before\n") && text_is("n1/jobs/7.logs", ""));
	close(log);
	close(log + 1);
}
