# SPDX-License-Identifier: Apache-2.0
"""Estimates as the front hands them over, made in the test's own process."""

import base64
import zlib
from collections.abc import Mapping
from typing import Any

from slurm_coloc.config import EstimateConfig
from slurm_coloc.estimate.variants import prepared
from slurm_coloc.flow.estimators.calibrations import defaults_of, load_stacks
from slurm_coloc.flow.submit.estimate import given_of
from slurm_coloc.flow.submit.message import ColocOptions
from slurm_coloc.flow.submit.tickets import Key, Texts, hash_of


def pack(text: str) -> str:
    """A text as the SPANK plugin forwards it."""
    return base64.b64encode(zlib.compress(text.encode())).decode()


def teach(texts: Texts, config: EstimateConfig, uid: int, coloc: Mapping[str, Any]) -> Key:
    """Make known what a submission with these --coloc options will need; its key. A decider with
    ``config`` must be using ``texts``."""
    options = ColocOptions.model_validate(dict(coloc))
    assert options.summary is not None
    defaults = defaults_of(config, load_stacks(config))
    key = Key(hash_of(options.summary), given_of(options))
    made = prepared(options.summary, key.given, defaults)
    assert texts.learn(uid, key, made, defaults.basis)
    return key
