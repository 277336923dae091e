"""What long commands say on the way, and when they are interrupted."""

from __future__ import annotations

import json
import logging
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from isostep.base import progress as layer
from isostep.base.progress import Interrupted, progress, showing
from isostep.sampling.run import sample
from tests.cli.command import isostep
from tests.conftest import FIXTURES
from tests.training.configs import toml

TOY = "rings-and-stars"
FEW = ("--schedule", "uniform", "--steps", 4, "--batch-size", 4)


@pytest.fixture(autouse=True)
def _listening() -> Iterator[None]:
    """Where tests run in the background, Ctrl-C is ignored, and so it would be by every program they start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ISOSTEP_QUIET", raising=False)
    monkeypatch.setenv("ISOSTEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(layer, "FIRST", 0.0)


class CtrlC(logging.Handler):
    """Ctrl-C at the first line that holds a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def emit(self, record: logging.LogRecord) -> None:
        if self.text in record.getMessage():
            layer.log.removeHandler(self)
            signal.raise_signal(signal.SIGINT)


def interrupted(at: str, *arguments: object) -> str:
    """The last line of a command that got Ctrl-C at a line with `at`."""
    handler = CtrlC(at)
    layer.log.addHandler(handler)
    try:
        ended = isostep(*arguments)
    finally:
        layer.log.removeHandler(handler)
    assert ended.code == 130, ended
    assert ended.out == ""
    assert "Aborted" not in ended.err
    assert "Traceback" not in ended.err
    return ended.err.splitlines()[-1]


def test_a_sampling_run_says_what_is_kept_and_goes_on(tmp_path: Path) -> None:
    command = ("sample", TOY, "-n", 12, *FEW, "--shard-size", 4, "--out", "run", "--seed", 3)
    last = interrupted(" 8 of 12 graphs", *command)
    assert last == "interrupted: run keeps 4 of 12 graphs; the same command goes on"
    assert isostep(*command).code == 0
    lines = [json.loads(line) for line in Path("run/graphs.jsonl").read_text().splitlines()]
    expected = sample(TOY, 12, schedule="uniform", steps=4, batch_size=4, seed=3).graphs
    assert [line["edges"] for line in lines] == [graph.edges.tolist() for graph in expected]


def test_without_a_folder_it_says_that_nothing_is_kept() -> None:
    last = interrupted("sampling", "sample", TOY, "-n", 12, *FEW)
    assert last == "interrupted: nothing is kept without --out; with --out DIR a run can be continued"


STUDY = ("--seeds", "0-1", "-n", 8, "--steps", 4, "--metrics", "degree", "--reference", "toy.npz", "--out", "study")


@pytest.mark.parametrize(
    ("at", "command"),
    [
        ("uniform, seed 1", ("compare", TOY, "--schedules", "uniform,dvs", *STUDY)),
        ("uniform, seed 1", ("sweep", TOY, "--param", "schedule.gamma=0.3", *STUDY)),
    ],
)
def test_a_study_says_how_much_of_it_is_kept(at: str, command: tuple) -> None:
    from isostep.study.reference import analytic_reference

    Path("toy.npz").write_bytes(Path(analytic_reference()).read_bytes())
    last = interrupted(at, *command)
    assert last == "interrupted: study keeps 2 of 4 arms and seeds; the same command goes on"
    ended = isostep(*command, "--no-plots")
    assert ended.code == 0, ended.err
    assert len([line for line in ended.err.splitlines() if ", seed" in line]) == 2  # two were there


def test_a_paper_table_says_where_its_studies_are() -> None:
    command = ("reproduce", "T4", "--quick", "--model", "grum-community-small", "-n", 4, "--steps", 4, "--seeds", "0-1")
    last = interrupted("seed 1", *command)
    assert last.startswith("interrupted: results/")
    assert "keeps 2 of 4 " in last
    assert last.endswith("the same command goes on")


def test_training_says_which_steps_are_kept(tmp_path: Path) -> None:
    Path("tiny.toml").write_text(toml("grum"))
    last = interrupted("3 of 20 steps", "train", "tiny.toml", "--out", "run")
    assert last == "interrupted: run keeps all 3 steps; the same command goes on"
    ended = isostep("train", "tiny.toml", "--out", "run", "--json")
    assert json.loads(ended.out)["step"] == 20
    assert "from step 3 to 20" in ended.err


@pytest.mark.parametrize(
    ("at", "command"),
    [
        ("measuring", ("evaluate", "graphs.jsonl", "--reference", "planar", "--metrics", "degree,connected")),
        ("calibrating", ("calibrate", TOY, "--steps", 4, "--graphs", 2, "--pilot-steps", 10)),
        ("kappa for 8 calls", ("sample", TOY, "-n", 2, "--schedule", "dvs", "--calls", 8, "--out", "run")),
        ("generating", ("data", "prepare", "community-small")),
    ],
)
def test_other_commands_leave_nothing_half_written(at: str, command: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISOSTEP_DATA", "none")
    Path("graphs.jsonl").write_text('{"n": 3, "edges": [[0, 1]]}\n' * 3)
    assert interrupted(at, *command) == f"interrupted: {layer.NOTHING_KEPT}"
    assert not [path for path in Path().rglob("*") if path.is_file() and path.name != "graphs.jsonl"]


def test_quiet_says_nothing_and_verbose_more_wherever_they_stand() -> None:
    plain = isostep("sample", TOY, "-n", 4, *FEW).err
    assert "sampling rings-and-stars: 4 of 4 graphs" in plain
    assert "begins" not in plain
    for k, quiet in enumerate((("-q", "sample", TOY), ("sample", TOY, "--quiet"))):
        assert isostep(*quiet, "-n", 4, *FEW, "--out", f"run{k}").err == ""
    assert "sampling rings-and-stars: begins" in isostep("sample", TOY, "-v", "-n", 4, *FEW).err
    assert layer.log.level == logging.NOTSET
    assert not layer.log.handlers


def test_after_two_dashes_a_word_is_no_option() -> None:
    assert "no model '-q'" in isostep("sample", "--", "-q").err


def test_on_a_terminal_there_is_a_bar_with_the_time_left() -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "isostep", "sample", TOY, "-n", "6", "--schedule", "uniform", "--steps", "4000"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(command, stderr=theirs, stdout=subprocess.DEVNULL, env=environment)
    os.close(theirs)
    shown = b""
    while b"/6" not in shown:
        shown += os.read(ours, 10_000)
    process.send_signal(signal.SIGINT)
    try:
        while more := os.read(ours, 10_000):
            shown += more
    except OSError:  # the terminal's other end is closed
        pass
    assert process.wait(30) == 130
    text = shown.decode()
    assert "sampling rings-and-stars" in text
    assert "0:00:" in text
    assert "interrupted: nothing is kept" in text.splitlines()[-1]


def test_workers_are_stopped_by_ctrl_c_without_a_word(tmp_path: Path) -> None:
    """Ctrl-C reaches every process of a terminal's group."""
    command = [
        sys.executable, "-m", "isostep", "sample", TOY, "-n", "4000", "--schedule", "uniform", "--steps", "200",
        "--batch-size", "8", "--shard-size", "8", "--workers", "2", "--out", "run",
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not Path("run/shards.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert said.splitlines()[-1].startswith("interrupted: run keeps ")
    assert "Traceback" not in said


def test_lines_are_records_of_the_logger_for_a_program_that_asks(caplog: pytest.LogCaptureFixture) -> None:
    sample(TOY, 4, schedule="uniform", steps=2)
    assert not caplog.records
    with caplog.at_level("INFO", "isostep"):
        sample(TOY, 4, schedule="uniform", steps=2)
    assert "sampling rings-and-stars: 4 of 4 graphs" in caplog.text


def test_a_function_shows_its_progress_when_asked(capsys: pytest.CaptureFixture) -> None:
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []  # as in a program without logging
    try:
        sample(TOY, 4, schedule="uniform", steps=2, progress=True)
        assert "4 of 4 graphs" in capsys.readouterr().err
        sample(TOY, 4, schedule="uniform", steps=2)
        assert capsys.readouterr().err == ""
    finally:
        root.handlers = handlers


def test_what_was_there_before_says_nothing_about_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(layer.time, "perf_counter", lambda: now)
    task = layer.Task("sampling", 1000, "graphs", had=890)
    now = 200.0  # the first ten load and compile
    task(10)
    assert str(task) == "sampling: 900 of 1000 graphs"
    task.skip(5)
    now = 210.0
    task(5)
    assert str(task) == "sampling: 910 of 1000 graphs, 2 s each, 3 min left"


def test_the_innermost_word_on_what_is_kept_counts() -> None:
    with pytest.raises(Interrupted, match="inner"), progress("a", kept="outer"):  # noqa: SIM117
        with progress("b", kept=lambda: "inner"), progress("c"):
            raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt) as plain, progress("c"):
        raise KeyboardInterrupt
    assert not isinstance(plain.value, Interrupted)


def test_names_cannot_write_on_the_terminal(capsys: pytest.CaptureFixture) -> None:
    with showing(alone=True), progress("\x1b[31mred", 1) as task:
        task()
    assert "\x1b" not in capsys.readouterr().err


def test_a_released_file_is_named(tmp_path: Path) -> None:
    last = interrupted("sampling", "sample", FIXTURES / "grum" / "graph.pth", "-n", 2, "--steps", 4, "--out", "run")
    assert last == "interrupted: run keeps 0 of 2 graphs; the same command goes on"
