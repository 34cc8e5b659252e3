# SPDX-License-Identifier: Apache-2.0
"""Recordings made by hand and by hypothesis, for tests that need no torch."""

from hypothesis import strategies as st

from slurm_coloc.estimate.block.traced import Size, SizedEvent, SizedScratch, Traced
from slurm_coloc.estimate.replay.recording import Work

MIB = 2**20


def small(**fields: object) -> Traced:
    """Two weights, an activation of 1 MiB a sample, their gradients."""
    work = SizedScratch(Work.FORWARD, Size(0, 4096), Size(0, MIB), MIB, 9, 1, 64)
    given: dict[str, object] = {
        "batch": 8,
        "scales": True,
        "precision": "fp32",
        "optimizer": "adamw",
        "accumulate": 1,
        "seq_len": 0,
        "models": 1,
        "family": "cnn",
        "torch": "2.13.0+cpu",
        "elements": 2 * MIB,
        "trainable": 2 * MIB,
        "parameters": (4 * MIB, 4 * MIB),
        "constants": (512,),
        "inputs": (Size(0, 4096),),
        "events": (Size(0, MIB), work, Size(0, MIB), Size(4), Size(4 * MIB), Size(4 * MIB), -2, -1),
        "gradients": frozenset({3, 4}),
    }
    return Traced(**(given | fields))  # type: ignore[arg-type]


SIZES = st.builds(Size, *[st.integers(0, 2**40) for _ in range(3)])
SCRATCHES = st.builds(
    SizedScratch, st.sampled_from(Work), SIZES, SIZES, *[st.integers(0, 2**40) for _ in range(4)]
)


@st.composite
def recordings(draw: st.DrawFn) -> Traced:
    """Any recording that a recorder could have made."""
    events: list[SizedEvent] = []
    held: list[int] = []
    count = 0
    for kind in draw(st.lists(st.integers(0, 2), max_size=60)):
        if kind == 0 and held:
            events.append(-1 - held.pop(draw(st.integers(0, len(held) - 1))))
        elif kind == 1:
            events.append(draw(SCRATCHES))
        else:
            events.append(draw(SIZES))
            held.append(count)
            count += 1
    numbers = st.integers(0, count - 1) if count else st.nothing()
    return small(
        batch=draw(st.integers(1, 2**31 - 1)),
        scales=draw(st.booleans()),
        precision=draw(st.sampled_from(["fp32", "amp", "bf16"])),
        optimizer=draw(st.sampled_from(["", "sgd", "adam8bit"])),
        accumulate=draw(st.integers(1, 64)),
        seq_len=draw(st.integers(0, 4096)),
        parameters=tuple(draw(st.lists(st.integers(0, 2**40), max_size=20))),
        constants=tuple(draw(st.lists(st.integers(0, 2**40), max_size=20))),
        inputs=tuple(draw(st.lists(SIZES, max_size=5))),
        events=tuple(events),
        gradients=draw(st.frozensets(numbers)),
    )
