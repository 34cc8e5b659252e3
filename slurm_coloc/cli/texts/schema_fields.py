# SPDX-License-Identifier: Apache-2.0
"""Fields of the answers' models, from the records that the answers are made of."""

import dataclasses
import types
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from pydantic import BaseModel, ConfigDict, Field, create_model

Flag = Annotated[int, Field(ge=0, le=1)]
Fields = dict[str, Any]


class Answer(BaseModel):
    """An object to which a later release may add fields."""

    model_config = ConfigDict(extra="allow")


def _kind(hint: Any) -> Any:
    """The type of a field as JSON has it: a flag is 0 or 1, a tuple an array; documents of nodes
    stay open."""
    if hint is bool:
        return Flag
    if is_typeddict(hint):
        return dict[str, Any]
    inner = tuple(_kind(one) for one in get_args(hint) if one is not Ellipsis)
    if get_origin(hint) in (types.UnionType, Union):
        return Union[inner]  # noqa: UP007  of a tuple
    if get_origin(hint) in (tuple, list):
        return list[inner[0]]  # type: ignore[valid-type]
    return hint


def fields_of(record: type, names: tuple[str, ...] | None = None) -> Fields:
    """The fields of a record, or those of them in ``names``; each is always there."""
    hints = get_type_hints(record)
    wanted = names or tuple(one.name for one in dataclasses.fields(record))
    return {name: (_kind(hints[name]), ...) for name in wanted}


def model(title: str, text: str, fields: Fields) -> type[Answer]:
    return create_model(title, __base__=Answer, __doc__=text, **fields)


def maybe(kind: Any) -> Any:
    """A field that may be null, and is always there."""
    return (kind | None, ...)


def list_of(kind: Any) -> Any:
    return list[kind]


def optional(kind: Any) -> Any:
    """A field that need not be there."""
    return (kind | None, None)
