# SPDX-License-Identifier: BSD-3-Clause
"""The laws of distributed work hold with arrays in the memory of two GPUs, over every transport that takes them."""

from pathlib import Path

import pytest

from mpiexec import on_mpi
from particlemesh import backends

LAWS = Path(__file__).with_name("gpu_ranks.py")


@pytest.mark.parametrize("transport", ["nccl", "host"])
def test_laws_hold_on_two_gpus(transport):
    why = backends.module("cuda").available()
    if why is not None:
        pytest.skip(f"no GPU: {why}")
    import cupy

    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("one GPU; this test needs two")
    output = on_mpi(2, "-m", "mpi4py", LAWS, transport, timeout=300)
    assert output.endswith(f"0 failed over {transport}\n")
