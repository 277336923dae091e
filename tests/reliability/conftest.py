import pytest

from tests.reliability.small import lines, run


@pytest.fixture(scope="module")
def calm(tmp_path_factory) -> list[tuple[int, str]]:
    """Lines of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("calm")
    run(folder / "run")
    return lines(folder / "run")
