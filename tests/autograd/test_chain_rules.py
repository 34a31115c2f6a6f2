# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of every differentiable function, where its arguments follow from each other in every way."""

import pytest

import chain_rules
from chain_rules import FUNCTIONS, OF_TORCH, Case, patterns_of

BLOCKS, CASES = 10, 10_000


def cases(functions):
    return [(function, pattern) for function in functions for pattern in patterns_of(function)]


@pytest.mark.turns(2)
@pytest.mark.parametrize(("function", "pattern"), cases(FUNCTIONS))
def test_derivatives_of_torch_are_those_of_plain_sums(function, pattern):
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install particlemesh[torch]")
    Case(FUNCTIONS.index(function), function, pattern).check("torch")


@pytest.mark.turns(30)
@pytest.mark.parametrize(("function", "pattern"), cases(f for f in FUNCTIONS if f not in OF_TORCH))
def test_derivatives_of_jax_are_those_of_plain_sums(function, pattern, request):
    pytest.importorskip("jax", reason="JAX is not installed: pip install particlemesh[jax]")
    plain = function not in ("pme", "batch") or request.config.getoption("--thorough")
    Case(FUNCTIONS.index(function), function, pattern).check("jax", plain=plain)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_ten_thousand_random_derivatives(block, request):
    if not request.config.getoption("--thorough"):
        pytest.skip("takes minutes: with --thorough")
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install particlemesh[torch]")
    failures = chain_rules.run(CASES * block // BLOCKS, CASES * (block + 1) // BLOCKS)
    assert not failures, "\n".join(failures)
