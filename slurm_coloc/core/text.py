# SPDX-License-Identifier: Apache-2.0
"""Text of users on its way to a log or a terminal."""


def printable(text: str) -> str:
    """``text`` with everything that a terminal would act upon written as an escape: control, format
    and separator characters, lone surrogates.

    >>> printable("a\\x1b[2J")
    'a\\\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text
    )
