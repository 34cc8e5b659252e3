# SPDX-License-Identifier: Apache-2.0
"""The log of a running job, by a descriptor that the job itself has open.

The agent does not see users' homes (its unit hides them), and a log may lie where only the job's
own mounts lead. So no path is opened: of the job's own processes one is taken whose standard output
or error is the job's log, by its inode, and its descriptor is borrowed (pidfd_getfd(2)). A child
does it: with the user's rights by the time it touches the file, only of a regular file, and in a
limited time.
"""
