"""The command line in this process: what it prints, and its exit code."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import NamedTuple
from unittest import mock

from isostep.cli import main


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def isostep(*arguments: object) -> Ended:
    """Run `isostep ARGUMENTS` through its real entry point."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    argv = mock.patch.object(sys, "argv", ["isostep", *map(str, arguments)])
    with argv, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    return Ended(code if isinstance(code, int) else 0, out.getvalue(), err.getvalue())


def refused(*arguments: object) -> str:
    """The one line with which the command refuses its arguments."""
    ended = isostep(*arguments)
    assert ended.code == 2, ended
    assert ended.out == ""
    lines = ended.err.splitlines()
    assert len(lines) == 1, ended.err
    assert lines[0].startswith("error: ")
    return lines[0]
