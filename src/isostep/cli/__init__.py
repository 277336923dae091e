"""The `isostep` command. Each sub-module adds its commands; heavy imports wait until a command runs."""

from __future__ import annotations

import atexit
import gc
import importlib
import logging
import sys
from importlib import metadata
from typing import Any

import typer
from typer.core import TyperGroup

from isostep.base.errors import IsostepError
from isostep.base.progress import NOTHING_KEPT, log, showing
from isostep.base.text import printable

# One line per module: it has a function of its name, the command, or `register(app)` where there are several.
MODULES = (
    "sample",
    "calibrate",
    "runs",
    "export",
    "plan",
    "models",
    "train",
    "data",
    "evaluate",
    "compare",
    "sweep",
    "tune",
    "report",
    "reproduce",
    "demo",
)


QUIET, VERBOSE = ("--quiet", "-q"), ("--verbose", "-v")


class Root(TyperGroup):
    """`--quiet` and `-v` may stand anywhere in the line; an interrupted command says what is kept."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        here = [word for word in args[:end] if word in (*QUIET, *VERBOSE)]
        rest = [word for word in args[:end] if word not in here]
        return super().parse_args(ctx, [*here, *rest, *args[end:]])

    def invoke(self, ctx: Any) -> Any:
        try:
            with showing(alone=True):
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            print(f"interrupted: {printable(str(stop) or NOTHING_KEPT)}", file=sys.stderr)
            raise typer.Exit(130) from None


app = typer.Typer(
    name="isostep",
    cls=Root,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Generate graphs and molecules from diffusion models with fewer network calls.",
)


@app.callback(invoke_without_command=True)
def root(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
    quiet: bool = typer.Option(False, *QUIET, help="Any command: results, warnings and errors only."),
    verbose: bool = typer.Option(False, *VERBOSE, help="Any command: say more, with the time of day."),
) -> None:
    if quiet or verbose:
        log.setLevel(logging.WARNING if quiet else logging.DEBUG)
    if version:
        typer.echo(metadata.version("isostep"))
        raise typer.Exit()


for _name in MODULES:
    _module = importlib.import_module(f"isostep.cli.{_name}")
    _module.register(app) if hasattr(_module, "register") else app.command(_name)(getattr(_module, _name))


def main() -> None:
    """Run the command line; an error the user can mend is one line on stderr and exit code 2."""
    # Imports make some 500,000 objects that stay: looking through them for garbage, again and again and once more at
    # the exit, would be a fifth of a short command.
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)
    try:
        app()
    except IsostepError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        raise SystemExit(2) from None
    except BrokenPipeError:
        raise SystemExit(0) from None
    except (OSError, MemoryError) as error:  # of the machine: no file descriptors, a path too long, no memory
        cause = " ".join(str(error).split())[:500] or type(error).__name__
        print(f"error: {printable(cause)}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:  # before a command began
        raise SystemExit(130) from None
