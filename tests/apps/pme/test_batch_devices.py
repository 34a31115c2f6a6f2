# SPDX-License-Identifier: BSD-3-Clause
"""Steps of many systems by kernels: equal to the CPU's, without allocation and waits, in a CUDA graph."""

import math

import numpy as np
import pytest

from particlemesh.apps.pme import PMEBatch
from particlemesh.apps.pme.core import Fields
from pme_cases import TRICLINIC, close, random_charges

COARSE = dict(cutoff=1.4, splitting=2.0, shape=(12, 15, 16), window="bspline5", coulomb_constant=1.7)
NAMES = ("energy", "energies", "forces", "virial")
COUNTS = (50, 0, 7, 43)
OWNERS = np.repeat(np.arange(4), COUNTS).astype(np.int32)
PAIRS = dict(exclusions=[(0, 1), (5, 7), (50, 53), (60, 99)], factors=[0.0, 0.5, 0.8333, 0.0])
SIZES = np.array([1.0, 1.1, 0.95, 1.2])


def systems(dtype="float64", sizes=SIZES, seed=0):
    """Particles of all systems in boxes of these sizes: one box scaled."""
    given = [random_charges(n, seed=seed + k) for k, n in enumerate(COUNTS) if n]
    x = np.concatenate([a for a, _ in given]) * sizes[OWNERS][:, None]
    return x.astype(dtype), np.concatenate([q for _, q in given]).astype(dtype)


def boxes_of(sizes):
    return sizes[:, None, None] * TRICLINIC


@pytest.mark.backends("opencl", "cuda")
def test_an_index_of_no_system_is_an_error_and_leaves_other_systems_alone(backend):
    x, q = systems()
    owners = np.where(np.arange(100) == 8, -3, OWNERS).astype(np.int32)
    batch = PMEBatch(TRICLINIC, 4, **COARSE, dtype="float64", backend=backend.name)
    given = backend.array(x), backend.array(q), backend.array(owners)
    with pytest.raises(ValueError, match="(in|of) no system"):
        batch(*given, boxes=boxes_of(SIZES))
    result = batch(*given, boxes=boxes_of(SIZES), check=False)
    with pytest.raises(ValueError, match="(in|of) no system"):
        batch.check()
    keep = np.arange(100) != 8
    expected = PMEBatch(TRICLINIC, 4, **COARSE)(x[keep], q[keep], OWNERS[keep], boxes=boxes_of(SIZES))
    np.testing.assert_allclose(backend.host(result.energy), expected.energy, rtol=1e-11, atol=1e-12)
    assert (backend.host(result.forces)[8] == 0).all()


@pytest.mark.backends("cpu", "opencl", "cuda")
@pytest.mark.parametrize("more", ["charges", "dipoles"])
def test_a_step_without_virials_has_the_other_results(backend, more):
    x, q = systems()
    numbers = {} if more == "charges" else {"dipoles": backend.array(np.random.default_rng(3).normal(size=x.shape))}
    given = backend.array(x), backend.array(q), backend.array(OWNERS)
    named = {} if backend.name == "cpu" else dict(backend=backend.name)
    batch = PMEBatch(TRICLINIC, 4, **COARSE, dtype="float64", **named)
    for exclusions in ({}, PAIRS):
        given_here = dict(boxes=boxes_of(SIZES), **numbers, **exclusions)
        with_virials = batch(*given, **given_here)
        without = batch(*given, **given_here, virial=False)
        assert without.virial is None and with_virials.virial is not None
        for name in ("energy", "energies", "forces"):
            expected = backend.host(getattr(with_virials, name))
            off = abs(backend.host(getattr(without, name)) - expected).max()
            assert off <= 1e-12 * abs(expected).max(), name


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_totals_of_systems_do_not_depend_on_the_order_of_particles(backend, dtype):
    batch = PMEBatch(TRICLINIC, 4, **COARSE, dtype=dtype, backend=backend.name).reserve(5000)
    core, rng = batch._core, np.random.default_rng(2)
    owners = rng.permutation(np.repeat([0, 2, 3], [4500, 1, 499])).astype(np.int32)
    numbers = (
        rng.normal(size=(5000, 16))
        * 10.0 ** rng.uniform(-6, 3, (5000, 1))
        * np.array([1.0, 1.0, 1e-5, 1e4])[owners, None]
    )
    numbers[:, 10] = 0  # nothing in one place
    virial = rng.normal(size=(1, 4, 3, 3))

    def totals(order):
        rows, core.owners = numbers[order].astype(dtype), backend.array(owners[order])
        sums, q, phi, slopes = rows[:, :11], rows[None, :, 11], rows[None, :, 12], rows[None, :, 13:]
        arrays = [backend.array(np.ascontiguousarray(a)) for a in (q, sums, phi, slopes, virial.astype(dtype))]
        out = [backend.array(np.full(n, np.nan, dtype)) for n in ((1, 4), (1, 5000), (1, 5000, 3), (1, 4, 3, 3))]
        core.assemble(*arrays[:2], Fields(*arrays[2:]), dict(zip(NAMES, out, strict=True)), True)
        return [backend.host(a)[0] for a in out]

    energy, energies, _, whole = totals(np.arange(5000))
    for system in range(4):
        parts = energies[owners == system].astype(float)
        units = len(parts) * abs(parts).max(initial=0) * 2.0 ** (13 - 62)  # 5000 particles are below 2**13
        assert abs(energy[system] - math.fsum(parts)) <= units + np.finfo(dtype).eps * abs(energy[system])
    for _ in range(3):
        order = rng.permutation(5000)
        mixed = totals(order)
        np.testing.assert_array_equal(mixed[1], energies[order])
        np.testing.assert_array_equal(mixed[0], energy)
        np.testing.assert_array_equal(mixed[3], whole)


@pytest.mark.backends("cpu", "opencl", "cuda")
def test_boxes_and_pairs_may_change_between_calls(backend):
    batch = PMEBatch(TRICLINIC, 4, **COARSE, dtype="float64", backend=backend.name)
    for sizes, pairs in ((SIZES, PAIRS), (np.ones(4), {}), (SIZES[::-1], PAIRS), (np.ones(4), PAIRS), (SIZES, {})):
        x, q = systems("float64", sizes)
        boxes = None if (sizes == 1).all() else boxes_of(sizes)
        result = batch(backend.array(x), backend.array(q), backend.array(OWNERS), boxes=boxes, **pairs)
        fresh = PMEBatch(TRICLINIC, 4, **COARSE)(x, q, OWNERS, boxes=boxes, **pairs)
        close(result, fresh, 1e-11, backend.host)
