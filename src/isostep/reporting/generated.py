"""The first items of every arm, not selected, and molecules in three dimensions."""

from __future__ import annotations

from typing import Any

from isostep.base.markup import Markup, join, tag
from isostep.item.base import kind_named
from isostep.reporting.figures import largest
from isostep.study.record import Study

SHOWN_ARMS, SHOWN_ITEMS, SHOWN_3D, PAGE = 4, 24, 6, 12


def generated(study: Study, molecules: list[dict[str, Any]]) -> Markup:
    parts, faults = [], False
    for k, group, arm in largest(study)[:SHOWN_ARMS]:
        if items := study.generated(k, SHOWN_ITEMS):
            pictures = [item.picture() for item in items]
            tiles = [tile(shown.svg, shown.caption, shown.fault, index) for index, shown in enumerate(pictures)]
            faults = faults or any(shown.fault for shown in pictures)
            wide = "grid wide" if items[0].wide else "grid"
            parts.append(tag("div", tag("h3", arm.name), tag("div", *tiles, class_=wide), data_arm=group))
    if not parts:
        return Markup()
    about = f"The first {study.record.model.kind}s of the first seed, not selected."
    marked = " Those that were invalid before correction are marked." if faults else ""
    return join([
        tag("p", about + marked, class_="soft"), _controls(faults),
        tag("div", *parts, id="figure-generated", data_page=PAGE), _three_d(molecules, study.record.model.kind),
    ])  # fmt: skip


def _controls(faults: bool) -> Markup:
    choices = {"": "all", "fine": "valid before correction", "fault": "invalid before correction"}
    which = tag("select", *(tag("option", name, value=key) for key, name in choices.items()), id="items-kind")
    return tag(
        "div",
        tag("label", "Find ", tag("input", type="search", id="items-text", placeholder="text below a picture")),
        tag("label", "Show ", which) if faults else "",
        tag("span", tag("button", "Previous", type="button", id="items-back"),
            tag("span", "", id="items-said", role="status"), tag("button", "Next", type="button", id="items-next")),
        class_="controls", hidden=True, id="items-controls",
    )  # fmt: skip


def tile(picture: Markup, caption: str, fault: str = "", index: int | None = None) -> Markup:
    mark = tag("span", fault, class_="fault") if fault else ""
    return tag(
        "div", picture, mark, tag("div", caption, class_="caption", title=caption),
        class_="tile faulty" if fault else "tile", data_index=index,
    )  # fmt: skip


def _three_d(molecules: list[dict[str, Any]], kind: str) -> Markup:
    if not molecules:
        return Markup()
    tiles = []
    for k, molecule in enumerate(molecules):
        label = f"{molecule['smiles']}, ball and stick; arrow keys turn it"
        canvas = tag("canvas", data_molecule=k, tabindex=0, role="img", aria_label=label)
        tiles.append(tile(canvas, molecule["smiles"]))
    about = f"{kind_named(kind).space}, of the last arm's first {kind}s; drag to turn."
    return join([
        tag("h3", "In three dimensions"), tag("p", about, class_="soft"),
        tag("div", *tiles, id="figure-3d", class_="grid wide"),
    ])  # fmt: skip


def molecules_3d(study: Study) -> list[dict[str, Any]]:
    items = study.generated(len(study.plan.arms) - 1, SHOWN_ITEMS)
    found = (item.in_space() for item in items)
    return [molecule for molecule in found if molecule][:SHOWN_3D]
