# SPDX-License-Identifier: BSD-3-Clause
"""Every example in a docstring gives what it says."""

import doctest
import importlib
import importlib.util
from pathlib import Path

import pytest

import particlemesh

ROOT = Path(particlemesh.__file__).parent
MODULES = sorted(
    ".".join(("particlemesh", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in ROOT.rglob("*.py")
    if path.name != "__main__.py"
)
OPTIONAL = {"figures": "matplotlib"}  # module: what it needs beyond the dependencies


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name):
    needs = OPTIONAL.get(name.split(".")[-1])
    if needs is not None and importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    module = importlib.import_module(name)
    found = doctest.testmod(module, extraglobs={"np": importlib.import_module("numpy")})
    assert found.failed == 0
