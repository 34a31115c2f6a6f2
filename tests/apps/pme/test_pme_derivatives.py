# SPDX-License-Identifier: BSD-3-Clause
"""Energies of torch tensors and JAX arrays have right derivatives, which agree with forces and virial."""

import numpy as np
import pytest

from particlemesh.apps.pme import PME

BOX = np.array([[2.0, 0.0, 0.0], [0.3, 2.2, 0.0], [-0.4, 0.5, 1.9]])
FINE = dict(cutoff=0.9, splitting=4.6, shape=(32, 36, 32), window="bspline8")
PROLATE = dict(cutoff=0.9, bandwidth=18.0, shape=(32, 36, 32), window="bspline8")
SPLITS = pytest.mark.parametrize("fine", [FINE, PROLATE], ids=["gaussian", "prolate"])


def system(count=6):
    rng = np.random.default_rng(21)
    corners = np.stack(np.meshgrid(*[np.arange(2)] * 3), -1).reshape(-1, 3)[:count]
    return (corners + rng.uniform(0.1, 0.6, (count, 3))) / 2 @ BOX, rng.normal(size=count)


@SPLITS
def test_torch_gives_energy_forces_potentials_and_virial_of_pme(fine):
    torch = pytest.importorskip("torch")
    from particlemesh.apps.pme.torch import energy

    (x, q), pme = system(), PME(BOX, **fine, coulomb_constant=1.5, exclusions=[[0, 1], [4, 2]], factors=[0.0, 0.5])
    exact = pme(x, q)
    strain = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    tx, tq = (torch.tensor(a, requires_grad=True) for a in (x, q))
    deform = torch.eye(3, dtype=torch.float64) + strain
    value = energy(pme, tx @ deform.T, tq, cell=torch.tensor(BOX) @ deform.T)
    by_x, by_q, by_strain = torch.autograd.grad(value, (tx, tq, strain))
    np.testing.assert_allclose(value.item(), exact.energy, rtol=1e-10)
    np.testing.assert_allclose(-by_x.numpy(), exact.forces, atol=1e-9)
    np.testing.assert_allclose(by_q.numpy() * q / 2, exact.energies, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(by_strain.numpy(), exact.virial, atol=1e-8)


@SPLITS
def test_second_derivatives_of_torch_are_differences_of_first_ones(fine):
    torch = pytest.importorskip("torch")
    from particlemesh.apps.pme.torch import energy

    (x, q), pme = system(), PME(BOX, **fine, exclusions=[[0, 1]])
    given = [torch.tensor(a, requires_grad=True) for a in (x, q, BOX)]
    rng = np.random.default_rng(3)
    directions = [torch.tensor(rng.normal(size=a.shape)) for a in (x, q, BOX)]

    def slopes(step):
        moved = [(a + step * d).detach().requires_grad_() for a, d in zip(given, directions, strict=True)]
        return torch.autograd.grad(energy(pme, *moved[:2], cell=moved[2]), moved)

    first = torch.autograd.grad(energy(pme, *given[:2], cell=given[2]), given, create_graph=True)
    second = torch.autograd.grad(sum((g * d).sum() for g, d in zip(first, directions, strict=True)), given)
    step = 1e-5
    for value, above, below in zip(second, slopes(step), slopes(-step), strict=True):
        difference = ((above - below) / (2 * step)).numpy()
        np.testing.assert_allclose(value.numpy(), difference, rtol=0, atol=2e-6 * abs(difference).max())


@SPLITS
def test_jax_gives_energy_forces_and_virial_of_pme(fine):
    jax = pytest.importorskip("jax")
    from particlemesh.apps.pme.jax import energy

    (x, q), pme = system(), PME(BOX, **fine, coulomb_constant=1.5, exclusions=[[0, 1], [4, 2]], factors=[0.0, 0.5])
    exact = pme(x, q)
    with jax.enable_x64(True):

        def strained(x, q, strain):
            deform = jax.numpy.eye(3) + strain
            return energy(pme, x @ deform.T, q, cell=jax.numpy.asarray(BOX) @ deform.T)

        arguments = x, q, np.zeros((3, 3))
        value, slopes = jax.jit(jax.value_and_grad(strained, (0, 1, 2)))(*arguments)
        np.testing.assert_allclose(value, exact.energy, rtol=1e-10)
        np.testing.assert_allclose(-slopes[0], exact.forces, atol=1e-9)
        np.testing.assert_allclose(slopes[1] * q / 2, exact.energies, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(slopes[2], exact.virial, atol=1e-8)
        for twice in (jax.hessian, lambda f: jax.jit(jax.jacrev(jax.grad(f)))):
            with pytest.raises(ValueError, match="differentiated twice"):
                twice(lambda x: energy(pme, x, q))(x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_compiled_energy_may_be_called_where_float64_is_off(dtype):
    jax = pytest.importorskip("jax")
    from particlemesh.apps.pme.jax import energy

    (x, q), pme = system(), PME(BOX, **FINE, coulomb_constant=1.5)
    exact = pme(x, q)
    with jax.enable_x64(True):
        x, q = jax.numpy.asarray(x, dtype), jax.numpy.asarray(q, dtype)
        compiled = jax.jit(jax.value_and_grad(lambda x: energy(pme, x, q))).lower(x).compile()
    with jax.enable_x64(False):
        value, slope = compiled(x)
    tolerance = 1e-9 if dtype == np.float64 else 1e-4
    assert value.dtype == dtype
    np.testing.assert_allclose(value, exact.energy, rtol=tolerance)
    np.testing.assert_allclose(-slope, exact.forces, atol=10 * tolerance)


def test_bad_arguments_are_explained():
    torch = pytest.importorskip("torch")
    from particlemesh.apps.pme.torch import energy

    (x, q), pme = (torch.tensor(a) for a in system()), PME(BOX, **FINE, coulomb_constant=1.5)
    for error, words, arguments in [
        (TypeError, "give a particlemesh.apps.pme.PME", (None, x, q)),
        (TypeError, "charges is of type list", (pme, x, [1.0] * 6)),
        (TypeError, "give one dtype", (pme, x, q.float())),
        (ValueError, r"charges has shape \(5,\)", (pme, x, q[:5])),
        (ValueError, "on top of each other", (pme, x[[0, 0]], q[:2])),
    ]:
        with pytest.raises(error, match=words):
            energy(*arguments)
    with pytest.raises(ValueError, match="cell has shape"):
        energy(pme, x, q, cell=torch.ones(2))
