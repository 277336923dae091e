"""The tutorials run, small, and do what they say."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT

FOLDER = ROOT / "examples" / "tutorials"
RANDOM = ROOT / "tests" / "fixtures" / "gdss_random" / "random_mol.pth"


@pytest.fixture
def tutorial(tmp_path, monkeypatch) -> Callable[[str], Callable]:
    monkeypatch.chdir(tmp_path)
    return lambda name: runpy.run_path(str(FOLDER / f"{name}.py"))["main"]


def test_released(tutorial, capsys):
    tutorial("released")(str(RANDOM), "qm9", n=4)
    out = capsys.readouterr().out
    assert "| valid" in out
    assert "4 of 4 graphs" in out


def test_own_network(tutorial, capsys):
    tutorial("own_network")(steps=3)
    out = capsys.readouterr().out
    assert "step 0: loss" in out
    assert re.search(r"50 calls: \d+\.\d edges a graph", out)


def test_million(tutorial, capsys):
    tutorial("million")(n=40)
    out = capsys.readouterr().out
    assert "'done': 40" in out
    assert "the same summary: True" in out


def test_tune(tutorial, capsys):
    few = {"n": 4, "generations": 0, "confirm": 2, "only": ["cosine", "exponential-2"], "yardstick_steps": 8}
    tutorial("tune")(calls=4, metrics=["degree"], **few)
    assert "16 of 16 graphs, 4 network calls" in capsys.readouterr().out


@pytest.mark.slow
def test_train(tutorial, capsys):
    tutorial("train")(steps=20)
    assert "8 of 8 graphs" in capsys.readouterr().out


@pytest.mark.slow
def test_reproduce(tutorial, capsys):
    tutorial("reproduce")()
    assert "grum" in capsys.readouterr().out


def test_every_tutorial_is_on_the_page_and_tested():
    page, tests = (ROOT / "docs" / "tutorials.md").read_text(), Path(__file__).read_text()
    for script in FOLDER.glob("*.py"):
        assert f'"examples/tutorials/{script.name}"' in page
        assert f'tutorial("{script.stem}")' in tests
