# SPDX-License-Identifier: Apache-2.0
"""MPS control daemons of a node: one for a GPU and a user, from the first job to the last.

``jobs``: which jobs use the daemon of one GPU. ``node``: the daemons of all GPUs, when a job ends.
``daemon``: start and stop one. ``processes``: which are alive, by pid and start time. ``lock``: one
hook at a time. ``aside``: work that goes on behind a hook. ``removal``: what a user left in the
folders of a daemon, with the user's rights and behind the hook.

Layout, below the hooks' run_dir, all folders root's and writable by root alone but pipe/ and log/
and the folder that holds them:

    mps/<gpu>/lock              held while anything below changes; root alone may open it
    mps/<gpu>/jobs/<job>.<restart>.<uid>
    mps/<gpu>/daemon.json       the daemon that we started: pid, start time, uid, GPU
    mps/<gpu>/<uid or all>/     pipe/ and log/, of the user that the daemon runs as
    mps/.old/                   folders of daemons that have ended, until they are removed; 0700

A daemon runs as the user that it serves, so that nothing that a user does to its folders or its
limits reaches beyond this user's own jobs; only the one for all users runs as root. Its pid is that
of the process that we started, never what a file in a user's folder says.
"""
