# SPDX-License-Identifier: BSD-3-Clause
"""Energies of torch tensors and JAX arrays have right derivatives, which agree with forces and virial."""

import numpy as np
import pytest

from particlemesh.apps.pme import PME, PMEBatch

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


COUNTS, PAIRS = (6, 0, 4), dict(exclusions=[[0, 1], [9, 7]], factors=[0.0, 0.5])
BOXES = np.array([BOX, 1.2 * BOX, np.diag([2.1, 1.8, 2.0])])


def systems():
    """Three systems of which one is empty: positions, charges and owners of ten particles."""
    x, q = system()
    (y, p), owners = system(4), np.repeat([0, 1, 2], COUNTS)
    return np.concatenate([x, y @ np.linalg.solve(BOX, BOXES[2])]), np.concatenate([q, p]), owners


@SPLITS
def test_torch_gives_energies_forces_potentials_and_virials_of_many_systems(fine):
    torch = pytest.importorskip("torch")
    from particlemesh.apps.pme.torch import energy

    x, q, owners = systems()
    batch = PMEBatch(BOX, 3, **fine, coulomb_constant=1.5)
    order = np.random.default_rng(5).permutation(10)
    pairs = dict(PAIRS, exclusions=np.argsort(order)[PAIRS["exclusions"]])
    x, q, owners = x[order], q[order], owners[order].astype(np.int32)
    exact = batch(x, q, owners, boxes=BOXES, **pairs, fields=True)
    strain = torch.zeros(3, 3, 3, dtype=torch.float64, requires_grad=True)
    tx, tq = (torch.tensor(a, requires_grad=True) for a in (x, q))
    deform, home = torch.eye(3, dtype=torch.float64) + strain, torch.tensor(owners)
    moved = (tx[:, None] @ deform.transpose(1, 2)[home])[:, 0]
    values = energy(batch, moved, tq, home, cell=torch.tensor(BOXES) @ deform.transpose(1, 2), **pairs)
    slopes = torch.autograd.grad(values, (tx, tq, strain), torch.ones(3, dtype=torch.float64))
    np.testing.assert_allclose(values.detach(), exact.energy, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(-slopes[0].numpy(), exact.forces, atol=1e-9)
    np.testing.assert_allclose(slopes[1].numpy(), exact.potentials, atol=1e-9)
    np.testing.assert_allclose(slopes[2].numpy(), exact.virial, atol=1e-8)
    for s, scale in enumerate((1.0, 1.2)):  # of systems in the box of the batch, and in lengths
        mine = owners == s
        alone = PME(scale * BOX, **fine, coulomb_constant=1.5)
        if mine.any():
            plain = energy(batch, tx, tq, home, cell=torch.tensor(BOXES))[s]
            torch.testing.assert_close(plain, energy(alone, tx[mine], tq[mine]))
    torch.testing.assert_close(
        energy(batch, tx, tq, home), energy(batch, tx, tq, home, cell=torch.tensor(BOX).expand(3, 3, 3))
    )
    lengths = torch.tensor([[2.0, 2.1, 1.9]] * 3, dtype=torch.float64)
    torch.testing.assert_close(
        energy(batch, tx, tq, home, cell=lengths), energy(batch, tx, tq, home, cell=torch.diag_embed(lengths))
    )


@pytest.mark.turns(2)
@SPLITS
def test_second_derivatives_of_many_systems_are_differences_of_first_ones(fine):
    torch = pytest.importorskip("torch")
    from particlemesh.apps.pme.torch import energy

    x, q, owners = systems()
    batch = PMEBatch(BOX, 3, **fine)
    given = [torch.tensor(a, requires_grad=True) for a in (x, q, BOXES)]
    rng, home, weights = np.random.default_rng(3), torch.tensor(owners), torch.tensor([1.0, 2.0, -0.5])
    directions = [torch.tensor(rng.normal(size=a.shape)) for a in (x, q, BOXES)]

    def slopes(arguments, **options):
        values = energy(batch, *arguments[:2], home, cell=arguments[2], **PAIRS)
        return torch.autograd.grad((values * weights).sum(), arguments, **options)

    first = slopes(given, create_graph=True)
    second = torch.autograd.grad(sum((g * d).sum() for g, d in zip(first, directions, strict=True)), given)
    step = 1e-5
    above, below = (
        slopes([(a + side * d).detach().requires_grad_() for a, d in zip(given, directions, strict=True)])
        for side in (step, -step)
    )
    for value, high, low in zip(second, above, below, strict=True):
        difference = ((high - low) / (2 * step)).numpy()
        np.testing.assert_allclose(value.numpy(), difference, rtol=0, atol=2e-6 * abs(difference).max())


def test_jax_has_the_same_energies_and_derivatives_of_many_systems():
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    from particlemesh.apps.pme import jax as of_jax
    from particlemesh.apps.pme import torch as of_torch

    x, q, owners = systems()
    batch, weights = PMEBatch(BOX, 3, **PROLATE), np.array([1.0, 2.0, -0.5])
    given = [torch.tensor(a, requires_grad=True) for a in (x, q, BOXES)]
    values = of_torch.energy(batch, *given[:2], torch.tensor(owners), cell=given[2], **PAIRS)
    expected = torch.autograd.grad((values * torch.tensor(weights)).sum(), given)
    with jax.enable_x64(True):

        def loss(x, q, cells, owners):
            energies = of_jax.energy(batch, x, q, owners, cell=cells, **PAIRS)
            return (energies * weights).sum(), energies

        slopes, energies = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))(x, q, BOXES, owners)
        np.testing.assert_allclose(energies, values.detach(), rtol=1e-11, atol=1e-12)
        for one, two in zip(slopes, expected, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-9)
        with pytest.raises(ValueError, match=r"the pair \[7, 9\], whose particles are in different systems"):
            loss(x, q, BOXES, np.where(np.arange(10) == 9, 1, owners))
        assert np.isnan(jax.jit(loss)(x, q, BOXES, np.where(np.arange(10) == 9, 1, owners))[1]).any()


@pytest.mark.turns(2)
@SPLITS
@pytest.mark.parametrize("many", [False, True])
def test_energies_compile_and_are_exported(fine, many):
    torch = pytest.importorskip("torch", "2.13")  # before, its compiler of whole graphs takes no mesh
    from particlemesh.apps.pme.torch import energy

    x, q, owners = systems() if many else (*system(), None)
    pme = PMEBatch(BOX, 3, **fine) if many else PME(BOX, **fine, **dict(PAIRS, exclusions=[[0, 1], [4, 2]]))
    given = [torch.tensor(a, requires_grad=True) for a in (x, q, BOXES if many else BOX)]
    home, pairs = (torch.tensor(owners), PAIRS) if many else (None, {})

    class Module(torch.nn.Module):
        def forward(self, x, q, cell):
            return energy(pme, x, q, home, cell=cell, **pairs).sum()

    plain = Module()
    compiled = torch.compile(plain, fullgraph=True, backend="aot_eager")
    program = torch.export.export(plain, tuple(a.detach() for a in given)).module()
    for scale in (1.0, 1.01):
        moved = [(scale * a).detach().requires_grad_() for a in given]
        value = plain(*moved)
        torch.testing.assert_close(compiled(*moved), value)
        torch.testing.assert_close(program(*moved), value)
        slopes = torch.autograd.grad(compiled(*moved), moved)
        torch.testing.assert_close(slopes, torch.autograd.grad(value, moved))


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
    batch, home = PMEBatch(BOX, 2, **FINE), torch.tensor([0, 1] * 3)
    for error, words, arguments, more in [
        (ValueError, "cell has shape", (pme, x, q), dict(cell=torch.ones(2))),
        (ValueError, r"cell has shape \(3, 3\); give lengths \(2, 3\)", (batch, x, q, home), dict(cell=torch.eye(3))),
        (TypeError, "leave out system", (pme, x, q, home), {}),
        (TypeError, "needs system", (batch, x, q), {}),
        (TypeError, "give them to the PME", (pme, x, q), dict(exclusions=[[0, 1]])),
        (ValueError, r"the pair \[0, 1\], whose particles", (batch, x, q, home), dict(exclusions=[[1, 0]])),
        (ValueError, r"pair 0 of exclusions is \[0, 6\]", (batch, x, q, home), dict(exclusions=[[0, 6]])),
        (ValueError, r"system has shape \(5,\)", (batch, x, q, home[:5]), {}),
        (TypeError, "integers are needed", (batch, x, q, home.double()), {}),
        (TypeError, "system is of type list", (batch, x, q, [0] * 6), {}),
    ]:
        with pytest.raises(error, match=words):
            energy(*arguments, **more)
