"""Known files over https: resumed where a download broke off, and accepted only with the right sha256.

Bytes arrive in `NAME.pth.part`; the file gets its name when it is whole.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path

from isostep.base.errors import InputError
from isostep.base.files import sha256
from isostep.model.released.known import Known, fetched, known_table, models_folder

TIMEOUT = 30.0  # seconds without a byte
BLOCK = 1 << 16
PATIENCE, SLOWEST = 300.0, 20_000.0  # all of it may take so many seconds, and one more for so many bytes
NO_SUCH_RANGE = 416


def fetch(
    name: str,
    folder: str | Path | None = None,
    site: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Path:
    """The path of a known model's file, downloaded unless it is there.

    Without `folder` it goes where models are looked up by name. `site` (or ISOSTEP_MODELS_URL) is a mirror with the
    same paths. `progress` is told the size of every block.
    """
    default, table = known_table()
    if name not in table:
        raise InputError(f"unknown model {name!r}; `isostep fetch` knows: {', '.join(table)}")
    known = table[name]
    place = Path(folder) if folder else models_folder()
    if there := fetched(known, place):
        return there
    home = site or os.environ.get("ISOSTEP_MODELS_URL") or default
    try:
        url = urllib.parse.urljoin(home.rstrip("/") + "/", known.path)
        address = urllib.parse.urlsplit(url)
    except ValueError as error:
        raise InputError(f"cannot fetch from {home}: {error}; check the address") from error
    if address.scheme not in ("https", "http") or not address.hostname or not url.isprintable():
        raise InputError(f"cannot fetch {url}: the address must start with https:// or http:// and name a host")
    try:
        place.mkdir(parents=True, exist_ok=True)
        return _download(url, known, place / known.file, progress or (lambda count: None))
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
        cause = " ".join(str(getattr(error, "reason", None) or error or type(error).__name__).split())
        raise InputError(
            f"cannot download {url} ({cause}); check the connection and run the command again: it goes on where it "
            f"stopped. Or copy the file yourself to {place / known.file}"
        ) from error
    except OSError as error:
        raise InputError(f"cannot write to {place}: {error.strerror}; choose another folder with --out") from error


def _download(url: str, known: Known, target: Path, progress: Callable[[int], None]) -> Path:
    part = target.with_name(target.name + ".part")
    with contextlib.suppress(_Restart):
        return _attempt(url, known, part, target, progress)
    part.unlink(missing_ok=True)
    try:
        return _attempt(url, known, part, target, progress)
    except _Restart as error:
        raise ConnectionError("the server has no such file") from error


class _Restart(Exception):
    """What is there cannot be continued."""


def _attempt(url: str, known: Known, part: Path, target: Path, progress: Callable[[int], None]) -> Path:
    have = part.stat().st_size if part.is_file() else 0
    if have > known.bytes:
        raise _Restart
    if have < known.bytes:
        _append(url, known, part, have, progress)
    if (size := part.stat().st_size) < known.bytes:
        raise ConnectionError(f"the connection ended after {size} of {known.bytes} bytes")
    if sha256(part) != known.sha256:
        part.unlink()
        if have:
            raise _Restart  # what was there before may have been the damaged half
        raise InputError(f"{url} is not the published file: its sha256 differs; nothing was kept, try a mirror")
    with open(part, "rb") as file:
        os.fsync(file.fileno())
    os.replace(part, target)
    return target


def _append(url: str, known: Known, part: Path, have: int, progress: Callable[[int], None]) -> None:
    headers = {"User-Agent": "isostep", "Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == NO_SUCH_RANGE:
            raise _Restart from error
        raise
    with answer:
        if have and answer.status == http.HTTPStatus.PARTIAL_CONTENT:
            start = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
            if start is None or int(start[1]) != have:
                raise _Restart
        else:
            have = 0  # the server sends the whole file
        progress(have)
        last = time.monotonic() + PATIENCE + (known.bytes - have) / SLOWEST
        with open(part, "ab" if have else "wb") as file:
            while have <= known.bytes and (block := answer.read1(BLOCK)):
                if time.monotonic() > last:
                    raise ConnectionError(f"too slow: {have} of {known.bytes} bytes")
                file.write(block)
                have += len(block)
                progress(len(block))
    if have > known.bytes:
        part.unlink()
        raise InputError(f"{url} is longer than the published {known.bytes} bytes; nothing was kept, try a mirror")
