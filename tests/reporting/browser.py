"""Headless Chromium: the page after its scripts ran, what it said on the console, and what it asked the network for."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import FIXTURES

AXE = FIXTURES / "axe"  # axe-core 4.10.3, MPL-2.0

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


AUDIT = """
addEventListener("load", () => setTimeout(() => axe.run(document, { resultTypes: ["violations"] }).then((result) => {
  const lines = result.violations.flatMap((rule) => rule.nodes.map((node) =>
    `${rule.impact} ${rule.id}: ${node.target} ${node.html.slice(0, 120)} ${node.failureSummary}`));
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  parent.document.body.dataset.told = JSON.stringify({ lines, dark, width: innerWidth });
}), 500));
"""


def audit(path: Path, scratch: Path, width: int, dark: bool) -> list[str]:
    """What axe-core finds serious or critical in a page that is so wide (a frame: windows are at least 500 wide)."""
    axe = (AXE / "axe.min.js").read_text()
    text = re.sub(r"<meta http-equiv[^>]*>", "", path.read_text())  # the policy forbids other scripts
    inner, outer = (path.with_name(f"{path.stem}-{name}.html") for name in ("audited", "frame"))
    inner.write_text(text.replace("</body>", f"<script>{axe}</script><script>{AUDIT}</script></body>"))
    outer.write_text(f'<body><iframe src="{inner.name}" width="{width}" height="900"></iframe></body>')
    flags = ("--allow-file-access-from-files", f"--window-size={width + 50},950", "--virtual-time-budget=30000")
    profile = scratch / f"{path.stem}-{width}-{dark}"  # the theme remembers which colours it showed
    profile.mkdir()
    page = open_page(outer, profile, *flags, f"--blink-settings=preferredColorScheme={0 if dark else 1}")
    match = re.search(r'data-told="([^"]*)"', page.dom)
    assert match, page.console
    told = json.loads(html.unescape(match[1]))
    assert (told["width"], told["dark"]) == (width, dark)
    return [line for line in told["lines"] if line.startswith(("serious", "critical"))]
