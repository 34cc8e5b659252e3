# SPDX-License-Identifier: Apache-2.0
"""The hooks' environment and settings: defaults, and values that nobody should send."""

from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.hookenv import HookSettings, read_job, read_settings
from slurm_coloc.config import Config, load_config
from slurm_coloc.core.gpu.sharing import method_on
from slurm_coloc.errors import ConfigError, UsageFault

GOOD = {
    "SLURM_JOB_ID": "77",
    "SLURM_JOB_UID": "1000",
    "SLURM_JOB_GID": "1000",
    "SLURM_JOB_USER": "ann",
    "SLURM_JOB_WORK_DIR": "/home/ann",
    "SLURM_CLUSTER_NAME": "c",
    "SLURMD_NODENAME": "n1",
    "SLURM_JOB_STDIN": "/dev/null",
    "SLURM_JOB_EXIT_CODE2": "1:0",
    "SLURM_JOB_GPUS": "0,3",
    "SPANK_COLOC_V": "1",
}


def test_good_values() -> None:
    job = read_job(GOOD)
    assert (job.job_id, job.uid, job.restart, job.numbers, job.uuids) == (77, 1000, 0, (0, 3), ())
    assert (job.exit_code, job.signal, job.batch, job.stdout) == (1, 0, True, None)


def test_gpus_as_uuids_where_the_numbers_are_missing() -> None:
    uuid = "GPU-562c1503-1bd8-48da-4774-33fd0d7ab742"
    env = {**GOOD, "SLURM_JOB_GPUS": "", "CUDA_VISIBLE_DEVICES": f"{uuid},MIG-{uuid}"}
    job = read_job(env)
    assert job.numbers == ()
    assert job.uuids == (uuid, f"MIG-{uuid}")


@pytest.mark.parametrize("value", ["", "NoDevFiles"])
def test_no_gpu(value: str) -> None:
    job = read_job({**GOOD, "SLURM_JOB_GPUS": "", "CUDA_VISIBLE_DEVICES": value})
    assert job.numbers == job.uuids == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLURM_JOB_ID", ""),
        ("SLURM_JOB_ID", "0"),
        ("SLURM_JOB_ID", "-1"),
        ("SLURM_JOB_ID", "1/../../etc"),
        ("SLURM_JOB_ID", "٣"),
        ("SLURM_JOB_ID", "1\n2"),
        ("SLURM_JOB_ID", "4294967295"),
        ("SLURM_JOB_ID", "9" * 400),
        ("SLURM_JOB_UID", "-1"),
        ("SLURM_JOB_UID", "4294967295"),
        ("SLURM_JOB_UID", "root"),
        ("SLURM_JOB_USER", "a/b"),
        ("SLURM_JOB_USER", "a b"),
        ("SLURMD_NODENAME", "../n1"),
        ("SLURMD_NODENAME", ".."),
        ("SLURM_CLUSTER_NAME", "x\ny"),
        ("SLURM_JOB_RESTART_COUNT", "x"),
        ("SLURM_JOB_GPUS", "0;id"),
        ("SLURM_JOB_GPUS", "$(id)"),
        ("SLURM_JOB_GPUS", "0," * 200),
        ("SLURM_JOB_GPUS", "99999"),
        ("SLURM_JOB_GPUS", "GPU-../../etc/passwd\n"),
        ("SLURM_JOB_WORK_DIR", "/x" * 3000),
        ("SLURM_JOB_STDOUT", "x" * 5000),
    ],
)
def test_bad_values_are_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(UsageFault, match=name):
        read_job({**GOOD, name: value})


@pytest.mark.parametrize("value", ["", "1", "1:0:0", "a:b", "99999:0"])
def test_an_exit_code_that_is_not_one_is_unknown(value: str) -> None:
    job = read_job({**GOOD, "SLURM_JOB_EXIT_CODE2": value})
    assert (job.exit_code, job.signal) == (None, None)


def test_hostile_spank_values_change_nothing() -> None:
    hostile = {
        "SPANK_COLOC_V": "$(touch /tmp/x)",
        "SPANK_COLOC_SUMMARY": "../" * 20000,
        "SPANK_LD_PRELOAD": "/tmp/x.so",
        "SPANK_SLURM_JOB_UID": "0",
    }
    assert read_job({**GOOD, **hostile}) == read_job(GOOD)


AGENT = (
    *("sample", "dcgmi", "job_stats", "idle_after_s", "window_s", "beat_s", "job_mapping_dir"),
    "log_read_s",
)
METRICS = ("agent_port", "address", "allow", "token_file", "names")


def test_defaults_are_those_of_the_configuration() -> None:
    config = Config()
    ours = HookSettings()
    for name in HookSettings._fields:
        section: Any = config.hooks
        if name in ("socket", "slurm_user"):
            section = config.daemon
        elif name in ("controllers", "munge_socket"):
            section = config.network
        elif name == "shard_mib":
            section = config.pool
        elif name in (
            *("method", "users", "thread_percentage", "mps_control"),
            *("cgroup", "frameworks", "rules", "several_gpus"),
        ):
            section = config.sharing
        elif name == "context_mib":
            section = config.estimate
        elif name == "overrun":
            section = config.fence
        elif name in METRICS:
            section = config.metrics
        elif name in AGENT:
            section = config.agent
        assert getattr(ours, name) == getattr(section, name)


def test_settings_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "coloc.toml"
    file.write_text(
        'version = 1\n[daemon]\nsocket = "/s"\nslurm_user = "u"\n[recovery]\nenabled = true\n'
        '[hooks]\nspool_dir = "/p"\nrun_dir = "/r"\nlog_tail_kib = 8\nnvml = false\n'
        '[network]\ncontrollers = ["c1:6824", "c2"]\nmunge_socket = "/m"\nlisten = ":1"\n'
    )
    assert read_settings({"COLOC_CONFIG": str(file)}) == HookSettings(
        Path("/s"), "u", Path("/p"), Path("/r"), 8, False, ("c1:6824", "c2"), Path("/m")
    )


RULES = """
[sharing]
method = "streams"
[[sharing.rules]]
node = "gpu[01-04],n1"
gpu = "1"
method = "mps"
[[sharing.rules]]
gpu = "GPU-11111111-2222-3333-4444-555555555555"
method = "streams"
[[sharing.rules]]
node = "n2"
method = "mps"
"""


def test_rules_for_single_gpus(tmp_path: Path) -> None:
    """The hooks and the whole configuration read the same; the first that fits decides."""
    file = tmp_path / "coloc.toml"
    file.write_text(f"version = 1\n{RULES}")
    ours = read_settings({"COLOC_CONFIG": str(file)})
    theirs = load_config(file).sharing
    assert [(one.node, one.gpu, one.method) for one in ours.rules] == [
        (one.node, one.gpu, one.method) for one in theirs.rules
    ]
    named = "GPU-11111111-2222-3333-4444-555555555555"
    other = "GPU-99999999-2222-3333-4444-555555555555"
    told = {
        where: method_on(ours.method, ours.rules, *where)
        for where in [
            ("gpu03", other, 1),
            ("gpu05", other, 1),
            ("gpu03", other, 0),
            ("n2", named, 0),
            ("n2", other, 0),
            ("n3", other, None),
        ]
    }
    assert list(told.values()) == ["mps", "streams", "streams", "streams", "mps", "streams"]


@pytest.mark.parametrize(
    "text",
    [
        "[[sharing.rules]]\nmethod = 'mig'",
        "[[sharing.rules]]\ngpu = '0'",
        "[[sharing.rules]]\nmethod = 'mps'\ngpu = 0",
        "[[sharing.rules]]\nmethod = 'mps'\ngpu = 'first'",
        "[[sharing.rules]]\nmethod = 'mps'\nnode = 'a b'",
        "[[sharing.rules]]\nmethod = 'mps'\nuuid = 'x'",
        "[sharing]\nrules = 'mps'",
        "[sharing]\nrules = ['mps']",
        "[hooks]\nlog_tail_kib = '8'",
        "[hooks]\nlog_tail_kib = true",
        "[hooks]\nlog_tail_kib = 1",
        "[hooks]\nnvml = 1",
        "[sharing]\nmethod = 'vgpu'",
        "[sharing]\nusers = 'two'",
        "[sharing]\nthread_percentage = 101",
        "[sharing]\nseveral_gpus = 'mps'",
        "[pool]\nshard_mib = 0",
        "[metrics]\nagent_port = 65536",
        "[metrics]\nnames = ['coloc', 'gpu']",
        "[metrics]\nallow = '10.0.0.0/8'",
        "[hooks]\nrun_dir = 3",
        "[network]\ncontrollers = 'c1'",
        "[network]\ncontrollers = [1]",
        "[network]\nmunge_socket = 1",
        "[hooks",
        "\xff",
    ],
)
def test_a_wrong_setting_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "coloc.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError):
        read_settings({"COLOC_CONFIG": str(file)})
    with pytest.raises(ConfigError):
        read_settings({"COLOC_CONFIG": str(tmp_path / "missing")})
