"""One small study of the analytic model, made once per test session."""

from __future__ import annotations

import pytest

from isostep.model.analytic import analytic_model
from isostep.study.compute import run_study
from isostep.study.plan import StudyPlan, product_arms
from isostep.study.record import Study
from isostep.study.reference import analytic_reference


@pytest.fixture(scope="session")
def toy_plan(tmp_path_factory) -> StudyPlan:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISOSTEP_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        reference = str(analytic_reference())
    arms = product_arms(["uniform", "dvs"], ["euler"], [], 8)
    return StudyPlan(title="toy", model="toy", arms=arms, seeds=(0, 1, 2), n=12, reference=reference, noise="step")


@pytest.fixture(scope="session")
def toy_study(toy_plan, tmp_path_factory) -> Study:
    return run_study(toy_plan, tmp_path_factory.mktemp("study"), analytic_model())
