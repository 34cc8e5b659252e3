/* SPDX-License-Identifier: Apache-2.0
 * The hooks' folder on this node (hooks.run_dir of coloc.toml).
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coloc.h"

/* run_dir with the first %n replaced by the NodeName; false when it does not fit. */
bool coloc_node_dir(const char *run_dir, char *out, size_t size)
{
	const char *mark = strstr(run_dir, "%n");
	const char *node = getenv("SLURMD_NODENAME");
	int len;

	if (!mark)
		len = snprintf(out, size, "%s", run_dir);
	else if (!node || node[0] == '\0' || node[0] == '.' || strchr(node, '/'))
		return false;
	else
		len = snprintf(out, size, "%.*s%s%s", (int) (mark - run_dir), run_dir, node,
		               mark + 2);
	return len > 0 && (size_t) len < size;
}

/* Only root may have made and may write the folder. */
int coloc_open_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && !(st.st_mode & 022))
		return fd;
	close(fd);
	return -1;
}

void coloc_keep(struct coloc_kept *kept, int fd)
{
	kept->fd = fd;
	if (fd >= 0 && fstat(fd, &kept->seen) != 0) {
		close(fd);
		kept->fd = -1;
	}
}

int coloc_take(struct coloc_kept *kept)
{
	struct stat st;
	int fd = kept->fd;

	kept->fd = -1;
	if (fd < 0 || fstat(fd, &st) != 0 || st.st_dev != kept->seen.st_dev ||
	    st.st_ino != kept->seen.st_ino)
		return -1;
	kept->seen = st;
	return fd;
}
