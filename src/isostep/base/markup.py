"""HTML and SVG as text. `tag` is the only place where text becomes markup, and it escapes all of it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from typing import Any

from isostep.base.text import printable


class Markup(str):
    """Text that is markup already: made by `tag`, or by a program of ours from numbers alone."""

    __slots__ = ()


def tag(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """`<name ...>children</name>`. A child that is not Markup is text. `class_` is `class`, `aria_label` `aria-label`;
    an attribute that is None or False is left out, True has no value.
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{html.escape(_text(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    inner = "".join(child if isinstance(child, Markup) else html.escape(_text(child)) for child in children)
    return Markup(f"<{name}{written}>" if name in _EMPTY else f"<{name}{written}>{inner}</{name}>")


_EMPTY = {"meta", "link", "input", "br", "img"}


def join(parts: Any) -> Markup:
    return Markup("".join(part if isinstance(part, Markup) else html.escape(_text(part)) for part in parts))


def _text(value: Any) -> str:
    return "\n".join(printable(line) for line in str(value).split("\n"))


def script_data(key: str, value: Any) -> Markup:
    """A JSON value for the page's scripts: data, never run; `<` cannot end it early. Text is cleaned as in `tag`."""
    text = json.dumps(_clean(value), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return Markup(f'<script type="application/json" id="{key}">{text}</script>')


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        return {_clean(key): _clean(part) for key, part in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [_clean(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def source_hash(text: str) -> str:
    """How a content policy names an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def unstyled(svg: str) -> str:
    """`style="fill: none; ..."` of another program's SVG as attributes: the page's policy takes no inline styles."""
    return re.sub(r"""\sstyle=(["'])(.*?)\1""", _attributes, svg)


def _attributes(found: re.Match[str]) -> str:
    pairs = [part.split(":", 1) for part in html.unescape(found[2]).split(";") if ":" in part]
    return "".join(f' {name.strip()}="{html.escape(value.strip())}"' for name, value in pairs)
