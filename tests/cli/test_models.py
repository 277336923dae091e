"""`isostep models`, `import`, `fetch`."""

from __future__ import annotations

import http.server
import json
import shutil
import threading
from functools import partial
from pathlib import Path

import pytest

from isostep.model.lookup import load_model
from isostep.model.released.known import known_table
from tests.cli.command import isostep, refused
from tests.conftest import FIXTURES

MOL = FIXTURES / "grum" / "mol.pth"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ISOSTEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.chdir(tmp_path)


def test_an_import_is_listed_and_can_be_loaded(tmp_path: Path) -> None:
    ended = isostep("import", MOL, "--out", "mine", "--weights", "ema", "--half")
    assert ended.code == 0
    assert "mol (grum, qm9, ema weights) written to mine" in ended.out
    assert load_model("mine").info.weights == "ema"
    rows = {row["name"]: row for row in json.loads(isostep("models", "--json").out)}
    assert (rows["mol"]["where"], rows["mol"]["path"]) == ("imported", "mine")
    assert rows["mol"]["sha256"] == load_model("mine").info.sha256


def test_an_import_in_json_is_the_card(tmp_path: Path) -> None:
    record = json.loads(isostep("import", MOL, "--out", tmp_path / "m", "--json").out)
    assert record == json.loads((tmp_path / "m" / "model.json").read_text())


def test_known_files_are_listed_with_their_sha256_and_whether_they_are_here(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ISOSTEP_DATA")
    (tmp_path / "cache" / "models").mkdir(parents=True)
    file = shutil.copy(shared / "checkpoints" / "gdss" / "gdss_qm9.pth", tmp_path / "cache" / "models")
    rows = {row["name"]: row for row in json.loads(isostep("models", "--json").out) if row["where"] == "known"}
    assert {name: row["sha256"] for name, row in rows.items()} == {n: k.sha256 for n, k in known_table()[1].items()}
    assert {name: row["path"] for name, row in rows.items() if row["path"]} == {"gdss_qm9": file}
    table = isostep("models").out
    assert all(name in table for name in rows)
    assert table.count("not fetched") == 6


def test_fetch_gets_a_known_file_from_a_mirror(shared: Path, tmp_path: Path) -> None:
    known = known_table()[1]["gdss_qm9"]
    (tmp_path / "site" / known.path).parent.mkdir(parents=True)
    shutil.copy(shared / "checkpoints" / "gdss" / "gdss_qm9.pth", tmp_path / "site" / known.path)
    handler = partial(Quiet, directory=str(tmp_path / "site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        assert "gdss_qm9.pth" in isostep("fetch", "gdss_qm9", "--url", url).out
        assert "not found" in refused("fetch", "gdss_grid", "--url", url)
        server.shutdown()
    assert load_model("gdss_qm9").info.dataset == "qm9"
    assert json.loads(isostep("fetch", "gdss_qm9", "--json").out)["path"].endswith("gdss_qm9.pth")  # no server needed


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


def test_mistakes_are_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.pth").write_text("hello")
    assert "text.pth" in refused("import", "text.pth", "--out", "x")
    assert "nowhere.pth" in refused("import", "nowhere.pth", "--out", "x")
    assert "--weights" in refused("import", MOL, "--out", "x", "--weights", "best")
    assert "nothing.toml" in refused("import", MOL, "--out", "x", "--preset", "nothing.toml")
    assert "cannot write" in refused("import", MOL, "--out", tmp_path / "text.pth" / "x")
    assert "gdss_qm9" in refused("fetch", "gdss_qm8")
    assert "check the connection" in refused("fetch", "gdss_qm9", "--url", "http://127.0.0.1:9")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("command", ["models", "import", "fetch"])
def test_help_shows_an_example(command: str) -> None:
    ended = isostep(command, "--help")
    assert ended.code == 0
    assert f"isostep {command}" in ended.out
    assert "Example" in ended.out
