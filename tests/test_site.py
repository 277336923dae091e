"""The documentation site: warnings are errors, nothing is asked of other machines, the search works from a disk."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.reporting.browser import audit, open_page


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return out


def pages(site: Path) -> list[Path]:
    """Without the copies that other tests make beside them."""
    return sorted(site / f"{source.stem}.html" for source in (ROOT / "docs").glob("*.md"))


def test_the_site_asks_nobody(site, tmp_path):
    for page in pages(site):
        outside = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(https?:[^"]*)"', page.read_text())
        assert outside == [], page.name
    page = open_page(site / "index.html", tmp_path)
    assert page.requests == []
    assert page.console == []


SEARCH = """
<script>
  addEventListener("load", () => setTimeout(() => {
    const field = document.querySelector('[data-md-component="search-query"]');
    field.focus();
    field.value = "Brownian";
    field.dispatchEvent(new Event("input", { bubbles: true }));
    field.dispatchEvent(new KeyboardEvent("keyup", { bubbles: true }));
  }, 1500));
</script>"""


def test_the_search_finds(site, tmp_path):
    searched = site / "searched.html"
    searched.write_text((site / "index.html").read_text().replace("</body>", f"{SEARCH}</body>"))
    page = open_page(searched, tmp_path, "--virtual-time-budget=20000")
    assert page.console == []
    assert re.search(
        r"<a href=\"[^\"]*/api.html[^\"]*#isostep.noise.BrownianTree\" class=\"md-search-result__link", page.dom
    )


@pytest.mark.parametrize(("name", "width", "dark"), [("index", 1400, False), ("usage", 390, True)])
def test_axe_finds_nothing_serious(site, tmp_path, name, width, dark):
    assert audit(site / f"{name}.html", tmp_path, width, dark) == []


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 390])
def test_axe_finds_nothing_serious_on_any_page(site, tmp_path, width, dark):
    found = {page.name: audit(page, tmp_path, width, dark) for page in pages(site)}
    assert found == {name: [] for name in found}
