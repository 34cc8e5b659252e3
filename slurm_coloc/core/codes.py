# SPDX-License-Identifier: Apache-2.0
"""Codes that stand in the database and in answers, each with its text for people."""

from enum import StrEnum


class Code(StrEnum):
    """``NAME = "code", "text"``: a member is its code; ``text`` has no full stop."""

    text: str

    def __new__(cls, code: str, text: str = "") -> "Code":
        """A member."""
        member = str.__new__(cls, code)
        member._value_, member.text = code, text
        return member
