# SPDX-License-Identifier: BSD-3-Clause
"""Functions of JAX on two devices by ``shard_map``, with its default check, have the results of one device."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax", reason="JAX is not installed: pip install particlemesh[jax]")

PROGRAM = Path(__file__).parents[1] / "support" / "sharded.py"
NAMES = (
    "spread", "interpolate", "gradient", "spread_gradient", "potential", "energy", "forces",
    "forces for charges of all", "second derivatives", "type 1", "type 2", "interpolation", "spreading",
    "charges of all", "potentials", "energies", "induced dipoles", "distances",
)  # fmt: skip
LONG = "systems", "energies of dipoles"


@pytest.fixture(scope="module")
def differences(request):
    """Of a process with two devices: JAX takes their number when it starts."""
    names = {item.callspec.params["name"] for item in request.session.items if item.module is request.module}
    names -= {*LONG} if request.config.thins else set()
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    run = subprocess.run(
        [sys.executable, PROGRAM, *names], capture_output=True, text=True, env=environment, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout)


@pytest.mark.parametrize("name", NAMES + LONG)
def test_two_devices_have_the_results_of_one(differences, name, request):
    if name in LONG and request.config.thins:
        pytest.skip("compiling takes long: --thorough has it")
    assert not isinstance(differences[name], str), differences[name]
    assert differences[name] < 1e-11
