# SPDX-License-Identifier: Apache-2.0
"""`make promise`: five users and 300 jobs on a private Slurm in the default configuration.

``plan`` draws the jobs, ``witness`` writes down each second what every process holds and what every
job was promised, ``accounts`` collects what Slurm, the jobs and colocd say at the end, ``judge``
compares them (it knows nothing of slurm_coloc's own records but what colocd tells people), ``run``
does it all and prints the table.
"""
