"""The documentation is true: its Python runs, the tests it names exist, the examples are as short as promised."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# ```python is executed, ```py is not.
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def snippets(page: Path) -> list[str]:
    return SNIPPET.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", [page for page in PAGES if snippets(page)], ids=lambda page: page.name)
def test_snippets_run(page, tmp_path, monkeypatch):
    """The snippets of a page run one after the other, in one namespace and an empty folder."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for number, code in enumerate(snippets(page), 1):
        exec(compile(code, f"{page.name}, snippet {number}", "exec"), namespace)


def test_the_pages_have_snippets():
    """Guard of the pattern: a page about own models without a single snippet would pass unseen."""
    assert len(snippets(ROOT / "docs" / "own_model.md")) >= 4
    assert "import isostep" in snippets(ROOT / "README.md")[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_tests_exist(page):
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text(encoding="utf-8"))
    for file, name in named:
        assert (ROOT / file).is_file(), file
        if name:
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{file}::{name}"


def test_theory_names_a_test_for_every_formula():
    """Each section of the theory that has a formula block names at least one test."""
    sections = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8").split("\n## ")[1:]
    with_formula = [section for section in sections if re.search(r"^    \S", section, re.MULTILINE)]
    assert len(with_formula) >= 5
    assert all("tests/" in section for section in with_formula)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_hold(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_examples_run_and_have_under_thirty_lines(example, capsys):
    text = example.read_text(encoding="utf-8")
    if "torch_geometric" in text:
        pytest.importorskip("torch_geometric")
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out
    assert len(text.splitlines()) < 30


def test_there_are_the_examples_that_the_documentation_names():
    named = re.findall(r"`examples/(\w+\.py)`", (ROOT / "docs" / "own_model.md").read_text(encoding="utf-8"))
    assert sorted(named) == [example.name for example in EXAMPLES]
    assert len(named) >= 4


RECIPES = re.findall(
    r"^\| (an? [\w ]+) \| (.*) \|$", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.mark.parametrize("text", [text for _, text in RECIPES], ids=[name for name, _ in RECIPES])
def test_recipes_name_what_is_there(text):
    """Files and folders exist; what is "`NAME` in `file`" is defined or set in that file."""
    for path in re.findall(r"`((?:\w+/)+(?:\w+\.\w+)?)`", text):
        assert any((root / path).exists() for root in (ROOT, ROOT / "src" / "isostep")), path
    for names, path in re.findall(r"((?:`\w+` and )?`\w+`) in `([\w/]+\.py)`", text):
        place = ROOT / path if path.startswith("tests/") else ROOT / "src" / "isostep" / path
        for name in re.findall(r"\w+", names.replace(" and ", " ")):
            assert re.search(rf"^\s*(def |class )?{name}\b *[:=(]", place.read_text(encoding="utf-8"), re.MULTILINE), (
                name
            )


def test_there_are_recipes():
    assert len(RECIPES) == 10
