"""The documentation site: warnings are errors, nothing is asked of other machines, the search works from a disk."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.reporting.browser import open_page

pytestmark = pytest.mark.slow


def test_the_site_builds_and_asks_nobody(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    for page in (tmp_path / "site").glob("*.html"):
        outside = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(https?:[^"]*)"', page.read_text())
        assert outside == [], page.name
    index = tmp_path / "site" / "index.html"
    assert 'src="assets/iframe-worker.js"' in index.read_text()  # what the search needs on pages from a disk
    assert (tmp_path / "site" / "search" / "search_index.js").stat().st_size > 100_000
    page = open_page(index, tmp_path)
    assert page.requests == []
    assert page.console == []
