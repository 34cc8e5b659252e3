# SPDX-License-Identifier: Apache-2.0
"""Small trainings in real frameworks, for the sake of what they print: python trainings.py KIND
SEED SECONDS [--epochs N].

The frameworks are the real ones; the time goes into waiting for batches, as where the data is slow:
a slow begin, steps that vary, a validation after each epoch, and a save.
"""

import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH = 4
OPTIONS = ("--epochs", "--num_train_epochs")


@dataclass
class Plan:
    """How long what takes, in seconds."""

    epochs: int
    steps: int
    validation: int
    step_s: float
    begin_s: float
    save_s: float
    jitter: float
    seed: int

    def draws(self) -> Iterator[float]:
        """Times of steps, one after the other; neighbours come and go."""
        draw = random.Random(self.seed)
        slow, left = 1.0, 0
        while True:
            if left == 0:
                slow, left = draw.choice((1.0, 1.0, 1.15)), draw.randint(40, 400)
            left -= 1
            yield self.step_s * slow * draw.lognormvariate(0.0, self.jitter)


def planned(seed: int, total_s: float, epochs: int | None) -> Plan:
    """A training that takes about ``total_s``."""
    draw = random.Random(seed)
    chosen = epochs or draw.choice((2, 3, 5, 8, 10, 15, 30))
    steps = draw.choice((20, 40, 80, 120, 250))
    validation = max(1, round(steps * draw.choice((0.05, 0.1, 0.2))))
    begin_s, save_s = draw.uniform(0.5, 4.0), draw.uniform(0.0, 0.2)
    busy_s = max(5.0, total_s - begin_s - chosen * save_s)
    step_s = busy_s / (chosen * (steps + 0.5 * validation))
    return Plan(chosen, steps, validation, step_s, begin_s, save_s, draw.uniform(0.05, 0.3), seed)


class Batches(Dataset[Any]):
    """``count`` batches, each of which takes its time."""

    def __init__(self, count: int, wait: Callable[[], float]) -> None:
        self._count, self._wait = count, wait

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> Any:
        if place >= self._count:
            raise IndexError(place)
        time.sleep(self._wait())
        return torch.randn(BATCH, 8), torch.randint(0, 2, (BATCH,))


class Training:
    """The model and its data."""

    def __init__(self, plan: Plan) -> None:
        draws = plan.draws()
        self.plan = plan
        self.train = Batches(plan.steps, lambda: next(draws))
        self.validation = Batches(plan.validation, lambda: next(draws) / 2)
        self.model = nn.Linear(8, 2)
        self.loss = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)

    def loaders(self) -> tuple[Any, Any]:
        """For training and validation."""
        return (
            DataLoader(self.train, batch_size=None),
            DataLoader(self.validation, batch_size=None),
        )

    def step(self, batch: Any) -> float:
        """One step of training."""
        self.optimizer.zero_grad()
        found = self.loss(self.model(batch[0]), batch[1])
        found.backward()
        self.optimizer.step()
        return float(found)

    def validate(self) -> float:
        """One validation."""
        found = [float(self.loss(self.model(x), y)) for x, y in self.validation]
        return sum(found) / len(found)


def lightning(training: Training) -> None:
    """Lightning's Trainer with tqdm's bar. Rich's writes nothing to a file until its end."""
    import lightning as pl
    from lightning.pytorch.callbacks import TQDMProgressBar

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = training.model

        def training_step(self, batch: Any, _: int) -> Any:
            found = training.loss(self.model(batch[0]), batch[1])
            self.log("loss", found, prog_bar=True)
            return found

        def validation_step(self, batch: Any, _: int) -> None:
            self.log("val_loss", training.loss(self.model(batch[0]), batch[1]), prog_bar=True)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.01)

    loaders = training.loaders()
    trainer = pl.Trainer(
        max_epochs=training.plan.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        callbacks=[TQDMProgressBar()],
    )
    trainer.fit(Module(), *loaders)


def transformers(training: Training) -> None:
    """The Hugging Face Trainer."""
    from transformers import Trainer, TrainingArguments

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = training.model

        def forward(self, x: Any, labels: Any) -> Any:
            logits = self.model(x)
            return {"loss": training.loss(logits, labels), "logits": logits}

    class Rows(Batches):
        def __getitem__(self, place: int) -> Any:
            x, y = super().__getitem__(place)
            return {"x": x[0], "labels": y[0]}

    draws = training.plan.draws()
    arguments = TrainingArguments(
        output_dir="/tmp/unused",
        num_train_epochs=training.plan.epochs,
        per_device_train_batch_size=1,
        per_device_eval_batch_size=1,
        eval_strategy="epoch",
        save_strategy="no",
        logging_steps=max(5, training.plan.steps // 4),
        report_to=[],
        use_cpu=True,
    )
    Trainer(
        Model(),
        arguments,
        train_dataset=Rows(training.plan.steps, lambda: next(draws)),
        eval_dataset=Rows(training.plan.validation, lambda: next(draws) / 2),
    ).train()


def keras(training: Training) -> None:
    """Keras on PyTorch."""
    import os

    os.environ["KERAS_BACKEND"] = "torch"
    import keras as k
    import numpy as np

    class Sequence(k.utils.PyDataset):  # type: ignore[name-defined,misc]
        def __init__(self, inner: Batches) -> None:
            super().__init__()
            self.inner = inner

        def __len__(self) -> int:
            return len(self.inner)

        def __getitem__(self, place: int) -> Any:
            x, y = self.inner[place]
            return np.asarray(x), np.asarray(y)

    model = k.Sequential([k.layers.Dense(2)])
    loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="sgd", loss=loss, metrics=["accuracy"])
    model.fit(
        Sequence(training.train),
        validation_data=Sequence(training.validation),
        epochs=training.plan.epochs,
    )


def ignite(training: Training) -> None:
    """PyTorch Ignite with its ProgressBar."""
    from ignite.contrib.handlers import ProgressBar
    from ignite.engine import Engine, Events

    engine = Engine(lambda _, batch: training.step(batch))
    ProgressBar().attach(engine, output_transform=lambda found: {"loss": found})
    engine.add_event_handler(Events.EPOCH_COMPLETED, training.validate)
    engine.run(training.loaders()[0], max_epochs=training.plan.epochs)


def skorch(training: Training) -> None:
    """Skorch's table: one row an epoch."""
    import numpy as np
    from skorch import NeuralNetClassifier

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = nn.Linear(8, 2)

        def forward(self, x: Any) -> Any:
            time.sleep(next(draws))
            return torch.softmax(self.model(x), -1)

    draws = training.plan.draws()
    net = NeuralNetClassifier(Module, max_epochs=training.plan.epochs, batch_size=1)
    count = max(5, training.plan.steps)
    net.fit(np.random.randn(count, 8).astype("float32"), np.arange(count) % 2)


def tqdm_epochs(training: Training) -> None:
    """A bar for each epoch, as most scripts have it."""
    from tqdm import tqdm

    for epoch in range(training.plan.epochs):
        bar = tqdm(training.loaders()[0], desc=f"Epoch {epoch + 1}/{training.plan.epochs}")
        for batch in bar:
            bar.set_postfix(loss=training.step(batch))
        print(f"val_loss: {training.validate():.4f}")
        time.sleep(training.plan.save_s)


def tqdm_plain(training: Training) -> None:
    """A bar for each epoch without a word, and the validation's beside it."""
    from tqdm import tqdm

    for epoch in range(training.plan.epochs):
        for batch in tqdm(training.loaders()[0]):
            training.step(batch)
        for x, _ in tqdm(training.loaders()[1]):
            training.model(x)
        print(f"epoch {epoch}: done")


def accelerate(training: Training) -> None:
    """As the scripts without a Trainer: one bar over all steps."""
    from tqdm.auto import tqdm

    bar = tqdm(range(training.plan.epochs * training.plan.steps))
    for _ in range(training.plan.epochs):
        for batch in training.train:
            training.step(batch)
            bar.update(1)
        training.validate()


def imagenet(training: Training) -> None:
    """The lines of PyTorch's ImageNet example."""
    every = max(1, training.plan.steps // 10)
    for epoch in range(training.plan.epochs):
        for number, batch in enumerate(training.train):
            found = training.step(batch)
            if number % every == 0:
                print(f"Epoch: [{epoch}][{number + 1:4d}/{training.plan.steps}]\tLoss {found:.4e}")
        for number, (x, _) in enumerate(training.validation):
            training.model(x)
            print(f"Test: [{number + 1:3d}/{training.plan.validation}]\tTime  0.01")
        print(" *   Acc@1 0.500 Acc@5 0.900")


def mnist(training: Training) -> None:
    """The lines of PyTorch's MNIST example."""
    rows, every = training.plan.steps * BATCH, max(1, training.plan.steps // 10)
    for epoch in range(1, training.plan.epochs + 1):
        for number, batch in enumerate(training.train):
            found = training.step(batch)
            if number % every == 0:
                at, part = number * BATCH, 100.0 * number / training.plan.steps
                print(f"Train Epoch: {epoch} [{at}/{rows} ({part:.0f}%)]\tLoss: {found:.6f}")
        print(f"\nTest set: Average loss: {training.validate():.4f}, Accuracy: 1/2 (50%)\n")


def tutorial(training: Training) -> None:
    """The lines of PyTorch's tutorial on transfer learning."""
    last = training.plan.epochs - 1
    for epoch in range(training.plan.epochs):
        print(f"Epoch {epoch}/{last}")
        print("-" * 10)
        found = [training.step(batch) for batch in training.train]
        print(f"train Loss: {sum(found) / len(found):.4f} Acc: 0.5")
        print(f"val Loss: {training.validate():.4f} Acc: 0.5\n")


def prints(training: Training) -> None:
    """One line at the end of each epoch."""
    total = training.plan.epochs
    for epoch in range(total):
        found = [training.step(batch) for batch in training.train]
        mean, other = sum(found) / len(found), training.validate()
        print(f"Epoch {epoch + 1}/{total}, train loss: {mean:.4f}, val loss: {other:.4f}")


def steps(training: Training) -> None:
    """Steps alone, of which the command line says how many there are."""
    total, done = training.plan.epochs * training.plan.steps, 0
    print(f"max_steps = {total}")
    every = max(1, total // 60)
    for _ in range(training.plan.epochs):
        for batch in training.train:
            found = training.step(batch)
            done += 1
            if done % every == 0:
                print(f"step {done}: loss {found:.4f}, time {training.plan.step_s * 1e3:.2f}ms")


KINDS: dict[str, Callable[[Training], None]] = {
    one.__name__: one
    for one in (
        *(lightning, transformers, keras, ignite, skorch, accelerate),
        *(tqdm_epochs, tqdm_plain, imagenet, mnist, tutorial, prints, steps),
    )
}


def main(words: list[str]) -> None:
    """Run one."""
    epochs = next(
        (int(new) for old, new in pairwise(words) if old in ("--epochs", "--num_train_epochs")),
        None,
    )
    training = Training(planned(int(words[1]), float(words[2]), epochs))
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    print("loading data and model")
    time.sleep(training.plan.begin_s)
    KINDS[words[0]](training)


if __name__ == "__main__":
    main(sys.argv[1:])
