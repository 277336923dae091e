"""Hostile arguments and files through the command line: one line, exit code 2, no control character on the terminal."""

from __future__ import annotations

import http.server
import json
import resource
import threading

import pytest

from isostep.base.errors import InputError
from isostep.base.files import read_toml
from isostep.model.analytic import analytic_model
from isostep.model.released import fetch as fetching
from isostep.run.engine import sample_run
from tests.cli.command import isostep, refused

BIG = "9" * 5000
DEEP = "[" * 50_000
MODEL = "rings-and-stars"
ESCAPE = "\x1b]0;owned\x07\x1b[31m"


@pytest.mark.parametrize(
    "arguments",
    [
        ("sample", MODEL, "-n", 2, "--schedule", "dvs", "--set", "active=[[0]]"),
        ("sample", MODEL, "-n", 2, "--schedule", "dvs", "--set", "active=[0]"),
        ("sample", MODEL, "-n", 2, "--schedule", "dvs", "--set", 'active="x"'),
        ("sample", MODEL, "-n", 2, "--schedule", "dvs", "--set", f"kappa={BIG}"),
        ("sample", MODEL, "-n", 2, "--schedule", "dvs", "--set", f"kappa={DEEP}"),
        ("compare", MODEL, "--seeds", BIG, "--out", "OUT"),
        ("compare", MODEL, "--seeds", f"0-{BIG}", "--out", "OUT"),
        ("sweep", MODEL, "--param", f"schedule.gamma=0:1:{BIG}", "--out", "OUT"),
        ("sweep", MODEL, "--param", f"schedule.gamma={DEEP}", "--out", "OUT"),
        ("sample", MODEL, "-n", 2, "--out", "/tmp/" + "x" * 5000),
        ("evaluate", "y" * 5000, "--reference", "community-small"),
        ("evaluate", "a.jsonl", "--reference", "z" * 5000),
    ],
    ids=lambda words: " ".join(str(word)[:24] for word in words),
)
def test_one_line(tmp_path, arguments):
    message = refused(*(tmp_path / "study" if word == "OUT" else word for word in arguments))
    assert len(message) < 10_000


@pytest.mark.parametrize("text", [f"a = {BIG}", f"a = {DEEP}", "a = 1e", "\x00"])
def test_toml(tmp_path, text):
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(InputError, match="not valid TOML"):
        read_toml(tmp_path / "a.toml")


def test_one_bad_card_does_not_end_the_list(tmp_path):
    folder = tmp_path / "bad"
    folder.mkdir()
    (folder / "model.json").write_text(f'{{"format": {BIG}, "name": "[/b]{ESCAPE}"}}')
    ended = isostep("models", "--folder", tmp_path)
    assert ended.code == 0
    assert "not usable" in ended.out
    assert "grum-qm9-small" in ended.out


def test_markup_in_a_path_is_text(tmp_path):
    ended = isostep("sample", MODEL, "-n", 2, "--schedule", "uniform", "--steps", 2, "--out", tmp_path / "[" / "b]")
    assert ended.code == 0, ended
    assert "b]" in ended.out


@pytest.mark.parametrize("command", ["status", "verify", "sample"])
def test_no_escape_reaches_the_terminal(tmp_path, command):
    """From a run folder that somebody else sent."""
    chosen = {"schedule": "uniform", "steps": 2, "batch_size": 4}
    sample_run(MODEL, 4, tmp_path, **chosen)
    record = json.loads((tmp_path / "run.json").read_text())
    record["summary"] |= {"model": f"x{ESCAPE}", f"k{ESCAPE}": f"[/b]{ESCAPE}", "schedule": f"[/b]{ESCAPE}"}
    record["device"] = ESCAPE
    if command == "status":
        record["model"] = f"x{ESCAPE}"
    (tmp_path / "run.json").write_text(json.dumps(record))
    same = ("--schedule", "uniform", "--steps", 2, "--batch-size", 4, "--out", tmp_path)
    words = {
        "status": ("runs", "status", tmp_path),
        "verify": ("runs", "verify", tmp_path),
        "sample": ("sample", MODEL, "-n", 4, *same),
    }
    ended = isostep(*words[command])
    assert ended.code == 0, ended
    assert "\x1b" not in ended.out + ended.err
    assert "\x07" not in ended.out + ended.err


def test_no_file_descriptors_left(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    (tmp_path / "a.jsonl").write_text('{"n": 2, "edges": [[0, 1]]}\n')
    analytic_model()
    isostep("evaluate", tmp_path / "a.jsonl", "--reference", "community-small")  # everything is imported
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        message = refused("evaluate", tmp_path / "a.jsonl", "--reference", "community-small")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "Too many open files" in message


# --- downloads -------------------------------------------------------------------------------------------------------


class _Server(http.server.BaseHTTPRequestHandler):
    answer = "416"

    def do_GET(self) -> None:
        if self.answer == "416":
            self.send_error(416)
            return
        self.send_response(200)
        self.end_headers()
        for _ in range(40):  # a byte now and then
            self.wfile.write(b"x")
            self.wfile.flush()
            threading.Event().wait(0.1)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def site():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def known_name() -> str:
    return next(iter(fetching.known_table()[1]))


def test_416_twice(tmp_path, site, monkeypatch):
    monkeypatch.setattr(_Server, "answer", "416")
    with pytest.raises(InputError, match="cannot download"):
        fetching.fetch(known_name(), tmp_path, site)


def test_a_server_that_drips_is_left(tmp_path, site, monkeypatch):
    """Every wait is short enough, all of them together are not."""
    monkeypatch.setattr(_Server, "answer", "drip")
    monkeypatch.setattr(fetching, "PATIENCE", 0.5)
    monkeypatch.setattr(fetching, "SLOWEST", 1e12)
    with pytest.raises(InputError, match=r"too slow.*goes on where it stopped"):
        fetching.fetch(known_name(), tmp_path, site)


@pytest.mark.parametrize("address", ["http://[::1", "ftp://x", "https://", "http://\x00"])
def test_a_strange_address(tmp_path, address):
    with pytest.raises(InputError, match="cannot "):
        fetching.fetch(known_name(), tmp_path, address)
