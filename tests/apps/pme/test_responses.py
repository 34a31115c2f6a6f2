# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of induced dipoles and equilibrated charges by the implicit function theorem are right differences."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps.pme import PME, ChargeEquilibration, InducedDipoles
from polarizable import BOX, FINE, system

RNG = np.random.default_rng(5)
CHI, ETA, WIDTHS = RNG.normal(size=6), RNG.uniform(10, 20, 6), RNG.uniform(0.1, 0.3, 6)
WEIGHTS = RNG.normal(size=(6, 3))
FIELD = np.array([0.3, -0.2, 0.1])
PAIRS = dict(exclusions=[[0, 1], [2, 4]], factors=[0.0, 0.5])


def opened(*axes):
    """A box with open axes, in which all particles are."""
    return pm.Box((2.6, 2.8, 2.1), origin=(-0.5, -0.1, -0.1), periodic=[a not in axes for a in range(3)])


def parameters(box):
    """A coarse mesh where open axes double it: slopes are those of its own energy."""
    return FINE if box is BOX else FINE | dict(shape=(20, 22, 18), window="bspline8")


def induced(torch, thole, pairs, dtype="float64", box=BOX):
    """A function of positions, charges, polarizabilities, dipoles, field and perhaps cell, and where to take slopes."""
    from particlemesh.apps.pme.torch import induced_dipoles

    x, q, m, alpha = system()
    tolerance = 1e-13 if dtype == "float64" else 1e-6
    model = InducedDipoles(PME(box, **parameters(box), coulomb_constant=2.0, **pairs), tolerance, thole=thole)
    alpha[2] = 1e-3

    def function(x, q, alpha, m, field, cell=None):
        energy, u = induced_dipoles(model, x, q, alpha, dipoles=m, field=field, cell=cell)
        return 0.3 * energy + (torch.tensor(WEIGHTS, dtype=x.dtype) * u).sum() + (u**2).sum()

    return function, (x, q, alpha, m, FIELD, *[BOX] * (box is BOX))


def equilibrated(torch, widths, dtype="float64", box=BOX):
    """A function of positions, electronegativities, hardness and perhaps cell, and where to take its slopes."""
    from particlemesh.apps.pme.torch import equilibrated_charges

    model = ChargeEquilibration(
        PME(box, **parameters(box), coulomb_constant=2.0), 1e-13 if dtype == "float64" else 1e-6
    )

    def function(x, chi, eta, cell=None):
        energy, q = equilibrated_charges(model, x, chi, eta, widths=widths, total=0.4, cell=cell)
        return 0.3 * energy + (torch.tensor(WEIGHTS[:, 0], dtype=x.dtype) * q).sum() + (q**2).sum()

    return function, (system()[0], CHI, ETA, *[BOX] * (box is BOX))


CASES = {
    "points": lambda *a: induced(a[0], None, {}, *a[1:]),
    "thole and pairs": lambda *a: induced(a[0], 0.39, PAIRS, *a[1:]),
    "charges": lambda *a: equilibrated(a[0], None, *a[1:]),
    "Gaussians": lambda *a: equilibrated(a[0], WIDTHS, *a[1:]),
    "slab": lambda torch: induced(torch, 0.39, PAIRS, box=opened(2)),
    "wire": lambda torch: induced(torch, None, {}, box=opened(0, 2)),
    "cluster": lambda torch: induced(torch, None, PAIRS, box=opened(0, 1, 2)),
    "Gaussians of a slab": lambda torch: equilibrated(torch, WIDTHS, box=opened(0)),
}


@pytest.mark.parametrize("name", CASES)
def test_slopes_are_differences(name):
    torch = pytest.importorskip("torch")
    function, numbers = CASES[name](torch)
    given = [torch.tensor(a, requires_grad=True) for a in numbers]
    slopes = torch.autograd.grad(function(*given), given)
    for k, (array, slope) in enumerate(zip(numbers, slopes, strict=True)):
        # Polarizabilities are small numbers: their steps are relative to them.
        direction = RNG.normal(size=array.shape) * abs(array).max()
        step = 1e-5 * direction

        def moved(sign, k=k, step=step):
            return [(a + sign * torch.tensor(step) if n == k else a).detach() for n, a in enumerate(given)]

        difference = (function(*moved(1)) - function(*moved(-1))).item() / 2
        np.testing.assert_allclose((slope.numpy() * step).sum(), difference, rtol=1e-5, atol=1e-12, err_msg=str(k))


@pytest.mark.parametrize("name", ["thole and pairs", "Gaussians"])
def test_slopes_of_float32_are_those_of_float64(name):
    torch = pytest.importorskip("torch")
    results = []
    for dtype in ("float64", "float32"):
        function, numbers = CASES[name](torch, dtype)
        given = [torch.tensor(a.astype(dtype), requires_grad=True) for a in numbers]
        results.append([s.numpy() for s in torch.autograd.grad(function(*given), given)])
    for exact, single in zip(*results, strict=True):
        assert single.dtype == np.float32
        np.testing.assert_allclose(single, exact, rtol=0, atol=2e-4 * abs(exact).max())


def test_the_slope_by_a_polarizability_of_zero_is_that_of_a_small_one():
    torch = pytest.importorskip("torch")
    function, numbers = CASES["thole and pairs"](torch)
    slopes = []
    for size in (0.0, 1e-9):
        given = [torch.tensor(a) for a in numbers]
        given[2][2] = size
        given[2].requires_grad_()
        slopes.append(torch.autograd.grad(function(*given), given[2])[0][2].item())
    np.testing.assert_allclose(*slopes, rtol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("axes", [(), (1,), (0, 1, 2)], ids=["periodic", "slab", "cluster"])
@pytest.mark.turns(2)
def test_jax_gives_what_torch_gives(axes, compiled):
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    import particlemesh.apps.pme.jax as of_jax
    import particlemesh.apps.pme.torch as of_torch

    x, q, m, alpha = system()
    box, cells = (opened(*axes), ()) if axes else (BOX, (BOX,))
    dipoles = InducedDipoles(PME(box, **parameters(box), coulomb_constant=2.0, **PAIRS), 1e-13, thole=0.39)
    charges = ChargeEquilibration(PME(box, **parameters(box), coulomb_constant=2.0), 1e-13)

    def by_dipoles(module, weights, x, q, alpha, m, field, cell=None):
        energy, u = module.induced_dipoles(dipoles, x, q, alpha, dipoles=m, field=field, cell=cell)
        return 0.3 * energy + (weights * u).sum()

    def by_charges(module, weights, x, chi, eta, cell=None):
        energy, q = module.equilibrated_charges(charges, x, chi, eta, widths=WIDTHS, total=0.4, cell=cell)
        return 0.3 * energy + (weights[:, 0] * q).sum()

    cases = (by_dipoles, (x, q, alpha, m, FIELD, *cells)), (by_charges, (x, CHI, ETA, *cells))
    for function, numbers in cases:
        given = [torch.tensor(a, requires_grad=True) for a in numbers]
        expected = function(of_torch, torch.tensor(WEIGHTS), *given)
        exact = torch.autograd.grad(expected, given)
        with jax.enable_x64(True):
            arrays = [jax.numpy.asarray(a) for a in numbers]
            call = jax.value_and_grad(lambda *a, f=function: f(of_jax, WEIGHTS, *a), argnums=range(len(arrays)))
            value, slopes = (jax.jit(call) if compiled else call)(*arrays)
        np.testing.assert_allclose(value, expected.item(), rtol=1e-10)
        for slope, known in zip(slopes, exact, strict=True):
            np.testing.assert_allclose(slope, known.numpy(), rtol=0, atol=1e-8 * abs(known.numpy()).max())


def test_second_derivatives_and_bad_arguments_are_refused():
    torch = pytest.importorskip("torch")
    from particlemesh.apps.pme.torch import equilibrated_charges, induced_dipoles

    function, numbers = CASES["charges"](torch)
    given = [torch.tensor(a, requires_grad=True) for a in numbers]
    slope = torch.autograd.grad(function(*given), given[1], create_graph=True)[0]
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()
    x, q = torch.tensor(system()[0]), torch.tensor(CHI)
    model = InducedDipoles(PME(BOX, **FINE))
    with pytest.raises(TypeError, match="give a particlemesh.apps.pme.ChargeEquilibration"):
        equilibrated_charges(model, x, q, q)
    with pytest.raises(TypeError, match="the numbers is of type list"):
        induced_dipoles(model, x, [1.0] * 6, q)


def test_one_number_serves_for_all_particles():
    torch = pytest.importorskip("torch")
    from particlemesh.apps.pme.torch import equilibrated_charges, induced_dipoles

    x, q = (torch.tensor(a) for a in system()[:2])
    dipoles, charges = InducedDipoles(PME(BOX, **FINE), 1e-8), ChargeEquilibration(PME(BOX, **FINE), 1e-8)
    for call, of, number in ((induced_dipoles, dipoles, 0.01), (equilibrated_charges, charges, 6.0)):
        numbers = torch.full((len(x),), number, dtype=x.dtype)
        assert torch.equal(call(of, x, q, number)[1], call(of, x, q, numbers)[1])
        with pytest.raises(TypeError, match="ndarray; give a tensor, or one number"):
            call(of, x, q, numbers.numpy())
