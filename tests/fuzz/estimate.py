# SPDX-License-Identifier: Apache-2.0
"""The estimates: any text and options have estimates or reasons, and these come through JSON."""

import base64
import json
import re
import zlib
from collections.abc import Sequence
from random import Random

from slurm_coloc.core.decide.optimizers import OPTIMIZERS
from slurm_coloc.core.decide.prepared import Prepared
from slurm_coloc.estimate.api import PRECISIONS
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.request import Defaults, Given
from slurm_coloc.estimate.variants import prepared
from tests.fuzz import texts

Case = tuple[str, Given]
CORPUS: tuple[Case, ...] = tuple((text, Given(batch_size=8)) for text in texts.CORPUS)
DEFAULTS = Defaults(
    "auto",
    {"": Stack(1900), "a100": Stack(500, visible_mib=4864)},
    optimizer="adam",
    precision="fp32",
    seq_len=512,
    level=0.99,
)
COUNTS = (None, 1, 2, 3, 7, 8, 32, 100, 512, 4096, 2**31 - 1)
ALLOCATORS = (
    None, None, "expandable_segments:True", "max_split_size_mb:64", "backend:cudaMallocAsync",
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", "nonsense:1,[",
)  # fmt: skip


def mutated(random: Random, inputs: Sequence[Case]) -> Case:
    """A text with a few changes, and options."""
    text = texts.mutated(random, [case[0] for case in inputs])
    return text, Given(
        random.choice(COUNTS),
        random.choice(COUNTS) if random.random() < 0.3 else None,
        random.choice((None, *OPTIMIZERS)),
        random.choice((None, *PRECISIONS)),
        random.choice(ALLOCATORS),
    )


def one(case: Case) -> str:
    """What came of it, in a word."""
    text, given = case
    packed = base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 1)).decode()
    found = prepared(packed[:65536], given, DEFAULTS)
    assert Prepared.read(json.loads(json.dumps(found.as_json()))) == found
    alone, several = found.of("", "a100-40gb", 1), found.of("", "", 4)
    for made in (alone, several, found.of("a100", "", 1)):
        assert "estimate failed" not in made.detail, f"a defect: {made.detail}"
        assert made.estimate is None or 0 <= made.estimate.memory_mib <= made.estimate.upper_mib
    reason = re.sub(r"[0-9]+", "0", alone.detail)[:40]
    return f"{alone.no_estimate} {reason} {alone.estimate is None} {alone.features.get('family')}"
