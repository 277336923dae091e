"""`isostep demo`: what the package does, in a few minutes."""

from __future__ import annotations

import time
from pathlib import Path

import typer

DEFAULT = "grum-community-small"
SEEDS = (0, 1, 2)
LIMIT = 180.0  # seconds of sampling that the counts are cut to


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    model: str = typer.Option(DEFAULT, help="Embedded name, model folder, released .pth file, or rings-and-stars."),
    out: Path = typer.Option(Path("report"), help="Folder for the study and report.html."),
) -> None:
    """Sample with uniform, quadratic and DVS steps, compare them, and write a report page.

    Example: `isostep demo`
    """
    from isostep.cli.compare import make_plan, teller
    from isostep.report.page import write_report
    from isostep.study.compare import run_plan
    from isostep.study.output import print_comparison, write_outputs
    from isostep.study.plan import product_arms

    chosen, reference, said = _find(model)
    n, steps, seconds = _fit(chosen)
    typer.echo(
        f"{said}: uniform, quadratic and DVS, {n} {chosen.info.kind}s, {steps} base steps, {len(SEEDS)} seeds; "
        f"about {max(1, round(seconds / 60 + 0.5))} min on this machine"
    )
    plan = make_plan(
        title=f"Isostep on {chosen.info.name}", model=chosen.info.name,
        arms=product_arms(["uniform", "quadratic", "dvs"], [], [], steps), seeds=SEEDS, n=n, reference=reference,
        notes=(f"A demonstration: {n} graphs and {steps} base steps, fewer than a study needs.",),
    )  # fmt: skip
    study = run_plan(plan, out, chosen, teller(False))
    comparison = write_outputs(study, plots=False)  # the page has them
    write_report(out / "report.html", study, comparison)
    print_comparison(comparison)
    typer.echo(f"open {out / 'report.html'} for the pictures")


def _find(name: str):
    """The model, its reference (None: its dataset's), and a word about it; analytic where nothing is embedded."""
    from isostep.model.zoo import embedded_names, load_model
    from isostep.study.toy import NAME, toy_model, toy_reference

    missing = name == DEFAULT and name not in embedded_names()
    if name == NAME or missing:
        return toy_model(), str(toy_reference()), f"the analytic model {NAME}" + " (none is embedded)" * missing
    return load_model(name), None, name


def _fit(model) -> tuple[int, int, float]:
    """Graphs and steps whose estimated time, from a few measured steps, stays within LIMIT."""
    from isostep.sampling.run import sample
    from isostep.study.path import BrownianPath

    few = 6
    sample(model, 8, schedule="uniform", steps=2, noise=BrownianPath(0))  # the first calls are slow
    best = (16, 25, 0.0)
    for n, steps in ((64, 200), (64, 100), (32, 100), (32, 50), (16, 50), (16, 25)):
        began = time.perf_counter()
        sample(model, n, schedule="uniform", steps=few, noise=BrownianPath(0))
        each = (time.perf_counter() - began) / few
        best = (n, steps, each * steps * (2 + 3) * len(SEEDS))  # DVS may take three times its base steps
        if best[2] <= LIMIT:
            break
    return best
