/* SPDX-License-Identifier: Apache-2.0
 *
 * no-namespaces.so, preloaded into a slurmd that lives in a container without CAP_SYS_ADMIN.
 *
 * From 23.11 on, slurmd asks `su` for a user's environment (--export=NONE, --get-user-env) inside a
 * new pid and mount namespace, and ends itself ("fatal: clone: Operation not permitted") where it
 * may not make one. Up to 24.11 GetEnvTimeout=0 and a file in env_cache went round it; 26.05 has no
 * such cache any more. Slurm forks instead where the kernel says that no namespace may be made:
 * /proc/sys/user/max_pid_namespaces is 0. That file is read-only in a container, so this says it.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef FILE *opener(const char *path, const char *mode);

__attribute__((visibility("default"))) FILE *fopen(const char *path, const char *mode)
{
    static char zero[] = "0\n";
    static opener *next;

    if (!strcmp(path, "/proc/sys/user/max_pid_namespaces") ||
        !strcmp(path, "/proc/sys/user/max_mnt_namespaces"))
        return fmemopen(zero, sizeof zero - 1, "r");
    if (!next)
        next = (opener *)dlsym(RTLD_NEXT, "fopen");
    return next(path, mode);
}
