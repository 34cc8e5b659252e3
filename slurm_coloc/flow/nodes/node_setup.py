# SPDX-License-Identifier: Apache-2.0
"""What a node's agent tells of its installation, checked (``coloc doctor --rollout``)."""

from typing import Annotated, Any

from pydantic import Field, ValidationError

from slurm_coloc.flow.nodes.epilog import Message

Seconds = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)] | None
Text = Annotated[str, Field(max_length=256, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
Name = Annotated[str, Field(max_length=64, pattern=r"^[\w.:-]+$")]


class Setup(Message):
    """As flow/measure/node_setup writes it."""

    gres: dict[Name, Annotated[int, Field(ge=0, le=2**24)]] = Field({}, max_length=64)
    conf_s: Seconds = None
    slurmd_s: Seconds = None
    stack_s: Seconds = None
    plugin: Annotated[str, Field(max_length=16, pattern=r"^[\d.]*$")] = ""
    plugstack: bool = False
    hooks: bool = False
    why: Text = ""


def read_setup(told: object) -> dict[str, Any] | None:
    """The checked fields; None where an older agent says nothing, or what it says is malformed."""
    if not isinstance(told, dict):
        return None
    try:
        return Setup.model_validate(told).model_dump()
    except ValidationError:
        return None
