"""Shared test settings: where the reference material is, one thread, no user caches touched."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

# The peers' spectral numbers hold the rounding of their LAPACK (isostep.metric.graph_statistics): theirs ran with AVX2,
# and a second thread rounds otherwise, too. It must be said before NumPy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
if platform.machine() == "x86_64":
    os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")

import torch

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "tests" / "fixtures"
# The one setting that says where released weights, benchmark data and published samples are; beside a checkout they
# may stand in a folder of this name.
SHARED = Path(os.environ.setdefault("ISOSTEP_DATA", str(ROOT.parent / "shared")))

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with released checkpoints, data and samples; tests that need it are skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"reference material not found at {SHARED}; set ISOSTEP_DATA")
    return SHARED


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """Caches of the tests go to one folder of the test session, never to the user's."""
    monkeypatch.setenv("ISOSTEP_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
