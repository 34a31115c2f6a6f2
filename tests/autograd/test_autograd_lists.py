# SPDX-License-Identifier: BSD-3-Clause
"""Lists of neighbours in torch and JAX: the same pairs as of plain arrays, derivatives, batches, compiled functions."""

import functools

import numpy as np
import pytest

import particlemesh as pm

RNG = np.random.default_rng(3)
CELL = np.array([[1.0, 0.1, 0.0], [0.0, 1.0, 0.2], [0.0, 0.0, 1.1]])
X, REACH = RNG.random((30, 3)) @ CELL, 0.45
SYSTEM, BOXES = np.arange(30) % 3, np.stack([CELL, 1.1 * CELL, 0.9 * CELL])
CASES = {
    "one box": (CELL, None, None, True),
    "lengths": (np.array([1.0, 1.1, 1.2]), None, None, (True, False, True)),
    "systems": ((1.0, 1.0, 1.0), SYSTEM, BOXES, True),
    "axes of systems": ((1.0, 1.0, 1.0), SYSTEM, BOXES, [[True, True, False], [False] * 3, [True] * 3]),
    "lengths of systems": ((1.0, 1.0, 1.0), SYSTEM, BOXES[:, range(3), range(3)], True),
}


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed: pip install particlemesh[torch]")


@pytest.fixture(scope="module")
def jax():
    jax = pytest.importorskip("jax", reason="JAX is not installed: pip install particlemesh[jax]")
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        yield jax


def energy(xp, d):
    """Smooth at the cutoff, and zero of what is left of a capacity."""
    return ((REACH - xp.where(d < REACH, d, REACH)) ** 4).sum()


@pytest.fixture(params=["cpu", "cuda"])
def device(request, torch):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("PyTorch finds no CUDA device")
    return request.param


def by_torch(torch, case, module=pm, device="cpu", **options):
    """The function of positions and lattice, and its arguments that require grad."""
    box, system, boxes, periodic = CASES[case]
    tensors = [torch.tensor(a, requires_grad=True, device=device) for a in (X, boxes if boxes is not None else box)]
    ids = None if system is None else torch.tensor(system, device=device)

    def function(x, lattice, quantities="d"):
        given = {"box": box, "boxes": lattice} if boxes is not None else {"box": lattice}
        return module.neighbour_list(quantities, x, radius=REACH, periodic=periodic, system=ids, **given, **options)

    return function, tensors


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_tensors_that_require_grad_have_the_same_pairs(torch, device, case, half):
    box, system, boxes, periodic = CASES[case]
    expected = pm.neighbour_list("ijdDS", X, box, REACH, periodic=periodic, half=half, system=system, boxes=boxes)
    function, tensors = by_torch(torch, case, half=half, device=device)
    results = function(*tensors, "ijdDS")
    # The order of a particle's neighbours is not promised.
    order, right_order = (
        np.lexsort((*np.asarray(a[4]).T, a[1], a[0])) for a in ([r.numpy(force=True) for r in results], expected)
    )
    for array, right in zip(results, expected, strict=True):
        assert array.numpy(force=True).dtype == right.dtype
        atol = 1e-15 if right.dtype.kind == "f" else 0
        np.testing.assert_allclose(array.numpy(force=True)[order], right[right_order], rtol=0, atol=atol)
    assert [array.requires_grad for array in results] == [False, False, True, True, False]


@pytest.mark.parametrize("case", CASES)
def test_first_and_second_derivatives_are_those_of_differences(torch, device, case):
    function, tensors = by_torch(torch, case, device=device)
    assert torch.autograd.gradcheck(lambda *a: energy(torch, function(*a)), tensors)
    assert torch.autograd.gradgradcheck(lambda *a: energy(torch, function(*a)), tensors, rtol=1e-2, atol=1e-4)


def test_particles_at_one_place_have_no_slope(torch):
    x = torch.zeros(2, 3, requires_grad=True)
    (slope,) = torch.autograd.grad(pm.neighbour_list("d", x, (1.0, 1.0, 1.0), 0.1).sum(), x)
    assert not slope.any()


def test_columns_are_positions_too(torch):
    columns = [torch.tensor(column, requires_grad=True) for column in X.T]
    vectors = pm.neighbour_list("D", tuple(columns), (1.0, 1.0, 1.0), REACH)
    right = pm.neighbour_list("D", X, (1.0, 1.0, 1.0), REACH)
    np.testing.assert_allclose(vectors.numpy(force=True), right, rtol=0, atol=1e-15)
    assert all(slope.any() for slope in torch.autograd.grad((vectors**3).sum(), columns))


def test_compiled_exported_and_in_transforms(torch, device):
    from particlemesh.autograd import torch as differentiable

    function, (x, lattice) = by_torch(torch, "one box", differentiable, device)
    right = torch.autograd.grad(energy(torch, function(x, lattice)), (x, lattice))
    compiled = torch.compile(lambda *a: energy(torch, function(*a)), fullgraph=True, backend="aot_eager")
    for slope, expected in zip(torch.autograd.grad(compiled(x, lattice), (x, lattice)), right, strict=True):
        torch.testing.assert_close(slope, expected)

    class Model(torch.nn.Module):
        def forward(self, x, lattice):
            return energy(torch, function(x, lattice))

    shapes = ({0: torch.export.Dim("n")}, None)
    exported = torch.export.export(Model(), (x.detach(), lattice.detach()), dynamic_shapes=shapes).module()
    torch.testing.assert_close(
        exported(x.detach()[:17], lattice.detach()), energy(torch, function(x[:17], lattice)).detach()
    )

    padded, _ = by_torch(torch, "one box", differentiable, device, capacity=900)
    slope = torch.func.grad(lambda x: energy(torch, padded(x, lattice.detach())[0]))
    torch.testing.assert_close(slope(x.detach()), right[0])
    many = torch.stack([x.detach(), x.detach().flip(0) * 0.9])
    torch.testing.assert_close(torch.func.vmap(slope)(many), torch.stack([slope(one) for one in many]))


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_a_capacity_pads_and_tells_of_too_many(library, request):
    xp = request.getfixturevalue(library)
    lists = pytest.importorskip(f"particlemesh.autograd.{library}")
    array = xp.tensor if library == "torch" else xp.numpy.asarray
    i, j, images, distances, vectors = pm.neighbour_list("ijSdD", X, CELL, REACH)
    of_pair = {(*pair, *image): k for k, (*pair, image) in enumerate(zip(i, j, images.tolist(), strict=True))}
    for capacity in (len(i) - 1, len(i), len(i) + 7):
        *arrays, number = lists.neighbour_list("ijSdD", array(X), array(CELL), REACH, capacity=capacity)
        assert int(number) == len(i)
        taken = min(capacity, len(i))
        first, second, shifts, d, apart = map(np.asarray, arrays)
        assert {len(result) for result in (first, second, shifts, d, apart)} == {capacity}
        # A device may have the neighbours of a particle in another order.
        places = [
            of_pair[(*pair, *image)]
            for *pair, image in zip(first[:taken], second[:taken], shifts[:taken].tolist(), strict=True)
        ]
        assert len(set(places)) == taken
        np.testing.assert_allclose(d[:taken], distances[places], rtol=0, atol=1e-15)
        np.testing.assert_allclose(apart[:taken], vectors[places], rtol=0, atol=1e-15)
        assert not any(result[taken:].any() for result in (first, second, shifts, apart))
        assert np.isinf(d[taken:]).all()


@pytest.mark.parametrize("case", CASES)
def test_jax_differentiates_compiles_and_maps(jax, case):
    from jax.test_util import check_grads

    from particlemesh.autograd.jax import neighbour_list

    box, system, boxes, periodic = CASES[case]
    options = dict(radius=REACH, periodic=periodic, system=system, capacity=900)

    def function(x, lattice):
        given = {"box": box, "boxes": lattice} if boxes is not None else {"box": lattice}
        return energy(jax.numpy, neighbour_list("d", x, **given, **options)[0])

    x, lattice = map(jax.numpy.asarray, (X, boxes if boxes is not None else box))
    compiled, slope = jax.jit(function), jax.jit(jax.grad(function))
    check_grads(compiled, (x, lattice), order=2, modes=("rev",), rtol=1e-2)
    np.testing.assert_allclose(compiled(x, lattice), function(x, lattice), rtol=1e-13)
    many = jax.numpy.stack([x, 0.9 * x[::-1]])
    mapped = jax.vmap(slope, (0, None))(many, lattice)
    np.testing.assert_allclose(mapped, jax.numpy.stack([slope(one, lattice) for one in many]), atol=1e-12)


def test_what_has_no_fixed_length_says_capacity(torch, jax):
    from particlemesh.autograd import jax as of_jax
    from particlemesh.autograd import torch as of_torch

    with pytest.raises(TypeError, match="give capacity"):
        jax.jit(functools.partial(of_jax.neighbour_list, "d", box=CELL, radius=REACH))(X)
    with pytest.raises(ValueError, match="give capacity"):
        torch.func.vmap(lambda x: of_torch.neighbour_list("d", x, CELL, REACH))(torch.tensor(X)[None])
    with pytest.raises(TypeError, match="give a tensor"):
        of_torch.neighbour_list("d", X, CELL, REACH)
    with pytest.raises(ValueError, match="capacity"):
        of_torch.neighbour_list("d", torch.tensor(X), CELL, REACH, capacity=0)


def test_compiled_lists_follow_radius_and_box(torch):
    from particlemesh.autograd.torch import neighbour_list

    def pairs(x, box, radius):
        return neighbour_list("d", x, box, radius)

    compiled, x = torch.compile(pairs, fullgraph=True, backend="aot_eager"), torch.tensor(X)
    for length, radius in ((1.0, 0.3), (1.2, 0.4), (1.2, 0.5), (0.9, 0.25)):
        box = np.array([length] * 3)
        right = pm.neighbour_list("d", X, box, radius)
        for given in (radius, torch.tensor(radius, dtype=torch.float64)):
            np.testing.assert_allclose(np.sort(compiled(x, box, given).numpy()), np.sort(right), atol=1e-14)


def test_other_arguments_are_as_of_plain_calls(torch):
    x, radii = torch.tensor(X, requires_grad=True), np.full(len(X), REACH / 2)
    given = dict(system=SYSTEM, boxes=BOXES, radius=radii)
    right = pm.neighbour_list("ijdns", X, (1.0, 1.0, 1.0), **given)
    for letter, array, expected in zip(
        "ijdns", pm.neighbour_list("ijdns", x, (1.0, 1.0, 1.0), **given), right, strict=True
    ):
        assert array.numpy(force=True).dtype == expected.dtype, letter
        np.testing.assert_allclose(array.numpy(force=True), expected, rtol=0, atol=1e-15)
    whole = torch.tensor([[0], [1]])
    cell = torch.tensor([2.5], requires_grad=True)
    assert pm.neighbour_list("d", whole.double(), cell, 1.0).dtype == torch.float64


def test_float32_far_from_the_box_keeps_its_digits(torch):
    x = (X + RNG.integers(-1000, 1000, (len(X), 1)) * CELL[0]).astype("float32")
    right = pm.neighbour_list("d", x, CELL, REACH)
    d = pm.neighbour_list("d", torch.tensor(x, requires_grad=True), CELL, REACH)
    np.testing.assert_allclose(np.sort(d.numpy(force=True)), np.sort(right), rtol=3e-6)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_no_particles_and_columns(library, request):
    xp = request.getfixturevalue(library)
    lists = pytest.importorskip(f"particlemesh.autograd.{library}")
    array = xp.tensor if library == "torch" else xp.numpy.asarray
    vectors, d, number = lists.neighbour_list("Dd", array(np.zeros((0, 3))), CELL, REACH, capacity=5)
    assert int(number) == 0
    assert np.isinf(np.asarray(d)).all()
    assert not np.asarray(vectors).any()
    three = tuple(array(column[:3]) for column in X.T)
    right = pm.neighbour_list("d", X[:3], CELL, 0.9)
    np.testing.assert_allclose(np.sort(lists.neighbour_list("d", three, CELL, 0.9)), np.sort(right), atol=1e-15)
