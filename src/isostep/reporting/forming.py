"""A graph forming, arm by arm on the same noise: stills on the page, and films for the script that shows any time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from isostep.base.markup import Markup, join, tag
from isostep.item.film import Film
from isostep.item.picture import Positions, graph_svg, groups, layout, sketch_graph
from isostep.reporting.figures import largest
from isostep.reporting.generated import SHOWN_ARMS, tile
from isostep.study.record import Study

STILLS = 5  # after the first, which is noise
BARS = 240  # of a strip of steps; more are thinned


@dataclass(frozen=True)
class Reel:
    """An arm's films and steps. `shown`: the graph on the stills."""

    group: int
    name: str
    films: tuple[Film, ...]
    steps: tuple[tuple[float, float], ...]  # t, dt
    shown: int

    @cached_property
    def placed(self) -> list[tuple[Positions, list[int]]]:
        """Places and colours of the nodes, by the final graph."""
        final = [sketch_graph(film.sketch(-1)) for film in self.films]
        return [(layout(graph), groups(graph)) for graph in final]

    def data(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "steps": [[round(t, 4), float(f"{dt:.3g}")] for t, dt in self.steps[:: -(-len(self.steps) // BARS)]],
            "graphs": [
                {**film.model_dump(exclude_none=True), "spots": (1000 * spots).round().astype(int).tolist(),
                 "colour": colour}
                for film, (spots, colour) in zip(self.films, self.placed, strict=True)
            ],
            "shown": self.shown,
        }  # fmt: skip


def reels_of(study: Study) -> list[Reel]:
    reels: list[Reel] = []
    for k, group, arm in largest(study)[:SHOWN_ARMS]:
        found = study.recorded(k)
        if found is None or not found[0].films:  # a run that left the numbers has none
            continue
        path = found[0]
        steps = [(t, dt) for t, dt in zip(path.trace["t"], path.trace["dt"], strict=True) if t is not None and dt]
        shown = reels[0].shown if reels else _liveliest(path.films)
        reels.append(Reel(group, arm.name, path.films, tuple(steps), min(shown, len(path.films) - 1)))
    return reels


def forming(reels: list[Reel]) -> Markup:
    if not reels:
        return Markup()
    bonds = reels[0].films[0].elements is not None
    about = (
        f"What the model takes the graph for, on its way from noise to data: {'bonds' if bonds else 'edges'} that "
        "count as there are drawn in full, others as faint as they are unlikely. Seed, index and noise are the same in "
        f"every arm; nodes are placed as in the arm's final graph{', coloured by its communities' * (not bonds)}. "
        "The strip below a graph shows the length of each step, and in colour how many decisions changed."
    )
    films = [
        tag(
            "div", tag("h3", reel.name), tag("div", *_stills(reel), class_="strip"),
            class_="film", data_film=k, data_arm=reel.group,
        )
        for k, reel in enumerate(reels)
    ]  # fmt: skip
    box = tag("div", *films, id="figure-films", class_="films")
    return join([tag("p", about, class_="soft"), _controls(reels[0]), box])


def _controls(reel: Reel) -> Markup:
    last, count = len(reel.films[0].edges) - 1, len(reel.films)
    numbers = (tag("option", k, value=k, selected=k == reel.shown) for k in range(count))
    return tag(
        "div",
        tag("button", "Play", type="button", id="film-play"),
        tag("label", "Time ", tag("input", type="range", min=0, max=last, value=last, id="film-time"),
            tag("output", "", id="film-said", for_="film-time")),
        tag("label", "Graph ", tag("select", *numbers, id="film-graph")),
        class_="controls", hidden=True, id="film-controls",
    )  # fmt: skip


def _stills(reel: Reel) -> list[Markup]:
    film, last = reel.films[reel.shown], len(reel.films[reel.shown].edges) - 1
    tiles = []
    for k in range(STILLS + 1):
        frame = round(k * last / STILLS)
        t = frame / last if last else 1.0
        svg = graph_svg(film.sketch(frame), *reel.placed[reel.shown], f"{reel.name} at t = {t:.1f}")
        tiles.append(tile(svg, "t = 0, noise" if frame == 0 else f"t = {t:.1f}"))
    return tiles


def _liveliest(films: tuple[Film, ...]) -> int:
    """The one with most edges in the end."""
    return max(range(len(films)), key=lambda k: len(films[k].sketch(-1).decided))
