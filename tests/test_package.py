"""The package's face: what it offers, its version, and `python -m isostep`."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import import_module, metadata

import pytest

import isostep
from tests.conftest import ROOT


def test_dir_lists_what_can_be_imported_and_nothing_else():
    assert dir(isostep) == sorted([*isostep.__all__, "__version__"])
    for name in isostep.__all__:
        value = getattr(isostep, name)
        assert value.__name__ == name
        assert value.__module__.startswith("isostep.")
        assert getattr(isostep, name) is value
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        isostep.nothing  # noqa: B018


def test_type_checkers_see_the_same_names():
    tree = ast.parse((ROOT / "src" / "isostep" / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {f"{n.module}:{a.name}" for n in block.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert seen == {f"{home}:{name}" for name, home in isostep._HOMES.items()}
    assert (ROOT / "src" / "isostep" / "py.typed").is_file()


def test_the_page_on_the_api_has_every_name_and_no_other():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^::: ([\w.]+)(?:\n    options: \{members: \[([^]]*)\]\})?", page, re.M)
    names = {f"{module}:{name}" for module, members in listed for name in members.split(", ") if name}
    assert {f"{home}:{name}" for name, home in isostep._HOMES.items()} <= names
    for module, members in listed:
        there = vars(import_module(module))
        assert all(there[name].__module__ == module for name in members.split(", ") if name), module


def test_the_version_is_written_once():
    written = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert isostep.__version__ == metadata.version("isostep") == written
    assert not [path for path in (ROOT / "src").rglob("*.py") if f'"{written}"' in path.read_text()]


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "isostep", "--version"], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.strip()) == (0, isostep.__version__)
    bad = subprocess.run(
        [sys.executable, "-m", "isostep", "sample", "no-such-model"], capture_output=True, text=True, timeout=300
    )
    assert bad.returncode == 2
    assert bad.stderr.count("\n") == 1
