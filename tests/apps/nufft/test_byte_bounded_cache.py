# SPDX-License-Identifier: BSD-3-Clause
"""What single transforms keep for the next ones is bounded in bytes, whatever their sizes."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps import nufft
from particlemesh.apps.nufft import uniform
from particlemesh.apps.nufft.uniform import byte_bounded_cache


def test_the_last_used_results_are_kept_up_to_a_number_of_bytes():
    made = []

    @byte_bounded_cache(100, lambda result: result.nbytes)
    def zeros(count):
        made.append(count)
        return np.zeros(count, np.uint8)

    for count in (40, 50, 40, 30, 40, 50, 101, 101, 40):  # 50 goes for 30: 40 was used since
        assert zeros(count).size == count
        assert zeros.nbytes <= 100
    assert made == [40, 50, 30, 50, 101, 101]


@pytest.mark.parametrize(("modes", "real"), [((300,), True), ((20, 12), False)])
def test_the_bytes_of_bands_are_not_less_than_theirs(modes, real):
    sizes = nufft.sizes.Sizes(6, 2.0, tuple(2 * m for m in modes), 1e-6)
    window = pm.prolate(6, 2.0)
    cpu = pm.kernels.backend("cpu")
    bands = uniform._bands.make(cpu, window, sizes.nodes, modes, np.dtype("float64"), "centred", real, 1)
    tables = [f.nbytes for f in bands.factors]
    tables += [t[1].nbytes for axis in bands._parts for t in axis]
    assert sum(tables) <= uniform._bytes(bands) <= 3 * sum(tables)


def test_many_long_axes_keep_a_bounded_number_of_bytes(monkeypatch):
    for cache in (uniform._bands, uniform.of_modes):
        monkeypatch.setattr(cache, "most", 2**20)
    for n in range(4000, 4012):
        nufft.nufft1d1(np.zeros(3), np.ones(3, complex), n, eps=1e-2)
        assert uniform._bands.nbytes > 0
        assert max(uniform._bands.nbytes, uniform.of_modes.nbytes) <= 2**20
