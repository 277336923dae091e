"""`isostep demo`: what the package does, in a few minutes."""

from __future__ import annotations

from pathlib import Path

import typer

DEFAULT = "grum-planar-small"
SEEDS = (0, 1, 2, 3, 4)
CALLS = 10
GRAPHS, QUICK = 256, 16  # fixed, so that what it prints can be repeated


def demo(
    model: str = typer.Option(DEFAULT, help="Embedded name, model folder, released .pth file, or rings-and-stars."),
    out: Path = typer.Option(Path("report"), help="Folder for the study and report.html."),
    quick: bool = typer.Option(False, "--quick", help="16 graphs and two seeds: a first look within a minute."),
) -> None:
    """Sample with uniform, quadratic and DVS steps and with `auto`, at equal calls; compare; write a report page.

    Example: `isostep demo`
    """
    from isostep.cli.compare import checked_plan
    from isostep.reporting.output import print_comparison, write_outputs
    from isostep.reporting.page import write_report
    from isostep.settings.schedules import AUTO, COMPARED
    from isostep.study.compute import run_study
    from isostep.study.plan import Arm, product_arms

    chosen, reference, said = _find(model)
    seeds = SEEDS[:2] if quick else SEEDS
    n = QUICK if quick else GRAPHS
    counts = f"{CALLS} network calls, {n} {chosen.info.kind}s, {len(seeds)} seeds"
    typer.echo(f"{said}: {', '.join(COMPARED)} and {AUTO} at {counts}")
    arms = product_arms(list(COMPARED), ["euler"], [CALLS], None)
    plan = checked_plan(
        title=f"Isostep on {chosen.info.name}", model=chosen.info.name,
        arms=(*arms, Arm(name=AUTO, chosen={"schedule": AUTO}, calls=CALLS)), seeds=seeds, n=n, reference=reference,
        notes=(f"A demonstration: {n} graphs and {CALLS} calls a graph, fewer than a study needs.",),
    )  # fmt: skip
    study = run_study(plan, out, chosen)
    comparison = write_outputs(study, plots=False)  # the page has them
    write_report(out / "report.html", study, comparison)
    print_comparison(comparison)
    typer.echo(f"open {out / 'report.html'} for the pictures")


def _find(name: str):
    """The model, its reference (None: its dataset's), and a word about it; analytic where nothing is embedded."""
    from isostep.model.analytic import NAME, analytic_model
    from isostep.model.lookup import embedded_names, load_model
    from isostep.study.reference import analytic_reference

    missing = name == DEFAULT and name not in embedded_names()
    if name == NAME or missing:
        return (
            analytic_model(),
            str(analytic_reference()),
            f"the analytic model {NAME}" + " (none is embedded)" * missing,
        )
    return load_model(name), None, name
