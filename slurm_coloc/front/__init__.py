# SPDX-License-Identifier: Apache-2.0
"""colocd's front: the process that everybody but slurmctld's hook talks to.

It is a child of colocd's main process (slurm_coloc/daemon/front_process.py starts it, restarts it
and ends it) and runs as SlurmUser. It owns the Unix socket that all users may connect to, and the
TCP port. People's questions are answered here, from a read-only connection to the database and by
Slurm's commands. What nodes and admins send is relayed to the main process, after a look at who
sends it. So whatever users send, they hold this process and never the one that slurmctld waits
for.

``front`` starts and stops it, ``operations`` says who may ask what and who answers it, ``pace``
how often.
"""
