# SPDX-License-Identifier: Apache-2.0
"""Real trainings, cut at each of several steps, end as uncut ones; the adapters with the real
frameworks. Skipped without torch, Lightning, transformers."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from slurm_coloc.checkpoint import Checkpointer, files, rng  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]


def train(path: Path, cut_at: int | None, workers: int, own: bool) -> dict[str, Any] | None:
    """A few epochs on the CPU; None where it was cut. ``own``: the loader has its generator."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = torch.utils.data.TensorDataset(torch.randn(23, 4))
    generator = torch.Generator().manual_seed(11) if own else None
    loader = torch.utils.data.DataLoader(
        data, 4, shuffle=True, num_workers=workers, generator=generator
    )
    with Checkpointer(path, model=model, optimizer=optimizer) as run:
        try:
            for _ in run.epochs(3):
                for (inputs,) in run.batches(loader):
                    optimizer.zero_grad()
                    model(inputs + torch.randn_like(inputs)).square().mean().backward()
                    optimizer.step()
                    if run.steps + 1 == cut_at:
                        run.slot.end()
                    run.step()
        except SystemExit:
            return None
    found: dict[str, Any] = model.state_dict()
    return found


@pytest.mark.parametrize(("workers", "own"), [(0, False), (0, True), (2, False)])
def test_cut_anywhere_it_ends_bit_for_bit(tmp_path: Path, workers: int, own: bool) -> None:
    whole = train(tmp_path / "whole", None, workers, own)
    assert whole is not None
    for cut_at in (1, 5, 6, 7, 17):
        path = tmp_path / str(cut_at)
        assert train(path, cut_at, workers, own) is None
        again = train(path, None, workers, own)
        assert again is not None
        assert all(torch.equal(whole[name], again[name]) for name in whole), cut_at


def test_cut_at_every_step(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", None, 0, False)
    assert whole is not None
    for step in range(1, 19):
        assert train(tmp_path / "run", step, 0, False) is None
    again = train(tmp_path / "run", None, 0, False)
    assert again is not None and all(torch.equal(whole[name], again[name]) for name in whole)


def test_a_large_tensor_and_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "x"
    value = torch.randn(1_000_000)
    files.save(path, {"value": value})
    assert torch.equal(files.load(path)["value"], value)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    with pytest.raises(files.CheckpointError, match="damaged"):
        files.load(path)


def test_all_random_numbers_go_on() -> None:
    numpy = pytest.importorskip("numpy")
    import random

    before = rng.states()
    first = (random.random(), numpy.random.rand(), torch.rand(3).tolist())
    rng.restore(before)
    assert (random.random(), numpy.random.rand(), torch.rand(3).tolist()) == first


RANKS = """
import os, sys, torch
sys.path.insert(0, {root!r})
from slurm_coloc.checkpoint import Checkpointer
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
model = torch.nn.Linear(2, 1)
with Checkpointer("run.ckpt", model=model) as run:
    print("rank", rank, "from", run.steps, flush=True)
    for _ in run.epochs(1):
        for number in run.batches(range(6)):
            if rank == 1 and run.steps == 2 and not run.restored:
                run.slot.end()  # one rank alone is told
            run.step()
    print("rank", rank, "ended at", run.steps, flush=True)
torch.distributed.destroy_process_group()
"""


def test_ranks_leave_together(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(RANKS.format(root=str(ROOT)))
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    env.pop("SLURM_JOB_ID", None)

    def run() -> tuple[list[int], str]:
        words = [sys.executable, str(program)]
        each = [
            subprocess.Popen(
                words,
                cwd=tmp_path,
                env=env | {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": port()},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(2)
        ]
        told = [one.communicate(timeout=120)[0] for one in each]
        return [one.returncode for one in each], "".join(told)

    codes, told = run()
    assert codes == [75, 75], told
    assert told.count("coloc: checkpoint saved") == 1
    codes, told = run()
    assert codes == [0, 0] and told.count("from 3") == 2 and told.count("ended at 6") == 2, told


def port() -> str:
    """One that both ranks know and another test run does not use."""
    return str(20000 + os.getpid() % 20000)


def test_lightning_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    from slurm_coloc.checkpoint.for_lightning import SlotCallback

    monkeypatch.delenv("SLURM_JOB_ID", raising=False)

    class Net(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            if self.cut_at == self.global_step:
                slot.slot.end()
            return self.layer(batch[0]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    def fit(cut_at: int) -> int:
        nonlocal slot
        torch.manual_seed(1)
        slot = SlotCallback(str(tmp_path / "run.ckpt"))
        net = Net()
        net.cut_at = cut_at
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(40, 4)), 4)
        trainer = lightning.Trainer(
            max_epochs=2, accelerator="cpu", logger=False, callbacks=[slot], barebones=False,
            enable_checkpointing=False, enable_progress_bar=False, default_root_dir=tmp_path,
        )  # fmt: skip
        trainer.fit(net, data, ckpt_path=slot.last)
        return int(trainer.global_step)

    slot = SlotCallback("unused")
    with pytest.raises(SystemExit):
        fit(cut_at=13)
    saved = torch.load(tmp_path / "run.ckpt", weights_only=False)
    assert saved["global_step"] == 14 and saved["epoch"] == 1
    assert fit(cut_at=-1) == 20


def test_the_trainer_of_transformers_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from slurm_coloc.checkpoint.for_transformers import SlotCallback, last_checkpoint

    monkeypatch.delenv("SLURM_JOB_ID", raising=False)

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
            self.drop = torch.nn.Dropout(0.5)

        def forward(self, x: Any) -> dict[str, Any]:
            return {"loss": self.drop(self.layer(x)).square().mean()}

    def fit(where: Path, cut_at: int) -> Any:
        torch.manual_seed(1)
        data = [{"x": row} for row in torch.randn(40, 4)]
        net, slot = Net(), SlotCallback()
        args = transformers.TrainingArguments(
            str(where), max_steps=20, per_device_train_batch_size=4, save_strategy="no",
            report_to=[], use_cpu=True, disable_tqdm=True, seed=5, remove_unused_columns=False,
        )  # fmt: skip

        class Cut(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
            def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
                if state.global_step == cut_at:
                    slot.slot.end()

        trainer = transformers.Trainer(net, args, train_dataset=data, callbacks=[Cut(), slot])
        trainer.train(resume_from_checkpoint=last_checkpoint(str(where)))
        return net.layer.weight.detach().clone()

    whole = fit(tmp_path / "whole", -1)
    with pytest.raises(SystemExit):
        fit(tmp_path / "cut", 13)
    (tmp_path / "cut" / "checkpoint-99").mkdir()  # one that was killed while it was written
    found = last_checkpoint(str(tmp_path / "cut"))
    assert found is not None and found.endswith("checkpoint-14")
    assert torch.equal(fit(tmp_path / "cut", -1), whole)
