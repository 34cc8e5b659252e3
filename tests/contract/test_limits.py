# SPDX-License-Identifier: Apache-2.0
"""The parsers of sacctmgr against what 24.11.5 and 26.05.5 wrote (the same text on both).

Its last column, MaxWall, was added by hand, in the form of sacctmgr's durations.
"""

import os
import pwd

from slurm_coloc.adapters.slurm.commands.limits import (
    ASSOC_COLUMNS,
    QOS_COLUMNS,
    parse_assocs,
    parse_qos,
    with_uids,
)

# sacctmgr -n -P show qos format=<QOS_COLUMNS>
QOS = """\
normal||||||||||||||
q||gres/gpu:a100=1,gres/gpu=2|gres/gpu=1000||gres/gpu=1|gres/gpu=2|||||gres/gpu=7||1-02:00:00|
few|DenyOnLimit,OverPartQOS|||||||gres/gpu=3|billing=39,cpu=64,gres/gpu=1|||gres/gpu=1||normal,q
"""
# sacctmgr -n -P show assoc cluster=... format=<ASSOC_COLUMNS>
ASSOC = """\
root|||||||||||
root|root||||||||||
biology|||root||||||||
biology|ben||||||||||00:30:00
physics|||root||gres/gpu:a100=1,gres/gpu=2||||||
physics|ada|||few||||gres/gpu=1|||
physics|gone||||billing=5||||||
"""


def test_columns_are_those_of_the_recorded_text() -> None:
    assert all(line.count("|") + 1 == len(QOS_COLUMNS) for line in QOS.splitlines())
    assert all(line.count("|") + 1 == len(ASSOC_COLUMNS) for line in ASSOC.splitlines())


def test_qos() -> None:
    found = parse_qos(QOS)
    assert set(found) == {"normal", "few", "q"} and not found["normal"].limits
    assert (found["q"].max_wall_s, found["few"].max_wall_s) == (26 * 3600, None)
    assert found["few"].preempts == {"normal", "q"} and not found["q"].preempts
    assert found["few"].flags == {"DenyOnLimit", "OverPartQOS"}
    assert found["few"].limits == {
        "MaxTRESPerAccount": {"gres/gpu": 3},
        "MaxTRESPerUser": {"billing": 39, "gres/gpu": 1},
        "MinTRESPerJob": {"gres/gpu": 1},
    }
    assert found["q"].limits == {
        "GrpTRES": {"gres/gpu:a100": 1, "gres/gpu": 2},
        "GrpTRESMins": {"gres/gpu": 1000},
        "MaxTRESPerJob": {"gres/gpu": 1},
        "MaxTRESPerNode": {"gres/gpu": 2},
        "MaxTRESRunMinsPerUser": {"gres/gpu": 7},
    }


def test_associations_keep_accounts_and_the_users_that_differ() -> None:
    found = parse_assocs(ASSOC)
    names = [one.title for one in found]
    assert names == [
        "account root",
        "account biology",
        "user ben of account biology",
        "account physics",
        "user ada of account physics",
        "user gone of account physics",
    ]
    physics, ada = found[3], found[4]
    assert found[2].max_wall_s == 1800
    assert (physics.parent, physics.limits["GrpTRES"]["gres/gpu"]) == ("root", 2)
    assert ada.default_qos == "few" and ada.limits == {"MaxTRESPerJob": {"gres/gpu": 1}}


def test_uids_are_asked_once_a_name() -> None:
    me = pwd.getpwuid(os.getuid()).pw_name
    found = parse_assocs(ASSOC.replace("|ada|", f"|{me}|"))
    known: dict[str, int | None] = {"gone": None, "ben": None}
    first = with_uids(found, known)
    assert [one.uid for one in first if one.user] == [None, os.getuid(), None]
    assert known == {"gone": None, "ben": None, me: os.getuid()}
    known[me] = 77
    assert [one.uid for one in with_uids(found, known) if one.user] == [None, 77, None]
