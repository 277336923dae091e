"""The page of a training run: losses, metrics of samples, and how long the rest takes."""

from __future__ import annotations

import re

import pytest

from isostep.base.errors import InputError
from isostep.reporting.functions import report
from tests.reporting.browser import open_page
from tests.training.configs import toml

LOG = """step,loss,loss_X,loss_A,val_loss_X,val_loss_A,lr,seconds,cpu_seconds,valid
5,90,50,40,45,35,0.001,9.0,2.5,
10,40,20,20,18,19,0.001,12.0,5.0,0.25
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "train.toml").write_text(toml("grum"))
    (tmp_path / "log.csv").write_text(LOG)
    return tmp_path


def test_losses_and_metrics_are_drawn_and_the_rest_is_said(run, tmp_path):
    page = open_page(report(run), tmp_path)
    assert page.console == []
    assert page.requests == []
    assert (
        "10 of 20 steps of 8 graphs in 5 s of processor time, 2 steps a second; 5 s are left at this speed." in page.dom
    )
    drawn = re.findall(r'<polyline[^>]*data-name="([^"]*)"', page.dom)
    assert drawn == ["X", "A", "X, validation", "A, validation", "valid"]
    assert re.search(r"<td>10</td><td>0.00</td><td>0.25</td>", page.dom)


def test_values_that_are_not_finite_are_not_drawn(run):
    """As a run of an earlier version logged them that diverged."""
    (run / "log.csv").write_text(LOG + "15,nan,nan,inf,nan,-inf,0.001,14.0,6.0,nan\n")
    page = report(run).read_text()
    assert [len(points.split()) for points in re.findall(r'<polyline points="([^"]*)"', page)] == [2, 2, 2, 2, 1]
    (run / "log.csv").write_text(LOG.splitlines()[0] + "\n5,nan,nan,nan,nan,nan,0.001,9.0,2.5,\n")
    assert "5 of 20 steps" in report(run).read_text()


def test_a_run_of_an_earlier_version_is_shown(run):
    """Its sampler may have settings that are written otherwise today; the page does not ask for them."""
    file = run / "train.toml"
    file.write_text(file.read_text() + "\n[sampler.auto]\neta = 4.0\n")
    assert report(run).is_file()


def test_a_file_without_a_length_is_one_line(run):
    (run / "train.toml").write_text('name = "tiny"\n')
    with pytest.raises(InputError, match=r"train.toml: run") as error:
        report(run)
    assert "\n" not in str(error.value)
