"""The `isostep` command. Each sub-module adds its commands; heavy imports wait until a command runs."""

from __future__ import annotations

import importlib
import sys
from importlib import metadata

import typer

from isostep.base.errors import IsostepError
from isostep.base.text import printable

# One line per command module; each has `register(app)`.
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
    "report",
    "reproduce",
    "demo",
)

app = typer.Typer(
    name="isostep",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Generate graphs and molecules from diffusion models with fewer network calls.",
)


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        typer.echo(metadata.version("isostep"))
        raise typer.Exit()


for _name in MODULES:
    importlib.import_module(f"isostep.cli.{_name}").register(app)


def main() -> None:
    """Run the command line; an error the user can mend is one line on stderr and exit code 2."""
    try:
        app()
    except IsostepError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("interrupted; finished work is kept", file=sys.stderr)
        raise SystemExit(130) from None
    except BrokenPipeError:
        raise SystemExit(0) from None
