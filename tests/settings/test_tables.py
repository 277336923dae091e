"""What can be chosen by name: every entry works, and every list of names is the table's."""

import re
import subprocess
import sys

import pytest

from isostep.base.errors import InputError
from isostep.settings.resolve import build, needs_pilot, resolve
from isostep.settings.schedules import CHOICES, SCHEDULES
from isostep.settings.schema import SamplerPreset, SamplerSettings
from isostep.settings.solvers import SOLVERS
from tests.cli.command import isostep
from tests.conftest import ROOT


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("clock", ["batch", "graph"])
def test_every_schedule_goes_with_every_solver_that_can_serve_it(schedule, solver, clock):
    times = {"times": (0.0, 0.25, 1.0)}
    chosen = {"schedule": schedule, "solver": solver, "clock": clock, "steps": 2}
    if SCHEDULES[schedule].given:
        chosen["schedule_options"] = times
    if schedule == "error" and not solver.startswith("heun"):
        with pytest.raises(InputError, match=f"schedule error needs a solver with a tolerance, {solver} has none"):
            resolve(SamplerPreset(), 20, **chosen)
        return
    settings = resolve(SamplerPreset(), **chosen)
    assert needs_pilot(settings) == SCHEDULES[schedule].needs_pilot
    if needs_pilot(settings):
        settings = settings.model_copy(update={"schedule_options": times})
    sampler = build(settings)
    assert sampler.solver.calls_per_step in (1, 2)
    if SCHEDULES[schedule].clock_field:
        assert sampler.controller.couples_graphs == (clock == "batch")


@pytest.mark.parametrize(("table", "what"), [(SCHEDULES, "schedule"), (SOLVERS, "solver")])
def test_a_wrong_option_is_refused_with_those_there_are(table, what):
    for name in table:
        with pytest.raises(InputError, match=f"{what} {name} has no option 'speed'; it takes: ") as error:
            resolve(SamplerPreset(), **{"schedule": "uniform", what: name, f"{what}_options": {"speed": 3}})
        assert "\n" not in str(error.value)


def test_a_knob_is_an_option_of_what_it_turns():
    for name, entry in SCHEDULES.items():
        if (knob := entry.budget_knob) is None:
            continue
        plain = resolve(SamplerPreset(), schedule=name)
        turned = resolve(SamplerPreset(), schedule=name, **{knob.table: {knob.name: knob.high}})
        assert build(turned) != build(plain)
        assert knob.low < knob.usual < knob.high


def test_a_wrong_name_is_refused_with_those_there_are():
    with pytest.raises(InputError, match=f"unknown schedule 'x'; choose one of: {', '.join(CHOICES)}"):
        resolve(SamplerPreset(), schedule="x")
    with pytest.raises(InputError, match=f"unknown solver 'x'; choose one of: {', '.join(SOLVERS)}"):
        build(SamplerSettings(solver="x"))


@pytest.mark.parametrize("name", ["steps", "calls"])
@pytest.mark.parametrize("value", [-1, 0, 2.5, "x", True])
@pytest.mark.parametrize("schedule", [None, "uniform"])
def test_a_number_of_steps_or_calls_that_cannot_be_is_refused(name, value, schedule):
    given = {"budget": value} if name == "calls" else {"steps": value}
    with pytest.raises(InputError, match=f"^{name} must be a whole number from 1 to 10,000,000, got {value!r}$"):
        resolve(SamplerPreset(), schedule=schedule, **given)


def test_help_and_documents_list_the_tables():
    shown = " ".join(isostep("sample", "--help").out.split())
    usage = (ROOT / "docs" / "usage.md").read_text()
    table = {**CHOICES, **{name: entry.help for name, entry in SOLVERS.items()}}
    for name, text in table.items():
        assert re.search(rf"[•-] {re.escape(name + ': ' + text)}", shown)  # bullets differ between versions of rich
        assert f"| `{name}` | {text} |" in usage
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| [^|]* \|$", usage.split("| schedule | |")[1].split("\n\n`auto`")[0], re.M)
    assert rows == list(table)


def test_documents_list_the_options_of_schedules():
    text = (ROOT / "docs" / "usage.md").read_text().split("Options of schedules (`--set`): ")[1].split("\n\n")[0]
    listed = {name: set(re.findall(r"\w+", options)) for name, options in re.findall(r"`(\w+)` ([^;]*)", text)}
    listed["decisions"] |= listed["arclength"]
    for name, entry in SCHEDULES.items():
        options = entry.pilot.options() if entry.pilot else entry.given.options() if entry.given else entry.options(1)
        assert listed.get(name, set()) >= options, name
        assert bool(options) == (name in listed), name


def test_reading_tables_and_schema_loads_neither_torch_nor_a_solver():
    code = (
        "import sys, isostep.cli, isostep.settings.schema\n"
        "assert not {'torch', 'numpy', 'isostep.control', 'isostep.solver'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_what_a_solver_says_of_itself_is_no_option():
    for name in SOLVERS:
        for claim in ("calls_per_step", "corrector"):
            with pytest.raises(InputError, match=f"has no option '{claim}'"):
                resolve(SamplerPreset(), schedule="uniform", solver=name, solver_options={claim: 3})


@pytest.mark.parametrize("clock", ["batch", "graph"])
def test_the_clock_is_chosen_as_such_and_not_by_an_option(clock):
    for name, entry in SCHEDULES.items():
        if entry.clock_field:
            with pytest.raises(InputError, match=f"schedule {name} has no option '{entry.clock_field}'"):
                resolve(SamplerPreset(), schedule=name, clock=clock, schedule_options={entry.clock_field: "batch"})
