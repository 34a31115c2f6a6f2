# SPDX-License-Identifier: BSD-3-Clause
"""Random calls: odd shapes, strides, types, boxes and hostile arguments, against the plain oracle."""

import pytest

import random_calls
from processes import child, finish

BLOCKS = 20
PROGRAM = """
import faulthandler, random_calls
faulthandler.enable()
for failure in random_calls.run_all({first}, {last}, True, False):
    print(failure)
"""


@pytest.mark.backends("cpu")
@pytest.mark.parametrize("block", range(4))
def test_random_calls_give_what_numpy_gives_or_a_clear_error(backend, block):
    random_calls.run_all(150 * block, 150 * (block + 1))


@pytest.mark.backends("cpu")
@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_hundred_thousand_random_calls(backend, block, request):
    if not request.config.getoption("--thorough"):
        pytest.skip("takes minutes: with --thorough")
    first, last = (100_000 * n // BLOCKS for n in (block, block + 1))
    # In a process of its own, so that a crash names its call.
    failures = finish(child(PROGRAM.format(first=first, last=last), timeout=1800, PYTHONPATH=random_calls.paths()))
    assert not failures, failures
