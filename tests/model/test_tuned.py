"""A file of `isostep tune` in the place of a card's own choices, for any model."""

from __future__ import annotations

import logging

import pytest

from isostep.base.errors import InputError
from isostep.base.files import packaged, write_text
from isostep.model.analytic import NAME, analytic_model
from isostep.model.lookup import load_model
from isostep.model.model import Model
from isostep.model.presets import TunedPreset, find_tuned
from isostep.sampling.run import sample
from isostep.settings.schema import AutoChoice

CHOICE = AutoChoice(
    calls=6, schedule="power", schedule_options={"p": 1.5},
    solver_options={"eta": 1.5, "temperature": {"X": 0.6, "A": 0.88}}, origin='isostep tune "a b"',
)  # fmt: skip


def write(path, fingerprint):
    tuned = TunedPreset(model=NAME, fingerprint=fingerprint, auto=(CHOICE,))
    write_text(path, tuned.toml())
    return tuned


def test_it_is_read_as_written_and_sampling_takes_it(tmp_path, caplog):
    path = tmp_path / "tuned.toml"
    assert write(path, analytic_model().fingerprint()) == find_tuned(path)
    model = load_model(NAME, preset=path)
    with caplog.at_level(logging.WARNING, "isostep"):
        result = sample(model, 2)
    assert not caplog.messages
    assert result.settings.schedule_options == {"p": 1.5}
    assert result.settings.solver_options["temperature"] == {"X": 0.6, "A": 0.88}
    assert result.solution.calls.tolist() == [6, 6]
    assert load_model(analytic_model(), preset=path).info.sampler.auto == (CHOICE,)


def test_another_model_is_named(tmp_path, caplog):
    write(tmp_path / "tuned.toml", "0" * 64)
    with caplog.at_level(logging.WARNING, "isostep"):
        load_model(NAME, preset=tmp_path / "tuned.toml")
    assert "another model" in caplog.text


def test_a_damaged_one_is_one_line(tmp_path):
    path = tmp_path / "tuned.toml"
    write_text(path, "auto = []\n")
    with pytest.raises(InputError, match=r"tuned\.toml"):
        load_model(NAME, preset=path)
    with pytest.raises(InputError, match="cannot read"):
        load_model(NAME, preset=tmp_path / "none.toml")


def named() -> Model:
    raise AssertionError("what is refused does not run")


@pytest.mark.parametrize("model", [NAME, analytic_model(), "hf:owner/name", f"{__name__}:named", "grum-planar-small"])
def test_a_preset_of_released_files_is_refused_for_any_other_model(tmp_path, model):
    copy = tmp_path / "mine.toml"
    copy.write_bytes(packaged("sampling")["gdss-qm9"].read_bytes())
    for preset in ("gdss-qm9", copy):
        with pytest.raises(InputError, match=r"others are for released files, and .* has settings of its own"):
            load_model(model, preset=preset)
