# SPDX-License-Identifier: Apache-2.0
"""The third rung on a real Slurm: where MPS is not to be had, frameworks hold themselves.

The kernel's rung needs cgroup v2 under Slurm, which no lab has (ADR 12 says what was tried): its
halves are tested in tests/unit/emulator/test_limits.py and by make -C spank check.
"""

import json
from collections.abc import Callable

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import desk, shards, until

STREAMS = {"method": "streams"}


def fraction(lab: Lab, job_id: int) -> str:
    """The job's share of the card as the plugin writes it."""
    return f"{shards(lab.job(job_id)) * 1024 * 10000 // 40960 / 10000:.4f}"


def test_a_step_of_a_python_that_knows_limits(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(settings={"sharing": STREAMS})
    me = desk(lab, 170)
    home = lab.home(me.user or "")
    for name, version in (("new", "2.10.0+cu128"), ("old", "2.9.1+cu128")):
        torch = home / name / "lib" / "python3.11" / "site-packages" / "torch"
        torch.mkdir(parents=True)
        (torch / "version.py").write_text(f"__version__ = '{version}'\n")
        (home / name / "bin").mkdir()
        python = home / name / "bin" / "python"
        python.write_text(f"#!/bin/sh\nenv | sed 's/^/{name}: /'\n")
        python.chmod(0o755)
    script = "\n".join(
        [
            "#!/bin/sh",
            "env | sed 's/^/batch: /'",
            *(f"srun {home}/{name}/bin/python train.py" for name in ("new", "old")),
            f"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True srun {home}/new/bin/python",
        ]
    )
    job_id = me.submit("--mem=50", script=script + "\n")
    lab.wait(job_id, "COMPLETED", 90)
    out = lab.output(job_id)
    limit = f"per_process_memory_fraction:{fraction(lab, job_id)}"
    assert f"new: PYTORCH_ALLOC_CONF={limit}\n" in out
    assert f"new: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,{limit}\n" in out
    for name in ("old", "batch"):
        assert f"{name}: XLA_PYTHON_CLIENT_PREALLOCATE=false\n" in out
        assert f"{name}: PYTORCH_ALLOC_CONF" not in out
    assert "not fenced: no MPS, this site shares this GPU without MPS" in out


@pytest.mark.parametrize("framework", ["pytorch", "jax"])
def test_what_a_framework_refuses_is_told(make_lab: Callable[..., Lab], framework: str) -> None:
    lab = make_lab(settings={"sharing": {**STREAMS, "frameworks": "always"}})
    me = desk(lab, 171)
    train = me.train(memory_mib=16000, smact=0.1, work_s=1, framework=framework)
    job_id = me.submit("--mem=50", "--no-requeue", wrap=train)
    lab.wait(job_id, "FAILED", 60)
    assert "held by its framework only: no MPS" in lab.output(job_id)
    held = shards(lab.job(job_id))

    def told() -> str:
        return "\n".join(one["text"] for one in me.explain(job_id)["story"])

    until(lambda: "ran out of GPU memory" in told(), 30, "colocd has closed the run")
    if framework == "pytorch":  # JAX's text does not name its limit
        assert f"at its own limit of {held}.0 GiB, which its framework holds" in told()


def test_rules_for_single_gpus(make_lab: Callable[..., Lab]) -> None:
    """Streams on one GPU of a node, MPS on the other."""
    rules: list[dict[str, str]] = [
        {"node": "elsewhere[1-4]", "method": "streams"},
        {"node": "n[1-2]", "gpu": "0", "method": "streams"},
        {"node": "n1", "method": "mps"},
    ]
    lab = make_lab(settings={"sharing": {**STREAMS, "frameworks": "off", "rules": rules}})
    me = desk(lab, 900)  # two of them do not fit one card
    train = me.train(memory_mib=3000, smact=0.1, work_s=30)
    jobs = [me.submit("--mem=50", wrap=train) for _ in range(2)]
    shown = lab.run(["coloc-emu", "show", f"{lab.dir}/nodes/n1/ledger", "--json"]).stdout
    uuids = [gpu["uuid"] for gpu in json.loads(shown)["gpus"]]
    told: dict[str, str] = {}
    for job_id in jobs:
        until(lambda job_id=job_id: "rank 0 on" in lab.output(job_id), 60, "it trains")
        out = lab.output(job_id)
        uuid = next(one for one in uuids if f"rank 0 on {one}" in out)
        told[uuid] = next(line for line in out.splitlines() if line.startswith("coloc: "))
    assert "not fenced: no MPS, this site shares this GPU without MPS" in told[uuids[0]]
    assert told[uuids[1]].endswith("for this job (MPS)")
