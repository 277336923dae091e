"""What the paper's tables lack: fixed steps with as many network calls as DVS used, and DVS tested against them.

uniform   even steps, as many as the DVS arm took with that seed
ranges    the same number: base steps outside the active range, even ones inside it
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from isostep.study.comparison import compare_arms
from isostep.study.plan import Arm
from isostep.study.record import Study
from isostep.study.significance import judge, paired


def control_arm(name: str, schedule: str, of: str, study: Study) -> Arm | str:
    """The control of the arm `of`, which has run; or why there is none."""
    k = next(k for k, arm in enumerate(study.plan.arms) if arm.name == of)
    arm, settings, cells = study.plan.arms[k], study.record.arms[k].settings, study.cells[k]
    options: dict[str, Any] = {}
    steps = {seed: round(cell.steps) for seed, cell in cells.items()}
    if schedule == "ranges":
        active = settings["schedule_options"]["active"]
        length = sum(b - a for a, b in active)
        if length >= 1:
            return f"{name}: {of} acts on the whole trajectory, so its fixed grid is the even one"
        outside = min(round((1 - length) * settings["steps"]), min(steps.values()) - 1)
        if outside < 1:
            return f"{name}: {of} takes too few steps to have some inside the active range and some outside"
        options = {"active": active, "outside": outside}
    chosen = {**arm.chosen, "schedule": schedule, "steps": next(iter(steps.values())), "schedule_options": options}
    return Arm(name=name, chosen=chosen, control_of=of, steps_by_seed=steps)


def against_controls(study: Study) -> list[dict[str, Any]]:
    """DVS minus its control, paired by seed, for every control and metric; p after Holm's correction over these."""
    entries = {arm["name"]: arm for arm in compare_arms(study)["arms"]}
    rows = []
    for arm in study.plan.arms:
        if arm.control_of is None:
            continue
        for name, way in study.better.items():
            ours, theirs = (entries[who]["metrics"][name]["values"] for who in (arm.control_of, arm.name))
            if both := sorted(ours.keys() & theirs.keys()):
                test = asdict(paired([theirs[s] for s in both], [ours[s] for s in both]))
                rows.append({"arm": arm.control_of, "control": arm.name, "metric": name, "better": way, **test})
    judge(rows, [row["better"] for row in rows])
    return rows
