# SPDX-License-Identifier: BSD-3-Clause
"""Random calls: odd shapes, strides, types, boxes and hostile arguments, against the plain oracle."""

import pytest

import random_calls
from processes import child, finish

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
def test_a_hundred_thousand_random_calls(backend, request):
    if not request.config.getoption("--thorough"):
        pytest.skip("takes minutes: with --thorough")
    for first in range(0, 100_000, 5000):  # in processes of their own, so that a crash names its call
        code = PROGRAM.format(first=first, last=first + 5000)
        failures = finish(child(code, timeout=1800, PYTHONPATH=random_calls.paths()))
        assert not failures, failures
