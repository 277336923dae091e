"""The lock files hold every dependency in a tested version, by hash, within the bounds of pyproject.toml."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT

EXTRAS = {"requirements.lock": ("fast", "data"), "requirements-dev.lock": ("dev", "fast", "data")}


@pytest.mark.parametrize("name", EXTRAS)
def test_every_dependency_is_locked_by_hash(name):
    text = (ROOT / name).read_text()
    blocks = re.findall(r"^([A-Za-z0-9_.-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.M)
    locked = {canonicalize_name(package): version for package, version, _ in blocks}
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == sum(1 + hashes.count("--hash") for *_, hashes in blocks), "a line that is no pin and no hash"
    assert "torch" not in locked  # its builds share a version, not a hash: constraints.txt
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [entry for extra in EXTRAS[name] for entry in project["optional-dependencies"][extra]]
    for entry in (*project["dependencies"], *extras):
        wanted = Requirement(entry)
        if wanted.name != "torch":
            assert wanted.specifier.contains(locked[canonicalize_name(wanted.name)], prereleases=True), entry


def test_the_oldest_versions_are_the_lower_bounds():
    oldest = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints-minimum.txt").read_text(), re.M))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for entry in project["dependencies"]:
        wanted = Requirement(entry)
        assert wanted.specifier.contains(oldest[wanted.name]), entry
