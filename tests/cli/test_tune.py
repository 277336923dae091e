"""`isostep tune` as a user runs it: JSON, the preset that `sample` takes, two processes, one-line errors."""

from __future__ import annotations

import json

import pytest

from isostep.study.tune_record import AUTO, LONG, read_tuning
from tests.cli.command import isostep, refused

SMALL = (
    "tune", "grum-community-small", "--calls", "3", "-n", "12", "--only", "uniform,cosine,exponential",
    "--metrics", "degree", "--generations", "0", "--confirm", "2", "--yardstick-steps", "12", "--out", "t.toml",
)  # fmt: skip


def test_the_record_as_json_and_a_preset_that_sample_takes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = isostep(*SMALL, "--json", "--workers", "2")
    assert ended.code == 0, ended.err
    record = json.loads(ended.out)
    assert record == read_tuning(tmp_path / "t").model_dump(mode="json")
    assert {test["against"] for test in record["tests"]} == {AUTO, LONG}
    drawn = isostep("sample", "grum-community-small", "-n", "2", "--preset", "t.toml", "--json")
    assert json.loads(drawn.out)["calls_mean"] == 3.0
    again = isostep(*SMALL)  # everything is stored: the same result, as tables
    assert record["reason"] in " ".join(again.out.split())
    assert [test.model_dump(mode="json") for test in read_tuning(tmp_path / "t").tests] == record["tests"]


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--self", "--reference", "planar"), "exclude each other"),
        (("--only", "zigzag"), "zigzag"),
        (("--keep", "beauty"), "beauty"),
        (("--out", "preset.json"), "preset.json"),
    ],
)
def test_bad_input_is_refused_in_one_line(words, cause, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cause in refused("tune", "grum-community-small", "--calls", "3", *words)
    assert not list(tmp_path.iterdir())
