# SPDX-License-Identifier: Apache-2.0
"""Which models are judged: the same list for a seed, as long as libraries have the same models.

Half are drawn (convolutional, MLPs, Transformers, recurrent, graphs, U-Nets, random wires), half
are those of timm and transformers, a name once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Any

from estimator.generated import graphs, recurrent, unet, wired
from estimator.gpumemnet.models import cnn, mlp, transformer
from estimator.gpumemnet.models.drawn import Drawn
from slurm_coloc.summarize.jobs import Job

#: who draws, and how often among the drawn ones
DRAWERS: tuple[tuple[str, Callable[[Random], Drawn], int], ...] = (
    ("cnn", cnn.draw, 5),
    ("mlp", mlp.draw, 2),
    ("transformer", transformer.draw, 4),
    ("recurrent", recurrent.draw, 3),
    ("graph", graphs.draw, 2),
    ("u-net", unet.draw, 3),
    ("wired", wired.draw, 2),
)
#: parameters that a model of timm has at most: larger ones take long and show nothing else
LARGEST = 120_000_000
PRECISIONS = ("fp32", "fp32", "fp32", "fp32", "amp", "amp", "bf16")
OPTIMIZERS = ("sgd", "sgd-momentum", "adam", "adamw", "adamw", "rmsprop", "adagrad", "lion")
BATCHES = (1, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Case:
    """A model and how it is trained. ``job`` makes it where it is called: fake, meta or real.
    ``checkpointed``: its blocks are run again in the backward, where it is recorded."""

    name: str
    family: str
    job: Callable[[], Job]
    batch: int
    precision: str
    optimizer: str
    checkpointed: bool = False


def checkpointing(job: Job) -> Job:
    """``job`` with gradient checkpointing as its library turns it on. Raises what the model raises
    that has none."""
    model: Any = job.model.train()
    on = getattr(model, "gradient_checkpointing_enable", None) or model.set_grad_checkpointing
    on()
    if getattr(model, "config", None) is not None:
        model.config.use_cache = False  # transformers turns it off with a warning
    return job


def _trained(random: Random) -> dict[str, Any]:
    return {
        "batch": random.choice(BATCHES),
        "precision": random.choice(PRECISIONS),
        "optimizer": random.choice(OPTIMIZERS),
    }


def _drawn(seed: int) -> Iterator[Case]:
    kinds = [(name, draw) for name, draw, times in DRAWERS for _ in range(times)]
    for number in count():
        name, draw = kinds[number % len(kinds)]
        random = Random(f"{seed} {name} {number}")
        made = draw(random)

        def job(made: Drawn = made) -> Job:
            return Job(made.make(), made.inputs, lambda output: made.loss(output, len(output)))

        yield Case(f"{name}-{number}", name, job, **_trained(random))


def _of_timm(seed: int) -> Iterator[Case]:
    import timm

    from slurm_coloc.summarize import sources
    from slurm_coloc.summarize.jobs import Wish

    names = timm.list_models()
    Random(f"{seed} timm").shuffle(names)
    for name in names:
        if any(
            word in name for word in ("_giant", "_huge", "gigantic", "_so400m", "_7b", "_large")
        ):
            continue

        def job(name: str = name) -> Job:
            return sources.of_timm(name, Wish())

        yield Case(f"timm-{name}", "timm", job, **_trained(Random(f"{seed} {name}")))


def _of_transformers(seed: int) -> Iterator[Case]:
    import transformers

    from estimator.evaluate.drawn import KEPT_BACK, MODELS, draw
    from slurm_coloc.summarize.jobs import Wish
    from slurm_coloc.summarize.target import job_of

    models = [*MODELS, *KEPT_BACK]
    Random(f"{seed} transformers").shuffle(models)
    for name, config, spelling, told in models:
        random = Random(f"{seed} {name}")
        tokens = random.choice((64, 128, 256))
        settings = {**spelling(draw(name, seed)), **told}

        def job(
            name: str = name,
            config: str = config,
            settings: dict[str, Any] = settings,
            tokens: int = tokens,
        ) -> Job:
            model = getattr(transformers, name)(getattr(transformers, config)(**settings))
            return job_of(model, Wish(seq_len=tokens), name)

        yield Case(f"transformers-{name}", "transformers", job, **_trained(random))


def cases(seed: int, checkpointed: bool = False) -> Iterator[Case]:
    """Without an end: two that are drawn, one of timm, and of transformers as long as there are.
    ``checkpointed``: of the libraries alone, which have a switch for it."""
    drawn, of_timm, of_transformers = _drawn(seed), _of_timm(seed), _of_transformers(seed)
    while checkpointed:
        for more in (of_timm, of_transformers):
            if found := next(more, None):
                yield replace(found, checkpointed=True)
    while True:
        yield next(drawn)
        yield next(drawn)
        for more in (of_timm, of_transformers):
            found = next(more, None)
            if found:
                yield found
