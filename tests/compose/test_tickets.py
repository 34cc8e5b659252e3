# SPDX-License-Identifier: Apache-2.0
"""Tickets from hosts without a colocd: the login node and a GPU node hand texts over by TCP with
MUNGE, because plugstack.conf names the controllers there."""

import re
import secrets

import pytest

from tests.cluster.jobs import mlp_summary
from tests.compose.cluster import Cluster

LOGGED = re.compile(r"decision=([0-9a-f]{12}) .*?estimate=(\w+)")


def new_text(cluster: Cluster, user: str) -> str:
    """The path of a summary that nobody has sent before."""
    path = f"/home/{user}/new.txt"
    cluster.put(path, f"{mlp_summary(300)}{secrets.token_hex(8)}\n", user=user)
    return path


@pytest.mark.parametrize("host", ["login", "g1"])
def test_a_host_without_colocd_gets_tickets(cluster: Cluster, host: str) -> None:
    words = ["--parsable", "--hold", "--gpus=1", "--coloc-batch-size=32", "--wrap=true"]
    for user in cluster.users:
        text = f"--coloc={new_text(cluster, user)}"
        done = cluster.run(["sbatch", text, *words], user=user, on=host)
        job_id = done.stdout.split()[-1].split(";")[0]
        shown = cluster.run(["scontrol", "-o", "show", "job", job_id], on="controller").stdout
        mark = re.search(r"coloc:1:([0-9a-f]{12}):(\w+):([\w-]+):", shown)
        assert mark and mark[2] == "collocate", shown

        def found_by(decision: str = mark[1]) -> str | None:
            said = cluster.run(["cat", "/var/log/slurm/colocd.out"], on="controller").stdout
            return dict(LOGGED.findall(said)).get(decision)

        assert cluster.until(found_by, 20, "the decision is in colocd's log") == "ticket"


def test_with_a_ticket_no_text_travels(cluster: Cluster) -> None:
    words = ["salloc", f"--coloc={new_text(cluster, 'ada')}", "--gpus=1", "env"]
    said = cluster.run(words, user="ada").stdout
    assert "SLURM_SPANK_COLOC_TICKET=" in said and "SLURM_SPANK_COLOC_SUMMARY=" not in said
