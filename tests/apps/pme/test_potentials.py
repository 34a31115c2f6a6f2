# SPDX-License-Identifier: BSD-3-Clause
"""Potentials and fields, also of probes without charge, are those of plain sums, of energies and of forces."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps.pme import PME, PMEBatch, slab_correction
from pme_cases import TRICLINIC, ewald_sum, image, random_charges

GAUSSIAN = dict(cutoff=1.3, splitting=4.2, shape=(48, 54, 64), window="bspline12")
PROLATE = dict(cutoff=1.3, bandwidth=22.0, shape=(36, 40, 45), window="bspline12")
COARSE = dict(cutoff=1.4, splitting=2.0, shape=(12, 15, 16), window="bspline5", coulomb_constant=1.7)
PAIRS, FACTORS = [(0, 1), (5, 7), (3, 9), (0, 2)], [0.0, 0.5, 0.8333, 0.0]
PROBES = [1, 4, 7]


def charges(count=10, **options):
    """Particles of which some are probes, with a net charge."""
    x, q = random_charges(count, neutral=False, **options)
    q[PROBES] = 0
    return x, q


def exact(matrix, x, q):
    """Potentials and fields: the energy is of second degree in a charge, and a field is the force on a unit charge."""
    potentials, fields = [], []
    for i, unit in enumerate(np.eye(len(q))):
        above, below = (ewald_sum(matrix, x, q + step * unit)[0] for step in (1, -1))
        potentials.append((above - below) / 2)
        alone = np.where(unit, 1.0, q)
        fields.append(ewald_sum(matrix, x, alone)[1][i])
    return np.array(potentials), np.array(fields)


@pytest.mark.parametrize("fine", [GAUSSIAN, PROLATE], ids=["gaussian", "prolate"])
def test_they_are_those_of_a_plain_ewald_sum_also_without_charge(fine):
    x, q = charges()
    potentials, fields = exact(TRICLINIC, x, q)
    for (i, j), factor in zip(PAIRS, FACTORS, strict=True):
        for a, b in ((i, j), (j, i)):
            d = image(x[a] - x[b], TRICLINIC)
            r = np.linalg.norm(d)
            potentials[a] += (factor - 1) * q[b] / r
            fields[a] += (factor - 1) * q[b] * d / r**3
    result = PME(TRICLINIC, **fine, coulomb_constant=2.0, exclusions=PAIRS, factors=FACTORS)(x, q, fields=True)
    np.testing.assert_allclose(result.potentials, 2 * potentials, rtol=0, atol=1e-7 * abs(potentials).max())
    np.testing.assert_allclose(result.fields, 2 * fields, rtol=0, atol=1e-7 * abs(fields).max())


@pytest.mark.backends("cpu", "opencl", "cuda")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("virial", [True, False])
def test_energies_and_forces_are_charges_times_potentials_and_fields(backend, dtype, virial):
    x, q = charges(50)
    sets = np.stack([q, np.sin(np.arange(50.0))]).astype(dtype)
    given = backend.array(x.astype(dtype)), backend.array(sets)
    pme = PME(TRICLINIC, **COARSE, exclusions=PAIRS, factors=FACTORS)
    out, scale = pme(*given, fields=True, virial=virial), 8 * np.finfo(dtype).eps
    for _ in range(3):  # a GPU's step is recorded and replayed
        result = pme(*given, fields=True, virial=virial, out=out)
    assert result.potentials is out.potentials
    result = {name: None if a is None else backend.host(a).astype(float) for name, a in vars(result).items()}
    products = sets * result["potentials"] / 2, sets[..., None] * result["fields"]
    for product, name in zip(products, ("energies", "forces"), strict=True):
        np.testing.assert_allclose(product, result[name], rtol=0, atol=scale * abs(product).max())
    rtol = 100 * scale
    np.testing.assert_allclose(products[0].sum(1), result["energy"], rtol=0, atol=rtol * abs(products[0]).sum())
    plain = pme(*given, virial=virial)
    assert plain.potentials is None and plain.fields is None
    # Particles do not see a probe.
    keep = np.flatnonzero(np.arange(50) != PROBES[1])
    x, sets = x[keep].astype(dtype), sets[:1, keep]
    without = PME(TRICLINIC, **COARSE)(backend.array(x), backend.array(sets), fields=True)
    whole = PME(TRICLINIC, **COARSE)(given[0], given[1][:1], fields=True)
    for name in ("potentials", "fields"):
        expected = backend.host(getattr(without, name))
        np.testing.assert_allclose(
            backend.host(getattr(whole, name))[:, keep], expected, rtol=0, atol=rtol * abs(expected).max()
        )


@pytest.mark.backends("cpu", "opencl", "cuda")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_those_of_many_systems_are_those_of_each(backend, dtype):
    counts, sizes = (30, 0, 12), np.array([1.0, 1.1, 0.9])
    owners = np.repeat(np.arange(3), counts).astype(np.int32)
    each = [charges(n, seed=k) if n else (np.empty((0, 3)), np.empty(0)) for k, n in enumerate(counts)]
    each = [((a * size).astype(dtype), b.astype(dtype)) for (a, b), size in zip(each, sizes, strict=True)]
    batch, order = PMEBatch(TRICLINIC, 3, **COARSE), np.random.default_rng(3).permutation(42)
    x, q = (np.concatenate(a)[order] for a in zip(*each, strict=True))
    place = np.argsort(order)
    result = batch(
        *map(backend.array, (x, q, owners[order])), boxes=sizes[:, None, None] * TRICLINIC, exclusions=place[PAIRS],
        factors=FACTORS, fields=True,
    )  # fmt: skip
    potentials, fields = backend.host(result.potentials)[place], backend.host(result.fields)[place]
    tolerance = 1e-11 if dtype == "float64" else 1e-4
    for s, (a, b) in enumerate(each):
        if not len(a):
            continue
        pairs = dict(exclusions=PAIRS, factors=FACTORS) if s == 0 else {}
        alone = PME(sizes[s] * TRICLINIC, **COARSE, **pairs)(a, b, fields=True)
        for mine, theirs in ((potentials, alone.potentials), (fields, alone.fields)):
            np.testing.assert_allclose(mine[owners == s], theirs, rtol=0, atol=tolerance * abs(theirs).max())
    assert batch(*map(backend.array, (x, q, owners[order]))).potentials is None


@pytest.mark.parametrize("options", [{}, dict(skin=0.2)], ids=["stream", "list"])
def test_those_of_an_open_box_are_plain_sums(options):
    lengths = np.array([2.5, 3.0, 2.0])
    x, q = charges(20, matrix=np.diag(lengths))
    x %= lengths
    d = x[:, None] - x
    r = np.linalg.norm(d, axis=-1) + np.diag(np.full(20, np.inf))
    result = PME(pm.Box(lengths, periodic=False), accuracy=1e-9, **options)(x, q, fields=True)
    np.testing.assert_allclose(result.potentials, (q / r).sum(1), rtol=0, atol=1e-7 * abs(result.potentials).max())
    fields = (q[:, None] * d / r[..., None] ** 3).sum(1)
    np.testing.assert_allclose(result.fields, fields, rtol=0, atol=1e-7 * abs(fields).max())


def test_dipoles_of_zero_leave_them_as_they_are():
    x, q = charges(30)
    pme = PME(TRICLINIC, **GAUSSIAN, exclusions=PAIRS, factors=FACTORS)
    plain, dipolar = pme(x, q, fields=True), pme(x, q, dipoles=np.zeros((30, 3)))
    for name in ("potentials", "fields"):
        expected = getattr(plain, name)
        np.testing.assert_allclose(getattr(dipolar, name), expected, rtol=0, atol=1e-11 * abs(expected).max())


def test_the_correction_of_a_slab_is_the_derivative_of_its_energy_by_charges():
    x, q = charges(9, matrix=np.eye(3))
    x, box = x % 1 + (0.0, 0.0, 1.5), (1.0, 1.0, 5.0)
    result = slab_correction(x, q, box, coulomb_constant=2.0, fields=True)
    for i, unit in enumerate(np.eye(9)):
        above, below = (slab_correction(x, q + step * unit, box, coulomb_constant=2.0) for step in (1, -1))
        np.testing.assert_allclose(result.potentials[i], (above.energy - below.energy) / 2, rtol=1e-11, atol=1e-11)
    # Of unit charges the force is the field: the energy of one in place of a probe has that slope.
    one, step = np.where(np.arange(9) == PROBES[0], 1.0, q), np.where(np.arange(9) == PROBES[0], 1e-3, 0.0)[:, None]
    above, below = (slab_correction(x + side * step * (0, 0, 1), one, box, coulomb_constant=2.0) for side in (1, -1))
    field = slab_correction(x, one, box, coulomb_constant=2.0, fields=True).fields[PROBES[0]]
    np.testing.assert_allclose(field, (0, 0, (below.energy - above.energy) / 2e-3), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(result.forces, q[:, None] * result.fields, rtol=0, atol=1e-13)
    assert slab_correction(x, q, box).potentials is None
