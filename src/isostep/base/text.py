"""Text from files on its way to a terminal or a table."""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    """One line without control characters: terminal escapes, line ends and reversed writing become `\\x1b` and such."""
    return "".join(_shown(c) for c in text)


def _shown(character: str) -> str:
    if character == " " or unicodedata.category(character)[0] not in "CZ" or character == "\u00a0":
        return character
    return character.encode("unicode_escape").decode()
