import logging
from collections.abc import Iterator

import pytest

from tests.study.toys import toy_plan, toy_study

__all__ = ["toy_plan", "toy_study"]


@pytest.fixture
def told() -> Iterator[list[str]]:
    """Which cells studies say they compute."""
    lines: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if ", seed " in record.getMessage():
                lines.append(record.getMessage().split(": ", 1)[1])

    logger, listener = logging.getLogger("isostep"), Listener()
    logger.addHandler(listener)
    logger.setLevel("INFO")
    yield lines
    logger.removeHandler(listener)
    logger.setLevel(logging.NOTSET)
