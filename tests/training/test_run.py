"""Run folders: resume to the bit, checkpoints that survive a kill, the model folder, errors."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from isostep.base import progress
from isostep.base.errors import InputError
from isostep.cli import app
from isostep.model.folder import load_folder
from isostep.training import presets
from isostep.training.checkpoint import BEST, LAST, load_checkpoint, part, save_checkpoint
from isostep.training.config import check_config, load_config
from isostep.training.export import export_run
from isostep.training.log import TrainLog
from isostep.training.run import resume, run
from isostep.training.trainer import Trainer
from tests.training.configs import LOLLIPOP, STAR, config, data, toml, values


def _trainer(family: str = "grum", kind: str = "adamw", dropout: float = 0.2, **run_changes) -> Trainer:
    table = {**values(family)["run"], **run_changes}
    network = {family: {**values(family)[family], **({"dropout": dropout} if family == "grum" else {})}}
    optimizer = {**values(family)["optimizer"], "kind": kind}
    return Trainer(config(family, run=table, optimizer=optimizer, **network), data(family, [STAR, LOLLIPOP], 7))


@pytest.mark.parametrize(
    ("family", "how"),
    [
        ("grum", {}),
        ("gdss", {}),
        ("grum", {"kind": "muon"}),
        ("gdss", {"kind": "muon"}),
        ("grum", {"kind": "muon", "dropout": 0.0, "precision": "bfloat16"}),
    ],
)
def test_resumed_training_equals_uninterrupted_to_the_bit(family, how, tmp_path):
    run(_trainer(family, **how), tmp_path / "whole")
    for stop in (3, 7, 15, None):
        torch.rand(stop or 1)  # whatever else used the global generator in between must not matter
        run(_trainer(family, **how), tmp_path / "parts", stop_at=stop)
    for name in (LAST, BEST):
        whole, _ = load_checkpoint(tmp_path / "whole" / name)
        parts, progress = load_checkpoint(tmp_path / "parts" / name)
        assert whole.keys() == parts.keys()
        assert all(torch.equal(whole[key], parts[key]) for key in whole)
    assert progress.step <= 20
    logs = [list(csv.DictReader((tmp_path / which / "log.csv").open())) for which in ("whole", "parts")]
    for row in (row for log in logs for row in log):
        del row["seconds"], row["cpu_seconds"]
    assert logs[0] == logs[1]


def test_a_run_begins_with_the_weights_of_another(tmp_path):
    run(_trainer(), tmp_path / "first")
    (tmp_path / "first" / "train.toml").write_text(toml("grum", grum=_trainer().config.network.model_dump()))
    export_run(tmp_path / "first", tmp_path / "model", data=data("grum", [STAR, LOLLIPOP], 7))
    given = load_folder(tmp_path / "model").network.state_dict()

    def second(name: str = str(tmp_path / "model"), **network) -> Trainer:
        grum = {**_trainer().config.network.model_dump(), **network}
        return Trainer(config("grum", grum=grum, begin=name, seed=5), data("grum", [STAR, LOLLIPOP], 7))

    fresh = second()
    matrices = {key: value for key, value in fresh.network.state_dict().items() if value.dim() > 1}
    assert not any(torch.equal(value, given[key]) for key, value in matrices.items())
    resume(fresh, tmp_path / "second")
    for network in (fresh.network, fresh.ema):
        assert all(torch.equal(value, given[key]) for key, value in network.state_dict().items())
    run(second(), tmp_path / "whole")
    run(second(), tmp_path / "parts", stop_at=7)
    (tmp_path / "model").rename(tmp_path / "gone")  # a run that has begun needs it no more
    run(second(), tmp_path / "parts")
    whole, parts = (load_checkpoint(tmp_path / name / LAST)[0] for name in ("whole", "parts"))
    assert all(torch.equal(whole[key], parts[key]) for key in whole)
    with pytest.raises(InputError, match="no model"):
        resume(second(), tmp_path / "third")
    with pytest.raises(InputError, match="of another network"):
        resume(second(str(tmp_path / "gone"), layers=3), tmp_path / "third")


def _evaluated(every: int, steps: int = 20, metrics: tuple[str, ...] = ("connected", "degree")) -> Trainer:
    """Community-small from the generator: the dataset that its reference knows."""
    evaluate = {"every": every, "graphs": 8, "steps": 4, "metrics": metrics, "seed": 3}
    settings = config("grum", evaluate=evaluate, run={**values("grum")["run"], "steps": steps})
    return Trainer(settings, settings.training.load(settings.data))


def test_samples_are_measured_on_the_way_and_change_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("ISOSTEP_DATA", str(tmp_path / "none"))
    run(_evaluated(8), tmp_path / "watched")
    run(_evaluated(8), tmp_path / "parts", stop_at=9)
    run(_evaluated(8), tmp_path / "parts")
    run(_evaluated(1000, steps=20), tmp_path / "alone", stop_at=19)
    logs = [list(csv.DictReader((tmp_path / which / "log.csv").open())) for which in ("watched", "parts")]
    found = [{row["step"]: (row["connected"], row["degree"]) for row in log if row["degree"]} for log in logs]
    assert list(found[0]) == ["8", "16", "20"]
    assert found[0] == found[1]
    assert all(0 <= float(value[0]) <= 1 and float(value[1]) > 0 for value in found[0].values())
    one, other = (_evaluated(8), _evaluated(1000))
    resume(one, tmp_path / "watched")
    resume(other, tmp_path / "alone")
    other.step()
    pairs = zip(one.ema.parameters(), other.ema.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_a_metric_that_cannot_be_computed_is_refused_before_the_first_step(tmp_path, monkeypatch):
    monkeypatch.setenv("ISOSTEP_DATA", str(tmp_path / "none"))
    with pytest.raises(InputError, match="unknown metric 'fcd'"):
        run(_evaluated(8, metrics=("fcd",)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_says_its_speed_and_what_is_left(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(progress, "FIRST", 0.0)
    with caplog.at_level("INFO", "isostep"):
        run(_trainer(), tmp_path, stop_at=3)
    start, first, line, *_ = (record.getMessage() for record in caplog.records)
    assert re.fullmatch(r"training tiny: 0\.\d\d million weights, 8 graphs a step, from step 0 to 3", start)
    assert re.fullmatch(r"training tiny: 1 of 3 steps, loss \S+", first)  # it holds the start: no speed yet
    assert re.fullmatch(r"training tiny: 2 of 3 steps, loss \S+, \S+ (steps/s|s each), \d+ s left", line)


INTERRUPTED = """
import sys
from isostep.cli import main
sys.argv = ["isostep", "train", *sys.argv[1:]]
main()
"""


def test_an_interrupt_saves_the_step_and_says_how_to_go_on(tmp_path):
    (tmp_path / "tiny.toml").write_text(toml("grum", run={**values("grum")["run"], "steps": 10**6}))
    call = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "tiny.toml"), "--out", str(tmp_path / "run")]
    environment = {**os.environ, "ISOSTEP_DATA": str(tmp_path / "none")}
    environment.pop("ISOSTEP_QUIET", None)
    process = subprocess.Popen(call, env=environment, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "run" / LAST).exists():
        assert process.poll() is None, "training ended by itself"
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    step = load_checkpoint(tmp_path / "run" / LAST)[1].step
    assert f"interrupted: {tmp_path / 'run'} keeps all {step} steps; the same command goes on" in said
    rows = list(csv.DictReader((tmp_path / "run" / "log.csv").open()))
    assert step - int(rows[-1]["step"]) < 20


def _hot(lr: float, **run_changes) -> Trainer:
    table = {**values("grum")["run"], **run_changes}
    settings = config("grum", run=table, optimizer={"lr": lr, "amsgrad": False})
    return Trainer(settings, data("grum", [STAR, LOLLIPOP], 7))


def test_a_run_that_diverges_ends_before_the_step_is_saved(tmp_path):
    with pytest.raises(InputError, match=r"the loss is nan at step 2; lower optimizer.lr, now 1e\+30,") as error:
        run(_hot(1e30, checkpoint_every=1, log_every=1), tmp_path)
    assert f"another --out ({tmp_path} keeps the checkpoint before)" in str(error.value)
    assert load_checkpoint(tmp_path / LAST)[1].step == 1
    assert [row["step"] for row in TrainLog(tmp_path / "log.csv").rows] == ["1"]
    with pytest.raises(InputError, match=r"the loss is nan at step 1; .* start again \(there is no checkpoint yet\)"):
        run(_hot(1e30, validate_every=1), tmp_path / "validated")
    with pytest.raises(InputError, match="a weight is not finite at step 1"):  # the loss is of the weights before
        run(_hot(1e39, checkpoint_every=1), tmp_path / "overflown")
    for name in ("validated", "overflown"):
        assert not list((tmp_path / name).glob("*.safetensors"))


def test_a_folder_of_another_configuration_is_refused(tmp_path):
    run(_trainer(), tmp_path, stop_at=5)
    with pytest.raises(InputError, match="another configuration"):
        run(_trainer(batch=4), tmp_path)
    with pytest.raises(InputError, match="another configuration"):  # the best loss would be of other graphs
        run(_trainer(validation_graphs=16), tmp_path)
    run(_trainer(dropout=0.0), tmp_path / "exact", stop_at=5)
    with pytest.raises(InputError, match="another configuration"):
        run(_trainer(dropout=0.0, precision="bfloat16"), tmp_path / "exact")
    assert run(_trainer(steps=22, validate_every=6, checkpoint_every=7, log_every=8), tmp_path).step == 22


def test_a_checkpoint_older_than_a_setting_is_one_that_has_its_default(tmp_path):
    run(_trainer(), tmp_path, stop_at=5)
    tensors, progress = load_checkpoint(tmp_path / LAST)
    settings = json.loads(progress.config)
    del settings["loss"]["strata"], settings["optimizer"]["amsgrad"]
    save_checkpoint(tmp_path / LAST, tensors, replace(progress, config=json.dumps(settings)))
    changed = _trainer()
    changed.config = config("grum", grum=changed.config.grum, loss={"strata": True})
    with pytest.raises(InputError, match="another configuration"):
        run(changed, tmp_path)
    assert run(_trainer(), tmp_path, stop_at=6).step == 6


def test_a_checkpoint_that_knows_only_the_batch_of_its_run_is_continued_to_the_bit(tmp_path):
    """As earlier versions wrote it; the settings are not those that a missing key would mean."""
    how = {"kind": "muon", "dropout": 0.0, "precision": "bfloat16"}
    run(_trainer(**how), tmp_path / "whole")
    run(_trainer(**how), tmp_path / "parts", stop_at=7)
    tensors, progress = load_checkpoint(tmp_path / "parts" / LAST)
    stored = json.loads(progress.config)
    assert stored["run"] == {"batch": 8, "validation_graphs": 8, "precision": "bfloat16"}
    stored["run"] = {"batch": 8}
    save_checkpoint(tmp_path / "parts" / LAST, tensors, replace(progress, config=json.dumps(stored)))
    run(_trainer(**how), tmp_path / "parts")
    whole, parts = (load_checkpoint(tmp_path / name / LAST) for name in ("whole", "parts"))
    assert all(torch.equal(whole[0][key], parts[0][key]) for key in whole[0])
    assert (whole[1].best, whole[1].config) == (parts[1].best, parts[1].config)


def test_a_checkpoint_of_the_version_before_is_continued(tmp_path):
    """It had a null for the other family's table, no `strata` and `factor`, and other names for the log's columns."""
    run(_trainer(), tmp_path, stop_at=5)
    tensors, progress = load_checkpoint(tmp_path / LAST)
    stored = json.loads(progress.config)
    stored = {**stored, "gdss": None, "loss": {"eps": 2e-3, "edges": 5.0}}
    for one in stored["process"].values():
        del one["factor"]
    save_checkpoint(tmp_path / LAST, tensors, replace(progress, config=json.dumps(stored)))
    log = (tmp_path / "log.csv").read_text()
    (tmp_path / "log.csv").write_text(log.replace("loss_X", "loss_x").replace("loss_A", "loss_adj"))
    assert run(_trainer(), tmp_path).step == 20
    rows = list(csv.DictReader((tmp_path / "log.csv").open()))
    assert rows[0].keys() == rows[-1].keys() >= {"loss_X", "loss_A", "val_loss_X", "val_loss_A"}
    assert all(rows[k]["val_loss_A"] for k in (0, -1))
    for other in ("", "[]", "{}", json.dumps({**stored, "seed": 1})):
        save_checkpoint(tmp_path / LAST, tensors, replace(progress, config=other))
        with pytest.raises(InputError, match="another configuration"):
            run(_trainer(), tmp_path)


@pytest.mark.parametrize(("family", "dropout"), [("grum", 0.1), ("gdss", 0.0)])
def test_bfloat16_is_refused_where_it_would_not_be_used(family, dropout):
    with pytest.raises(InputError, match="precision bfloat16 is for GruM without dropout"):
        _trainer(family, dropout=dropout, precision="bfloat16")


def test_a_broken_checkpoint_is_one_line(tmp_path):
    (tmp_path / LAST).write_bytes(b"not a checkpoint")
    with pytest.raises(InputError, match="is not a training checkpoint"):
        run(_trainer(), tmp_path)


@pytest.mark.parametrize("family", ["grum", "gdss"])
def test_exported_model_computes_what_the_averaged_weights_compute(family, tmp_path):
    trainer = _trainer(family)
    run(trainer, tmp_path, text=toml(family))
    info = export_run(tmp_path, tmp_path / "model", "last", trainer.data)
    model = load_folder(tmp_path / "model")
    assert (info.dataset, info.max_nodes) == ("community-small", 7)
    assert dict(info.node_counts) == {4: 1, 6: 1}
    clean, _, t = trainer.look(trainer.data.train, torch.tensor([0, 1]), 0)
    expected = trainer.ema(*clean.components.values(), clean.mask, t)
    found = model.network(*clean.components.values(), clean.mask, t)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=2e-2, rtol=2e-2)
    assert (tmp_path / "model" / "log.csv").read_bytes() == (tmp_path / "log.csv").read_bytes()
    assert load_config(tmp_path / "model" / "train.toml").name == "tiny"


WORKER = """
import sys; from pathlib import Path
import torch; torch.set_num_threads(1)
from isostep.training.log import TrainLog
from isostep.training.run import resume, run
from tests.training.test_run import _trainer
run(_trainer(steps=100000, checkpoint_every=1, validate_every=2), Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_twenty_kills_never_leave_a_checkpoint_that_fails_to_load(tmp_path):
    root, steps = Path(__file__).resolve().parents[2], []
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'src'}", "OMP_NUM_THREADS": "1"}
    for kill in range(20):
        process = subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path)], env=environment, cwd=root)
        before = (tmp_path / LAST).stat().st_mtime_ns if kill else 0
        while not (tmp_path / LAST).exists() or (tmp_path / LAST).stat().st_mtime_ns == before:
            assert process.poll() is None, "training ended by itself"
            time.sleep(0.02)
        time.sleep(0.013 * kill)
        process.send_signal(signal.SIGKILL)
        process.wait()
        tensors, progress = load_checkpoint(tmp_path / LAST)
        assert part(tensors, "ema.").keys() == part(tensors, "raw.").keys()
        steps.append(progress.step)
        if (tmp_path / BEST).exists():
            load_checkpoint(tmp_path / BEST)
    assert steps == sorted(set(steps)), "every start went on from the one before"


def test_every_preset_is_valid_and_builds_its_processes():
    names = presets.names()
    wanted = {"ego-small", "community-small", "planar", "sbm", "qm9", "zinc250k"}
    for family in ("grum", "gdss"):
        assert wanted <= {name.removeprefix(f"{family}-").removesuffix("-full") for name in names}
    for name in names:
        loaded = load_config(presets.find(name))
        assert loaded.name == name
        assert loaded.processes().keys() == loaded.record.components.keys()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optimizer": {"lr": -1}}, "optimizer.lr: Input should be greater than 0, got '-1'"),
        ({"optimizer": {}}, "optimizer.lr: Field required"),
        ({"speed": 3}, "speed: Extra inputs are not permitted, got '3'"),
        ({"grum": None}, "grum: Input should be a valid dictionary"),
        ({"gdss": {}}, "gdss: Extra inputs are not permitted"),
        ({"grum": {"layers": 2}}, "grum.dx: Field required"),
        ({"data": {"name": "planar"}}, "data.features: Field required"),
        ({"family": "digress"}, "unknown family 'digress'"),
        ({"family": 3}, "family: the name of a family is needed, got 3"),
        ({"process": {"X": {"type": "bridge"}}}, "components X and A"),
        ({"process": {key: {"type": "VP"} for key in "XA"}}, "a process of GruM is one of bridge, got VP"),
        ({"run": {"steps": "many", "batch": 1}}, "run.steps: .* got 'many'"),
    ],
)
def test_a_bad_configuration_is_one_line_with_its_key(change, message):
    with pytest.raises(InputError, match=message) as error:
        check_config({**values("grum"), **change}, "my.toml")
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("my.toml: ")


def test_unknown_process_and_its_settings_are_named():
    process = values("grum")["process"]
    with pytest.raises(InputError, match="unknown process type 'XY'"):
        config("grum", process={**process, "A": {"type": "XY"}})
    with pytest.raises(InputError, match="sigma_9"):
        config("grum", process={**process, "A": {"type": "bridge", "sigma_9": 1.0}})


def test_the_log_becomes_a_page_with_its_curve_and_samples(tmp_path):
    run(_trainer(), tmp_path, text=toml("grum"), stop_at=10)
    log = TrainLog(tmp_path / "log.csv")
    log.add(10, {"valid": 0.625, "fcd": 3.5}, 9.0, 7200.0)
    log.flush()
    assert CliRunner().invoke(app, ["report", str(tmp_path)]).exit_code == 0
    page = (tmp_path / "report.html").read_text()
    assert all(part in page for part in ("10 of 20 steps", "2 h of processor time", "0.625", "3.5", "<svg", "sigma_0"))
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")


@pytest.mark.parametrize("text", ["step,loss\nfirst,2\n", "step,loss\n3,low\n", "loss\n3\n", "step,loss\n3,1,9\n"])
def test_a_damaged_log_is_one_line(text, tmp_path):
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(InputError, match="is not a training log"):
        TrainLog(tmp_path / "log.csv")
