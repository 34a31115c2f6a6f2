# SPDX-License-Identifier: BSD-3-Clause
"""Energies of multipoles in torch and JAX: the slopes are results of a PME, and are differentiated themselves."""

import numpy as np
import pytest

from multipole_ewald import system
from particlemesh.apps.pme import PME, PMEBatch

BOX = np.array([[2.0, 0.0, 0.0], [0.3, 2.2, 0.0], [-0.4, 0.5, 1.9]])
FINE = dict(cutoff=1.5, splitting=3.4, shape=(32, 36, 32), window="bspline8", coulomb_constant=1.5)
PROLATE = {**FINE, "splitting": None, "bandwidth": 18.0}
SPLITS = pytest.mark.parametrize("fine", [FINE, PROLATE], ids=["gaussian", "prolate"])
PAIRS = dict(exclusions=[[0, 1], [4, 2]], factors=[0.0, 0.5])
NAMES = "dipoles", "quadrupoles", "widths"
DEFORM = np.array([[1.01, 0.02, 0.0], [0.0, 0.99, -0.01], [0.03, 0.0, 1.0]])


def numbers(dtype="f8"):
    arrays = system(BOX)
    arrays[0][3] = arrays[0][5] + [0.15, 0.1, -0.1]  # two Gaussians that overlap
    return [a.astype(dtype) for a in arrays]


def call(pme, arrays, *others, **options):
    return pme(*arrays[:2], *others, **dict(zip(NAMES, arrays[2:], strict=True)), **options)


def check(result, slopes, tolerance=1e-9):
    """The slopes by positions, charges, dipoles, quadrupoles, widths and strain are those of a result."""
    slopes = list(map(np.asarray, slopes))
    for slope, exact in (
        (-slopes[0], result.forces), (slopes[1], result.potentials), (-slopes[2], result.fields),
        (-2 * slopes[3], result.field_gradients), (slopes[5], result.virial),
    ):  # fmt: skip
        np.testing.assert_allclose(slope, exact, rtol=0, atol=tolerance * abs(exact).max())


def by_widths(made, arrays, *others, **options):
    """Central differences of energies by the widths that are not 0; a width of 0 has no slope."""
    step, slopes = 1e-4, np.zeros(len(arrays[4]))
    for i in np.flatnonzero(arrays[4]):
        ends = [
            call(made, [*arrays[:4], arrays[4] + n * step * np.eye(len(slopes))[i]], *others, **options).energy.sum()
            for n in (-2, -1, 1, 2)
        ]
        slopes[i] = np.array([1, -8, 8, -1]) @ ends / (12 * step)
    return slopes


@SPLITS
def test_torch_gives_the_results_of_pme(fine):
    torch = pytest.importorskip("torch")
    from particlemesh.apps.pme.torch import energy

    arrays, pme = numbers(), PME(BOX, **fine, **PAIRS)
    given = [torch.tensor(a, requires_grad=True) for a in (*arrays, np.eye(3))]
    x, q, *rest, deform = given
    value = energy(pme, x @ deform.T, q, **dict(zip(NAMES, rest, strict=True)), cell=torch.tensor(BOX) @ deform.T)
    exact = call(pme, arrays)
    slopes = [s.numpy() for s in torch.autograd.grad(value, given)]
    assert np.isclose(value.item(), exact.energy, rtol=1e-10)
    check(exact, slopes)
    expected = by_widths(pme, arrays)
    np.testing.assert_allclose(slopes[4], expected, rtol=0, atol=1e-6 * abs(expected).max())
    only = energy(pme, x, q, dipoles=rest[0])
    assert np.isclose(only.item(), pme(*arrays[:2], quadrupoles=0 * arrays[3], dipoles=arrays[2]).energy, rtol=1e-10)


@SPLITS
def test_second_derivatives_of_torch_are_differences_of_first_ones(fine):
    torch = pytest.importorskip("torch")
    from particlemesh.apps.pme.torch import energy

    arrays, pme, rng = [*numbers(), BOX], PME(BOX, **fine, **PAIRS), np.random.default_rng(3)
    steps = [torch.tensor(rng.normal(size=a.shape) * np.where(a == 0, 0, 1)) for a in arrays]

    def slopes(t, **options):
        at = [(torch.tensor(a) + t * s).requires_grad_() for a, s in zip(arrays, steps, strict=True)]
        value = energy(pme, *at[:2], **dict(zip(NAMES, at[2:5], strict=True)), cell=at[5])
        return at, torch.autograd.grad(value, at, **options)

    at, first = slopes(0.0, create_graph=True)
    second = torch.autograd.grad(sum((g * s).sum() for g, s in zip(first, steps, strict=True)), at)
    h = 1e-5
    for value, above, below in zip(second, slopes(h)[1], slopes(-h)[1], strict=True):
        difference = ((above - below) / (2 * h)).numpy()
        np.testing.assert_allclose(value.numpy(), difference, rtol=0, atol=3e-6 * abs(difference).max())


def test_jax_gives_the_results_of_pme():
    jax = pytest.importorskip("jax")
    from particlemesh.apps.pme.jax import energy

    arrays, pme = numbers(), PME(BOX, **FINE, **PAIRS)
    exact = call(pme, arrays)
    with jax.enable_x64(True):

        def strained(x, q, mu, quadrupoles, widths, deform):
            cell = jax.numpy.asarray(BOX) @ deform.T
            return energy(pme, x @ deform.T, q, dipoles=mu, quadrupoles=quadrupoles, widths=widths, cell=cell)

        value, slopes = jax.jit(jax.value_and_grad(strained, range(6)))(*arrays, np.eye(3))
    assert np.isclose(value, exact.energy, rtol=1e-10)
    check(exact, slopes)
    expected = by_widths(pme, arrays)
    np.testing.assert_allclose(slopes[4], expected, rtol=0, atol=1e-6 * abs(expected).max())


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_systems_have_their_own_slopes(library):
    module = pytest.importorskip(library)
    arrays = [np.concatenate([a, a[:4]]) for a in numbers()]
    owners, boxes = np.repeat([0, 2], [6, 4]), np.array([BOX, 1.1 * BOX, BOX @ DEFORM])
    batch, pairs = PMEBatch(BOX, 3, **FINE), dict(exclusions=[[0, 1], [9, 7]], factors=[0.0, 0.5])
    exact = call(batch, arrays, owners, boxes=boxes, **pairs)
    weights = np.array([1.0, 2.0, -0.5])
    if library == "torch":
        from particlemesh.apps.pme.torch import energy

        given = [module.tensor(a, requires_grad=True) for a in arrays]
        values = call(lambda *a, **k: energy(batch, *a, **k), given, module.tensor(owners),
                      cell=module.tensor(boxes), **pairs)  # fmt: skip
        slopes = module.autograd.grad(values, given, module.tensor(weights))
        values = values.detach()
    else:
        from particlemesh.apps.pme.jax import energy

        with module.enable_x64(True):

            def weighted(*given):
                values = call(lambda *a, **k: energy(batch, *a, **k), given, owners, cell=boxes, **pairs)
                return values @ weights, values

            slopes, values = module.jit(module.grad(weighted, range(5), has_aux=True))(*arrays)
    np.testing.assert_allclose(values, exact.energy, rtol=1e-10, atol=1e-12)
    each = weights[owners]
    for slope, mine in ((slopes[0], -exact.forces), (slopes[1], exact.potentials), (slopes[2], -exact.fields)):
        expected = each.reshape(-1, *(1,) * (mine.ndim - 1)) * mine
        np.testing.assert_allclose(np.asarray(slope), expected, rtol=0, atol=1e-9 * abs(expected).max())


def test_single_precision_and_compiled_functions():
    torch = pytest.importorskip("torch")
    from particlemesh.apps.pme.torch import energy

    pme, exact = PME(BOX, **FINE, **PAIRS), call(PME(BOX, **FINE, **PAIRS), numbers())
    given = [torch.tensor(a, requires_grad=True) for a in numbers("f4")]

    def of(cell, *arrays):
        return energy(pme, *arrays[:2], **dict(zip(NAMES, arrays[2:], strict=True)), cell=cell)

    cell = torch.tensor(BOX, dtype=torch.float32)
    value = of(cell, *given)
    forces = -torch.autograd.grad(value, given[0])[0]
    assert forces.dtype == torch.float32
    np.testing.assert_allclose(forces.numpy(), exact.forces, rtol=0, atol=2e-5 * abs(exact.forces).max())
    compiled = torch.compile(of, fullgraph=True, backend="aot_eager")(cell, *given)
    again = -torch.autograd.grad(compiled, given[0])[0]
    np.testing.assert_allclose(again.numpy(), forces.numpy(), rtol=0, atol=1e-6 * abs(exact.forces).max())


def test_bad_arguments_are_explained():
    torch = pytest.importorskip("torch")
    from particlemesh.apps.pme.torch import energy

    x, q, mu, quadrupoles, widths = map(torch.tensor, numbers())
    pme = PME(BOX, **FINE)
    with pytest.raises(TypeError, match="dipoles is of type ndarray"):
        energy(pme, x, q, dipoles=mu.numpy())
    with pytest.raises(ValueError, match=r"dipoles has shape \(6, 2\); \(6, 3\) is needed"):
        energy(pme, x, q, dipoles=mu[:, :2])
    with pytest.raises(TypeError, match=r"quadrupoles have dtype torch\.float32"):
        energy(pme, x, q, quadrupoles=quadrupoles.float())
    with pytest.raises(ValueError, match="widths are negative: particle 1 has -0.1"):
        energy(pme, x, q, widths=widths.where(torch.arange(6) != 1, -0.1))
    with pytest.raises(ValueError, match="Gaussians are no points at the cutoff of 1.5: particle 3 has 1"):
        energy(pme, x, q, widths=widths.where(torch.arange(6) != 3, 1.0))
    with pytest.raises(ValueError, match="dipoles, quadrupoles or widths of 1 of 6 particles are not finite"):
        energy(pme, x, q, dipoles=mu / (torch.arange(6) != 2)[:, None])
