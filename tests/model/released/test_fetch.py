"""Downloading a known file from a server on this machine: whole, checked, resumed, or not at all."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from isostep.base.errors import InputError
from isostep.model.lookup import load_model
from isostep.model.released import fetch as module
from isostep.model.released.fetch import fetch
from isostep.model.released.known import Known, known_table, models_folder
from tests.conftest import FIXTURES

CONTENT = (FIXTURES / "grum" / "mol.pth").read_bytes()
NAME = "small"
KNOWN = Known(NAME, "folder/small.pth", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT), "grum-qm9")


@dataclass
class Server:
    """What it serves, how, and what it was asked for."""

    content: bytes = CONTENT
    ranges: str = "yes"  # yes, ignored, refused, shifted
    cut: int | None = None  # close the connection after so many bytes of the next answer
    status: int | None = None
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        wanted = request.headers.get("Range")
        self.asked.append((request.path, wanted))
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted else 0  # type: ignore[index]
        if self.status is not None or (wanted and self.ranges == "refused"):
            request.send_error(self.status or 416)
            return
        if wanted and self.ranges in ("yes", "shifted"):
            request.send_response(206)
            first = start if self.ranges == "yes" else 0
            request.send_header("Content-Range", f"bytes {first}-{len(self.content) - 1}/{len(self.content)}")
        else:
            start = 0
            request.send_response(200)
        request.send_header("Content-Length", str(len(self.content) - start))
        request.end_headers()
        request.wfile.write(self.content[start:] if self.cut is None else self.content[start:][: self.cut])
        self.cut = None


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.answer(self)

        def log_message(self, *arguments: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{listening.server_address[1]}/mirror"
    yield state
    listening.shutdown()
    thread.join()
    listening.server_close()


@pytest.fixture(autouse=True)
def _one_small_known_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = (known_table()[0], {NAME: KNOWN})
    for place in ("isostep.model.released.fetch", "isostep.model.lookup"):
        monkeypatch.setattr(f"{place}.known_table", lambda: table)
    monkeypatch.setenv("ISOSTEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def refusal(*arguments, **options) -> str:
    with pytest.raises(InputError) as caught:
        fetch(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_fetched_once_and_then_found_by_name(server: Server) -> None:
    with pytest.raises(InputError, match="isostep fetch small"):
        load_model(NAME)
    seen: list[int] = []
    path = fetch(NAME, site=server.url, progress=seen.append)
    assert path == models_folder() / "small.pth"
    assert path.read_bytes() == CONTENT
    assert sum(seen) == len(CONTENT)
    assert names(path.parent) == ["small.pth"]
    assert fetch(NAME, site=server.url) == path
    assert server.asked == [("/mirror/folder/small.pth", None)]
    assert load_model(NAME).info.sha256 == KNOWN.sha256


def test_the_mirror_can_be_named_by_the_environment(server: Server, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("ISOSTEP_MODELS_URL", server.url + "/")
    assert fetch(NAME, tmp_path).read_bytes() == CONTENT
    assert server.asked == [("/mirror/folder/small.pth", None)]


def test_a_broken_download_is_told_and_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.cut = 100_000
    assert f"after 100000 of {len(CONTENT)} bytes" in refusal(NAME, tmp_path, server.url)
    assert names(tmp_path) == ["small.pth.part"]
    path = fetch(NAME, tmp_path, server.url)
    assert server.asked[1] == ("/mirror/folder/small.pth", "bytes=100000-")
    assert path.read_bytes() == CONTENT
    assert names(tmp_path) == ["small.pth"]


@pytest.mark.parametrize("ranges", ["ignored", "refused", "shifted"])
def test_a_server_without_usable_ranges_sends_the_whole_file_again(server: Server, tmp_path: Path, ranges: str) -> None:
    (tmp_path / "small.pth.part").write_bytes(CONTENT[:1000])
    server.ranges = ranges
    assert fetch(NAME, tmp_path, server.url).read_bytes() == CONTENT


def test_a_damaged_beginning_is_thrown_away(server: Server, tmp_path: Path) -> None:
    (tmp_path / "small.pth.part").write_bytes(b"x" * 1000)
    assert fetch(NAME, tmp_path, server.url).read_bytes() == CONTENT


def test_a_damaged_file_is_replaced(server: Server, tmp_path: Path) -> None:
    (tmp_path / "small.pth").write_bytes(b"x" * len(CONTENT))
    assert fetch(NAME, tmp_path, server.url).read_bytes() == CONTENT


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"x", CONTENT + b"x", b"x" * len(CONTENT)])
def test_another_file_is_never_kept(server: Server, tmp_path: Path, content: bytes) -> None:
    server.content = content
    assert "nothing was kept" in refusal(NAME, tmp_path, server.url)
    assert names(tmp_path) == []


def test_no_server_no_file_no_name_and_no_folder_are_told_in_one_line(server: Server, tmp_path: Path) -> None:
    server.status = 404
    message = refusal(NAME, tmp_path, server.url)
    assert "Not Found" in message or "404" in message
    assert str(tmp_path / "small.pth") in message
    offline = refusal(NAME, tmp_path, "http://127.0.0.1:9")  # nothing listens on the discard port
    assert "check the connection" in offline
    assert "small" in refusal("big", tmp_path, server.url)
    assert "https://" in refusal(NAME, tmp_path, "file:///etc")
    (tmp_path / "taken").write_text("")
    assert "--out" in refusal(NAME, tmp_path / "taken" / "below", server.url)
    assert server.asked == [("/mirror/folder/small.pth", None)]


def test_a_silent_server_does_not_hold_the_command(tmp_path: Path, monkeypatch) -> None:
    import socket

    monkeypatch.setattr(module, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert "timed out" in refusal(NAME, tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}")


def test_the_packaged_table_names_the_seven_files(shared: Path) -> None:
    from isostep.base.files import sha256

    # `known_table` is patched only where it is used.
    site, table = known_table()
    assert site.startswith("https://")
    files = {path.stem: path for path in (shared / "checkpoints" / "gdss").glob("*.pth")}
    assert table.keys() == files.keys()
    for name, known in table.items():
        assert (known.sha256, known.bytes) == (sha256(files[name]), files[name].stat().st_size)
        assert known.path.endswith(f"/{known.file}")
