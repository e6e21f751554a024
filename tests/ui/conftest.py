from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.example_stack import ExampleStack, example_stack


@pytest.fixture(scope="package")
def stack() -> Iterator[ExampleStack]:
    with example_stack() as stack:
        yield stack
