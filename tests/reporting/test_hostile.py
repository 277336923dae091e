"""A study made by somebody else, with hostile text in every field: the page, the tables and the terminal stay ours."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import shutil
import subprocess
import sys

import pytest

from isostep.base.markup import Markup, script_data, tag
from isostep.reporting.output import print_comparison, write_outputs
from isostep.reporting.page import write_report
from isostep.reporting.tables import long_csv
from isostep.study.record import load_study
from tests.reporting.browser import open_page

HOSTILE = (
    "=1+1|\"'><img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script></script>"
    "</style></title>\x1b[31m\x07\u202e[/b][red]$\\frac{$ & \\input{x} \ud800\n% {}"
)


def _poison(value, keep):
    """Every text becomes hostile, and every name of a dictionary that is free; what the schema decides stays."""
    if isinstance(value, dict):
        return {name: part if name in keep else _poison(part, keep) for name, part in value.items()}
    if isinstance(value, list):
        return [_poison(part, keep) for part in value]
    return value[:4] + HOSTILE if isinstance(value, str) else value


KEPT = {"cells", "films", "kind", "noise", "run", "better", "metrics", "trace", "path_metrics", "kernel", "model_kind"}


@pytest.fixture(scope="module")
def poisoned(toy_study, tmp_path_factory):
    """The folder's own name is hostile, too."""
    folder = tmp_path_factory.mktemp("hostile") / "<img src=x onerror=document.title=1>"
    shutil.copytree(toy_study.store.folder, folder)
    for path in (folder / "study.json", *folder.glob("cells/*.json"), *folder.glob("runs/*/path.json")):
        record = _poison(json.loads(path.read_text()), KEPT)
        text = json.dumps(record)
        for metric in toy_study.metrics:
            text = text.replace(f'"{metric}"', json.dumps(metric + HOSTILE))
        path.write_text(text)
    for path in folder.glob("runs/*/path.json"):
        record = json.loads(path.read_text())
        for film in record["films"]:
            film["elements"] = [HOSTILE]
            film["nodes"] = ["0z" * film["n"]] * len(film["edges"])
        path.write_text(json.dumps(record))
    return load_study(folder)


def test_the_page_stays_ours(poisoned, tmp_path):
    comparison = write_outputs(poisoned)
    path = tmp_path / "report.html"
    write_report(path, poisoned, comparison)
    assert "onerror" in path.read_text()  # the text is shown
    page = open_page(path, tmp_path)
    assert page.console == []
    assert page.requests == []
    assert "<img" not in page.dom
    assert not re.search(r"<title>owned", page.dom)
    assert page.dom.count("<script") == path.read_text().count("<script")
    bare = re.sub(r'"[^"]*"', '""', re.sub(r"<!--.*?-->", "", page.dom, flags=re.S))
    assert not re.search(r"<[^>]*\sonerror", bare)


def test_without_escapes_the_browser_would_run_it(poisoned, tmp_path, monkeypatch):
    """The guard itself: a page that trusts its text is taken over, and the test above would see it."""
    monkeypatch.setattr("isostep.base.markup.html.escape", lambda text, *_: text)
    monkeypatch.setattr("isostep.reporting.page.POLICY", "default-src 'unsafe-inline' *")
    monkeypatch.setattr("isostep.reporting.page.source_hash", lambda _: "'unsafe-inline' *")
    path = tmp_path / "report.html"
    write_report(path, poisoned, write_outputs(poisoned, plots=False))
    assert "<img" in open_page(path, tmp_path).dom


def test_tables_and_terminal_stay_ours(poisoned, capsys):
    comparison = write_outputs(poisoned, plots=False)
    rows = list(csv.reader(io.StringIO(long_csv(comparison))))
    assert len({len(row) for row in rows}) == 1
    for cell in (cell for row in rows for cell in row):
        assert cell[:1] not in ("=", "@", "\t")
        assert "\x1b" not in cell
    assert long_csv({**comparison, "arms": [{**comparison["arms"][0], "name": "=cmd()"}]}).splitlines()[1][0] == "'"
    markdown = (poisoned.store.folder / "comparison.md").read_text()
    assert "<img" not in markdown
    assert "<script" not in markdown
    assert "\x1b" not in markdown
    bars = {len(re.findall(r"(?<!\\)\|", line)) for line in markdown.split("\n\n")[1].splitlines()}
    assert len(bars) == 1
    latex = (poisoned.store.folder / "comparison.tex").read_text()
    shown = [line for line in latex.splitlines() if not line.startswith("%")]
    assert not any(re.search(r"\\input|(?<!\\)\$\\frac", line) for line in shown)
    print_comparison(comparison)
    out = capsys.readouterr().out
    assert "\x1b[31m" not in out
    assert "\x07" not in out
    assert "\u202e" not in out
    assert "[/b]" in out  # shown, not taken for markup


def test_only_the_pages_own_scripts_may_run(toy_study, tmp_path):
    """A script that somebody put into the file is refused by the policy."""
    path = tmp_path / "report.html"
    write_report(path, toy_study, write_outputs(toy_study, plots=False))
    text = path.read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    assert "unsafe" not in html.unescape(policy[1])
    assert " style=" not in re.sub(r"<script.*?</script>", "", text, flags=re.S)
    bad = "<main><script>document.title = 'owned'</script><p onclick='x()' style='color: red'>"
    path.write_text(text.replace("<main>", bad))
    page = open_page(path, tmp_path)
    assert "<title>owned" not in page.dom
    refused = [line for line in page.console if "Content Security Policy" in line]
    assert any("inline script" in line for line in refused)
    assert any("inline style" in line for line in refused)


def test_text_is_escaped_in_one_place():
    assert tag("p", "<b>", class_='"') == '<p class="&quot;">&lt;b&gt;</p>'
    assert tag("p", Markup("<b>x</b>"), hidden=True, id=None) == "<p hidden><b>x</b></p>"
    assert "</script><" not in script_data("x", {"a": "</script><b>"})[:-9]


def test_a_page_is_written_without_torch_and_solvers(toy_study, tmp_path):
    """From the folder alone: neither torch nor anything that samples is imported."""
    program = (
        "import sys\n"
        "from isostep.cli import main\n"
        f"sys.argv = ['isostep', 'report', {str(toy_study.store.folder)!r}, '--out', {str(tmp_path / 'r.html')!r}]\n"
        "main_exit = None\n"
        "try: main()\n"
        "except SystemExit as stop: main_exit = stop.code\n"
        "parts = ('solver', 'control', 'loop', 'network', 'sampling')\n"
        "banned = ('torch', *(f'isostep.{part}' for part in parts))\n"
        "print(main_exit, [name for name in sys.modules if name.startswith(banned)])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] in ("None []", "0 []"), done.stderr
    assert (tmp_path / "r.html").stat().st_size > 50_000
