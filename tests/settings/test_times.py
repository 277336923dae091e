"""The schedule `times`: settings hold the times themselves, since a file can change and a graph must not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import isostep
from isostep.base.errors import InputError
from isostep.run.engine import sample_run
from isostep.run.export import export_items
from isostep.run.inspect import status, verify
from isostep.settings.resolve import build, resolve
from isostep.settings.schema import SamplerPreset
from tests.cli.command import refused

TOY = "rings-and-stars"
THREE = (0.0, 0.2, 0.7, 1.0)
FILE = {"schedule": "times", "schedule_options": {"file": "times.txt"}}


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    write(THREE)


def write(times: tuple[float, ...]) -> None:
    Path("times.txt").write_text(", ".join(map(str, times)))


def test_settings_hold_the_times_and_their_number():
    settings = resolve(SamplerPreset(), **FILE)
    assert (settings.steps, settings.schedule_options) == (3, {"times": THREE})
    for given in ({"times": list(THREE)}, {"times": np.array(THREE)}, {"file": Path("times.txt")}):
        assert resolve(SamplerPreset(), schedule="times", schedule_options=given, steps=3) == settings
    Path("times.txt").unlink()
    assert build(settings).controller.times == THREE


def test_a_run_is_continued_with_the_times_it_was_begun_with():
    def run(**more: Any) -> dict[str, Any]:
        return sample_run(TOY, 8, "run", batch_size=2, shard_size=2, **FILE, **more)

    made = []

    def stop(graphs: float) -> None:
        made.append(graphs)
        if sum(made) > 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(advance=stop)
    assert status("run")["shards_done"] == 1
    write((0.0, 0.5, 1.0))
    with pytest.raises(InputError, match="holds another run: its steps is 3, not 2"):
        run()
    write((0.0, 0.2, 0.8, 1.0))
    with pytest.raises(InputError, match="holds another run: its schedule_options is"):
        run()
    write(THREE)
    assert run()["steps_mean"] == 3
    Path("times.txt").unlink()
    assert verify("run", batches=4).ok


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--set", "file=times.txt", "--calls", 20), "make 3 steps, not 20; leave out steps and calls"),
        (("--set", "file=times.txt", "--steps", 20), "make 3 steps, not 20; leave out steps and calls"),
        (("--set", "file=times.txt", "--solver", "heun", "--calls", 3), "make 3 steps, not 1"),
        (("--set", "file=0"), "must be a path, got 0; a file of that name is ./0"),
        (("--set", "file=3"), "must be a path, got 3"),
        ((), "needs a file of times, or the times: --set file=times.txt"),
        (("--set", "file=times.txt", "--set", "times=[0,1]"), "needs a file of times, or the times"),
        (("--set", "times=1"), "schedule times: 'int' object is not iterable"),
        (("--set", "times=[0,.5]"), "from 0 to 1, got 0.0 to 0.5"),
        (("--set", "file=nowhere.txt"), "cannot read the times in nowhere.txt"),
        (("--set", "file=/dev/zero"), "more than 1,048,576 characters"),
    ],
)
def test_other_numbers_and_other_files_are_refused(options, words):
    assert words in refused("sample", TOY, "-n", 2, "--schedule", "times", *options, "--out", "run")
    assert not Path("run").exists()


def test_a_folder_that_names_the_file_can_still_be_read():
    sample_run(TOY, 4, "run", **FILE)
    record = json.loads(Path("run/run.json").read_text())
    for key in ("asked", "settings"):
        record[key] |= {"steps": 200, "schedule_options": {"file": "gone.txt"}}
    Path("run/run.json").write_text(json.dumps(record))
    assert status("run")["state"] == "complete"
    assert export_items("run", "all.jsonl", "jsonl") == 4
    run = isostep.load_run("run")
    assert isostep.evaluate(run, run.graphs, metrics=["degree"], resamples=0).values
    assert verify("run", batches=0).ok
