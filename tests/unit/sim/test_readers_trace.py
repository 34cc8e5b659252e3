# SPDX-License-Identifier: Apache-2.0
"""The trace CSV: what spreadsheets write is read, and every bad cell is named."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.readers.trace_csv import read_trace
from slurm_coloc.sim.trace import TraceJob

HEADER = "job,name,submit_s,gpus,run_s,memory_mib,smact"
GOOD = "1,resnet,0,1,100,5000,0.5"


def read(folder: Path, *lines: str, notes: list[str] | None = None) -> list[TraceJob]:
    path = folder / "trace.csv"
    path.write_bytes("\n".join(lines).encode())
    return read_trace(path, notes)


def fault(folder: Path, *lines: str) -> str:
    with pytest.raises(UsageFault) as caught:
        read(folder, *lines)
    assert "\n" not in caught.value.message
    return caught.value.message.replace(str(folder), "")


def test_what_a_spreadsheet_writes(tmp_path: Path) -> None:
    jobs = read(
        tmp_path,
        "\ufeff" + HEADER + ",user\r",
        '1,"gpt2, large",0,2,100.5,5000.2,0.5,ada,\r',
        "\r",
        ", , ,,,,,\r",
        " 2 ,b, 30 ,1,7,0,1, bob \r",
    )
    assert [(job.id, job.name, job.user) for job in jobs] == [
        (1, "gpt2, large", "ada"),
        (2, "b", "bob"),
    ]
    assert jobs[0].memory_mib == 5001, "a peak is rounded up"
    assert jobs[1].submit_s == 30 and jobs[1].activity.smact == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("x,a,0,1,1,1,.5", "line 3, column job: 'x' is not a number of 0 or more"),
        ("2.5,a,0,1,1,1,.5", "column job: '2.5' is not a whole number"),
        ("2,a,-1,1,1,1,.5", "column submit_s: '-1'"),
        ("2,a,nan,1,1,1,.5", "column submit_s: 'nan'"),
        ("2,a,inf,1,1,1,.5", "column submit_s: 'inf'"),
        ("2,a,1e300,1,1,1,.5", "column submit_s: '1e300'"),
        ("2,a,0,0,1,1,.5", "column gpus: '0'"),
        ("2,a,0,1.5,1,1,.5", "column gpus: '1.5' is not a whole number"),
        ("2,a,0,1,,1,.5", "column run_s: ''"),
        ("2,a,0,1,1,1,50", "column smact: '50' is not a number of 0 to 1"),
        ("2,a,0,1,1,1", "line 3: 6 values for 7 columns"),
        ("2,a,0,1,1,1,.5,9", "line 3: 8 values for 7 columns"),
        ("1,a,0,1,1,1,.5", "line 3, column job: '1' stands in line 2 already"),
        ('2,"a,0,1,1,1,.5', "line 3"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, words: str) -> None:
    message = fault(tmp_path, HEADER, GOOD, line)
    assert words in message and message.startswith("/trace.csv")


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    assert "no column smact" in fault(tmp_path, HEADER.removesuffix(",smact"), "1,a,0,1,1,1")
    assert "no jobs" in fault(tmp_path, HEADER)
    assert "no column job" in fault(tmp_path, "")
    assert "column name stands there twice" in fault(tmp_path, HEADER + ",name", GOOD + ",b")
    (tmp_path / "latin").write_bytes(b"job,name\n1,\xff\n")
    with pytest.raises(UsageFault, match="not UTF-8"):
        read_trace(tmp_path / "latin")
    with pytest.raises(UsageFault, match="No such file"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(UsageFault, match="directory"):
        read_trace(tmp_path)


def test_estimators_and_what_is_no_estimate(tmp_path: Path) -> None:
    """40000 means "none" in the thesis' own columns; elsewhere it fits an 80 GB GPU."""
    header = HEADER + ",horus_mib,mine_mib,host_mib"
    first, second = read(tmp_path, header, GOOD + ",40000,40000,77", "2,a,0,1,1,1,.5,39999.5,,")
    assert first.estimates == {"horus": None, "mine": 40000} and first.host_mib == 77
    assert second.estimates == {"horus": 40000, "mine": None}


def test_columns_that_are_not_used_are_told(tmp_path: Path) -> None:
    notes: list[str] = []
    read(tmp_path, HEADER + ",usr,x_mib", GOOD + ",ada,5", notes=notes)
    assert notes == ["columns that are not used: usr"]


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes((HEADER + "\n" + GOOD + "\n").encode() + data)
    try:
        assert read_trace(path)[0].id == 1
    except UsageFault as err:
        assert "any.csv" in err.message
