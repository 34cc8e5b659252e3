/* SPDX-License-Identifier: Apache-2.0
 * Unit tests of node_hooks.c with scripts in the place of coloc-prolog; run by unit.c in an empty
 * folder.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_spank.h"
#include "unit.h"

static struct coloc_args args;

/* Whether this script, as coloc-prolog, has written its file; the hook's own answer is 0. */
static bool ran(const char *script)
{
	unlink("ran");
	put("coloc-prolog", script, strlen(script));
	CHECK(chmod("coloc-prolog", 0755) == 0);
	CHECK(coloc_node_hook(&args, "prolog") == 0);
	return access("ran", F_OK) == 0;
}

/* What the job's output says on a node that was not set up. */
static bool said(const char *words)
{
	char text[512] = "";
	int err = dup(STDERR_FILENO);
	int file = open("said", O_RDWR | O_CREAT | O_TRUNC, 0600);

	CHECK(err >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
	coloc_node_hook_look(&args);
	coloc_node_hook_missed();
	CHECK(dup2(err, STDERR_FILENO) >= 0);
	CHECK(pread(file, text, sizeof(text) - 1, 0) > 0);
	close(file);
	close(err);
	snprintf(error, sizeof(error), "%s", text);
	return strncmp(text, "coloc: ", 7) == 0 && strstr(text, words);
}

void test_node_hooks(void)
{
	char here[PATH_MAX / 32];

	CHECK(coloc_args_parse(&args, 0, NULL));
	CHECK(getcwd(here, sizeof(here)) != NULL);
	snprintf(args.hooks, sizeof(args.hooks), "%s", here);

	/* Not there, not to be run, no program: the answer stays 0. */
	setenv("SPANK_COLOC_V", "1", 1);
	unlink("coloc-prolog");
	CHECK(coloc_node_hook(&args, "prolog") == 0);
	CHECK(said("coloc-prolog: No such file"));
	put("coloc-prolog", "#!/bin/sh\n", 10);
	CHECK(chmod("coloc-prolog", 0644) == 0);
	CHECK(coloc_node_hook(&args, "prolog") == 0);
	CHECK(geteuid() == 0 || said("coloc-prolog: Permission denied"));
	CHECK(!ran("\x7f"
	           "ELF no program"));
	CHECK(!ran("#!/nonexistent/shell\n"));

	/* It runs with the environment and ends as it likes. */
	setenv("SLURM_JOB_ID", "77", 1);
	CHECK(ran("#!/bin/sh\n[ $SLURM_JOB_ID = 77 ] && : >ran\n"));
	CHECK(ran("#!/bin/sh\n: >ran; exit 3\n"));
	CHECK(ran("#!/bin/sh\n: >ran; kill -9 $$\n"));
	CHECK(said("did not run"));

	/* One that hangs is ended with what it started. */
	CHECK(ran("#!/bin/sh\n: >ran\ntrap '' TERM\nsleep 60 &\nsleep 60\n"));

	/* A job without --coloc, and a site that starts the hooks itself. */
	unsetenv("SPANK_COLOC_V");
	CHECK(!ran("#!/bin/sh\n: >ran\n"));
	setenv("SPANK_COLOC_V", "1", 1);
	args.hooks[0] = '\0';
	CHECK(!ran("#!/bin/sh\n: >ran\n"));
	CHECK(said("did not run"));
	unsetenv("SPANK_COLOC_V");
	unsetenv("SLURM_JOB_ID");
}
