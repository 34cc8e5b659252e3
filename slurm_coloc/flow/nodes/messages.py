# SPDX-License-Identifier: Apache-2.0
"""How messages of nodes are checked: unknown names are dropped, a wrong value is refused."""

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from slurm_coloc.errors import UsageFault


class Message(BaseModel):
    """A message, or a part of one. A node's agent of a later release may send more names."""

    model_config = ConfigDict(extra="ignore", frozen=True)


M = TypeVar("M", bound=Message)


def checked(kind: type[M], what: str, message: dict[str, Any]) -> M:
    """The message; raises UsageFault that names the wrong field of ``what``."""
    try:
        return kind.model_validate(message)
    except ValidationError as err:
        first = err.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageFault(f"{what}: {where}: {first['msg']}", "bad-request") from err
