"""Every public name has an example, and the examples give what they say."""

from __future__ import annotations

import doctest

import pytest

import isostep


@pytest.mark.parametrize("name", isostep.__all__)
def test_the_examples_of_a_public_name_run(name):
    value = getattr(isostep, name)
    examples = doctest.DocTestFinder(recurse=False).find(value, name, globs={})
    assert examples
    assert examples[0].examples, f"isostep.{name} has no example in its docstring"
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for example in examples:
        told: list[str] = []
        runner.run(example, out=told.append)
        assert not told, "".join(told)
