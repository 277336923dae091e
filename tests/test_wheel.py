"""The wheel as users get it: built from the sources, installed alone in an empty environment, it runs the demo."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)], check=True, capture_output=True)
    return out


def test_the_wheel_holds_what_is_needed_and_no_more(built):
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for needed in ("py.typed", "reporting/style.css", "reporting/page.js", "reporting/film.js", "reporting/viewer.js"):
        assert f"isostep/{needed}" in names
    assert any(name.endswith(".safetensors") for name in names)
    assert any("/presets/" in name for name in names)
    assert not [name for name in names if name.startswith(("tests/", "docs/", "benchmarks/"))]
    metadata = zipfile.ZipFile(wheel).read(next(name for name in names if name.endswith("METADATA"))).decode()
    for field in (
        "License-Expression: Apache-2.0",
        "Provides-Extra: fast",
        "Requires-Python",
    ):
        assert field in metadata
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        assert any(name.endswith("/src/isostep/py.typed") for name in archive.getnames())


def test_the_wheel_alone_runs_the_demo(built, tmp_path):
    """No development extras, no sources on the path, another working folder."""
    (wheel,) = built.glob("*.whl")
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    pip = [
        str(home / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--constraint",
        str(ROOT / "constraints.txt"),
    ]
    subprocess.run([*pip, "torch"], check=True)
    subprocess.run([*pip, str(wheel)], check=True)
    alone = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "ISOSTEP"))}
    alone["ISOSTEP_CACHE"] = str(tmp_path / "cache")
    command = [str(home / "bin" / "isostep"), "demo", "--quick", "--out", "report"]
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report" / "report.html").stat().st_size < 3_000_000
