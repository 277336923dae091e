"""No code of the current folder runs: neither by the probe for graph-tool nor by the workers' server."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

TRAP = "import pathlib\npathlib.Path(__file__).with_name('ran').touch()\nraise SystemExit(3)\n"
PROGRAMS = {
    "graph-tool": "from isostep.metric.sbm import choose_inference\nprint(choose_inference('auto'))",
    "workers": """
from isostep.model.analytic import analytic_model
from isostep.run.format import Task
from isostep.run.workers import Job, ProcessExecutor, dispatch
from isostep.settings.schema import SamplerSettings
if __name__ == "__main__":
    executor = ProcessExecutor(Job(analytic_model(), SamplerSettings(steps=2), 0, 4), 1)
    outcomes = dispatch(executor, iter([Task(0, 0, 1)]), 1, lambda items: None)
    print("made", *[outcome.result.record.n for outcome in outcomes])
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_code_of_the_current_folder_runs(tmp_path, name):
    hostile, program = tmp_path / "hostile", tmp_path / "bin" / "program.py"
    for package in ("graph_tool", "isostep", "_posixsubprocess", "selectors", "signal"):
        (hostile / package).mkdir(parents=True)
        (hostile / package / "__init__.py").write_text(TRAP)
    program.parent.mkdir()
    program.write_text(PROGRAMS[name])  # as an installed command: its own folder is on the path, not the current one
    environment = {k: v for k, v in os.environ.items() if k != "ISOSTEP_GRAPH_TOOL"}
    done = subprocess.run([sys.executable, program], cwd=hostile, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("own", "graph-tool", "made 1")
    assert not [str(path) for path in hostile.rglob("ran")]
