"""Headless Chromium: the page after its scripts ran, what it said on the console, and what it asked the network for."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-extensions", "--enable-logging=stderr",
    "--virtual-time-budget=4000",
)  # fmt: skip


@dataclass(frozen=True)
class Opened:
    dom: str
    console: list[str]
    requests: list[str]


def open_page(path: Path, scratch: Path, *flags: str) -> Opened:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium on this machine; install Debian's package chromium to open the report")
    log = scratch / "net.json"
    command = [browser, *FLAGS, *flags, f"--user-data-dir={scratch / 'profile'}", f"--log-net-log={log}", "--dump-dom"]
    done = subprocess.run([*command, path.resolve().as_uri()], capture_output=True, text=True, timeout=120, check=True)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Opened(done.stdout, console, _requests(log))


def _requests(log: Path) -> list[str]:
    """Addresses of web requests that the page began; the browser's own have no origin."""
    text = log.read_text(encoding="utf-8").rstrip().rstrip(",")
    record = json.loads(text if text.endswith("}") else text + "]}")
    begun = [event["params"] for event in record["events"] if "initiator" in event.get("params", {})]
    urls = {params["url"] for params in begun if params["initiator"] != "not an origin"}
    return sorted(url for url in urls if re.match(r"(https?|wss?)://", url))
