# SPDX-License-Identifier: BSD-3-Clause
"""Differentiable potentials against the solver, and their derivatives by positions, values, box and parameters."""

import shutil

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.fourier import ProlateGreen, Solver

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install particlemesh[torch]")

from particlemesh.autograd.torch import potential  # noqa: E402

F64 = torch.float64
WHOLE_GRAPHS = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13),
    reason="before PyTorch 2.13 the compiler of whole graphs does not take a mesh as a constant",
)
COMPILER = pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
MESHES = {
    "line": pm.Mesh(9, 2.0),
    "odd": pm.Mesh((7, 9), (2.0, 1.5), offset=(0.25, 0.5), origin=(0.5, -1.0)),
    "triclinic": pm.Mesh((6, 8), [[1.0, 0.2], [0.3, 1.3]]),
    "open line": pm.Mesh(9, 2.0, periodic=False),
    "wire": pm.Mesh((6, 5), (2.0, 1.5), periodic=(True, False), offset=(0.25, 0.5), origin=(0.5, -1.0)),
    "open space": pm.Mesh((6, 5, 4), (1.0, 1.1, 0.9), periodic=False),
    "space": pm.Mesh((6, 5, 4), [[1.0, 0.0, 0.1], [0.2, 1.1, 0.0], [0.0, 0.3, 0.9]]),
}
GREENS = {
    "poisson": {}, "yukawa": {"kappa": 2.0}, "ewald": {"alpha": 3.0}, "poisson with zero": {"zero": 0.5},
    "function": {"green": lambda k2: 1 / (1 + k2**2), "zero": 1.0},
}  # fmt: skip


@pytest.fixture(params=list(MESHES))
def mesh(request):
    return MESHES[request.param]


def options_of(name):
    return {"green": name.split()[0], **GREENS[name]}


def arrays(mesh, count=5):
    draw = torch.Generator().manual_seed(2)
    cell = torch.tensor(mesh.box.matrix)
    x = torch.tensor(mesh.box.origin) + torch.rand((count, mesh.ndim), dtype=F64, generator=draw) @ cell
    q = torch.randn((2, count), dtype=F64, generator=draw)
    return x.requires_grad_(), q.requires_grad_(), cell.requires_grad_()


@pytest.mark.filterwarnings("ignore:gradient='window' conserves energy")
@pytest.mark.parametrize(
    ("name", "compensation"), [*((name, "continuous") for name in GREENS), ("poisson", "discrete"), ("ewald", None)]
)
def test_potentials_are_the_solvers(mesh, name, compensation):
    x, q, cell = arrays(mesh)
    closed, options = all(mesh.periodic), options_of(name)
    if not closed and "zero" in options:
        with pytest.raises(ValueError, match="open axes"):
            potential(x, q, mesh, window="bspline5", **options)
        return
    solver = Solver(mesh, "bspline5", **options, compensation=compensation)
    expected = solver.set_positions(x.detach().numpy()).potential(q.detach().numpy())
    for box in (None, cell)[: 1 + closed]:
        result = potential(x, q, mesh, window="bspline5", cell=box, **options_of(name), compensation=compensation)
        np.testing.assert_allclose(result.detach(), expected, rtol=1e-10, atol=1e-11)


@pytest.mark.filterwarnings("ignore:gradient='window' conserves energy")
def test_moments_are_the_solvers_and_have_slopes(mesh):
    x, _, cell = arrays(mesh)
    count = (mesh.ndim + 1) * (mesh.ndim + 2) // 2
    moments = torch.randn((count, 5), dtype=F64, generator=torch.Generator().manual_seed(3)).requires_grad_()
    margin = {} if all(mesh.periodic) else {"margin": 8}
    solver = Solver(mesh, "bspline7", green="ewald", alpha=3.0, **margin).set_positions(x.detach().numpy())
    fields = solver.moment_fields(solver.plan.spread(moments.detach().numpy()))
    expected = solver.plan.interpolate(fields)

    def values(x, moments, cell=None):
        return potential(x, moments, mesh, window="bspline7", cell=cell, green="ewald", alpha=3.0, moments=True)

    boxes = (cell,) if all(mesh.periodic) else ()
    for box in (None, *boxes):
        np.testing.assert_allclose(values(x, moments, box).detach(), expected, rtol=1e-9, atol=1e-9)
    assert torch.autograd.gradcheck(values, (x, moments, *boxes), atol=1e-3, rtol=1e-4, fast_mode=not boxes)
    with pytest.raises(ValueError, match=rf"moments \({count}, N\) are needed"):
        values(x, moments[1:])


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.filterwarnings("ignore:gradient='window' conserves energy")
def test_slopes_are_the_solvers_gradient(mesh, interlaced):
    x, q, _ = arrays(mesh)
    if interlaced and not all(mesh.periodic):
        with pytest.raises(ValueError, match="is open: leave out interlaced"):
            potential(x, q, mesh, interlaced=True)
        return
    solver = Solver(mesh, "bspline5", interlaced=interlaced, gradient="window").set_positions(x.detach().numpy())
    phi = potential(x, q[0], mesh, window="bspline5", interlaced=interlaced)
    np.testing.assert_allclose(phi.detach(), solver.potential(q[0].detach().numpy()), atol=1e-11)
    energy = 0.5 * (q[0] * phi).sum()
    (slope,) = torch.autograd.grad(energy, x)
    expected = q[0].detach().numpy()[:, None] * solver.gradient(q[0].detach().numpy())
    np.testing.assert_allclose(slope, expected, atol=1e-11)


@pytest.mark.parametrize(
    ("where", "name"),
    [
        *zip(["line", "odd", "triclinic", "space", "line"], GREENS, strict=True),
        ("open line", "yukawa"),
        ("wire", "ewald"),
        ("open space", "poisson"),
    ],
)
def test_derivatives_by_positions_values_and_box(where, name):
    mesh = MESHES[where]

    def call(x, q, cell=None):
        return potential(x, q, mesh, window="bspline5", cell=cell, **options_of(name))

    given = arrays(mesh) if all(mesh.periodic) else arrays(mesh)[:2]
    assert torch.autograd.gradcheck(call, given, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, given, fast_mode=True)


def test_derivatives_by_parameters():
    mesh = MESHES["triclinic"]
    x, q, _ = (a.detach() for a in arrays(mesh))
    for green, name in (("yukawa", "kappa"), ("ewald", "alpha")):
        parameter = torch.tensor(2.5, dtype=F64, requires_grad=True)
        call = lambda p, green=green, name=name: potential(x, q, mesh, green=green, **{name: p})  # noqa: E731
        assert torch.autograd.gradcheck(call, (parameter,))


@WHOLE_GRAPHS
@pytest.mark.parametrize("where", ["triclinic", "interlaced", "wire", "open space"])
def test_potentials_compile(where):
    known = MESHES["triclinic" if where == "interlaced" else where]
    x, q, cell = arrays(known)
    mesh = pm.Mesh(known.shape, pm.Box.of(known.box), offset=known.offset)  # a new one, of which nothing is cached
    options = dict(cell=cell.detach() if all(mesh.periodic) else None, interlaced=where == "interlaced")
    if where == "open space":
        options["green"] = ProlateGreen(9.0, 0.8)
    compiled = torch.compile(lambda x, q: potential(x, q, mesh, **options), fullgraph=True, backend="aot_eager")
    slopes = torch.autograd.grad(compiled(x, q).square().sum(), (x, q))
    expected = torch.autograd.grad(potential(x, q, mesh, **options).square().sum(), (x, q))
    torch.testing.assert_close(slopes, expected)


@WHOLE_GRAPHS
@COMPILER
@pytest.mark.filterwarnings("ignore")  # PyTorch warns of complex numbers
def test_a_model_with_potentials_is_compiled_by_inductor():
    """Charges come from a layer, and the loss trains it: one graph forwards, one back; nothing was called before."""
    mesh = pm.Mesh((6, 8), [[1.0, 0.2], [0.3, 1.3]])
    x, _, cell = arrays(MESHES["triclinic"], 9)
    layer = torch.nn.Linear(mesh.ndim, 1, dtype=F64)

    class Model(torch.nn.Module):
        def forward(self, x, cell):
            q = layer(torch.sin(x)).squeeze(-1)
            return (q * potential(x, q - q.mean(), mesh, cell=cell)).sum()

    plain, given = Model(), (x, cell, *layer.parameters())
    value = torch.compile(plain, fullgraph=True)(x, cell)
    torch.testing.assert_close(value, plain(x, cell))
    expected = torch.autograd.grad(plain(x, cell), given)
    torch.testing.assert_close(torch.autograd.grad(value, given), expected)


def in_systems():
    """Three systems, of which one is empty, in boxes of their own; their particles are mixed."""
    mesh = MESHES["triclinic"]
    owners = torch.tensor([0, 2, 2, 0, 2, 0, 0], dtype=torch.int32)
    cells = torch.stack([factor * torch.tensor(mesh.box.matrix) for factor in (1.0, 1.3, 0.9)])
    rng = np.random.default_rng(6)
    fractions = torch.tensor(rng.random((len(owners), mesh.ndim)))
    x = (fractions[:, None] @ cells[owners])[:, 0]
    given = x, torch.tensor(rng.normal(size=(2, len(owners)))), cells
    return mesh, owners, [a.detach().requires_grad_() for a in given]


@pytest.mark.parametrize(("name", "interlaced"), [("poisson", False), ("yukawa", True)])
def test_potentials_of_many_systems_are_those_of_each(name, interlaced):
    mesh, owners, (x, q, cells) = in_systems()
    options = dict(options_of(name), interlaced=interlaced)
    together = potential(x, q, mesh, cell=cells, system=owners, **options)
    each = torch.zeros_like(together)
    for s in range(3):
        mine = owners == s
        each[:, mine] = potential(x[mine], q[:, mine], mesh, cell=cells[s], **options)
    torch.testing.assert_close(together, each)
    weights = torch.cos(torch.arange(together.numel(), dtype=F64)).reshape(together.shape)
    slopes, expected = (torch.autograd.grad((weights * phi).sum(), (x, q, cells)) for phi in (together, each))
    torch.testing.assert_close(slopes, expected, rtol=1e-9, atol=1e-9)


def test_derivatives_of_many_systems_are_differences():
    mesh, owners, given = in_systems()

    def call(x, q, cells):
        return potential(x, q, mesh, window="bspline5", cell=cells, system=owners, green="ewald", alpha=2.5)

    assert torch.autograd.gradcheck(call, given, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, given, fast_mode=True)


def test_jax_has_the_same_potentials_of_many_systems():
    jax = pytest.importorskip("jax", reason="JAX is not installed: pip install particlemesh[jax]")
    from particlemesh.autograd import jax as other

    mesh, owners, given = in_systems()
    options = options_of("poisson")
    loss = potential(*given[:2], mesh, cell=given[2], system=owners, **options).square().sum()
    with jax.enable_x64(True):
        arrays_ = [a.detach().numpy() for a in given]
        call = lambda x, q, c, s: (other.potential(x, q, mesh, cell=c, system=s, **options) ** 2).sum()  # noqa: E731
        slopes = jax.jit(jax.grad(call, (0, 1, 2)))(*arrays_, owners.numpy())
        many = jax.vmap(lambda q: other.potential(arrays_[0], q, mesh, cell=arrays_[2], system=owners.numpy()))
        np.testing.assert_allclose(
            many(arrays_[1]), other.potential(*arrays_[:2], mesh, cell=arrays_[2], system=owners.numpy()), rtol=1e-12
        )
    for one, two in zip(slopes, torch.autograd.grad(loss, given), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-9)


@pytest.mark.filterwarnings("ignore")  # PyTorch warns of itself, and of complex numbers
@pytest.mark.parametrize("ahead", [False, pytest.param(True, marks=COMPILER)])
def test_potentials_are_exported(ahead, tmp_path):
    mesh = MESHES["triclinic"]
    x, q, cell = (a.detach() for a in arrays(mesh))

    class Module(torch.nn.Module):
        def forward(self, x, q, cell):
            return potential(x, q, mesh, cell=cell)

    exported = torch.export.export(Module(), (x, q, cell))
    if ahead:
        package = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "potential.pt2"))
        program = torch._inductor.aoti_load_package(package)
    else:
        program = exported.module()
    moved = x + 0.1, q * 2, cell * 1.01
    torch.testing.assert_close(program(*moved), potential(moved[0], moved[1], mesh, cell=moved[2]))


def test_jax_has_the_same_potentials_and_derivatives():
    jax = pytest.importorskip("jax", reason="JAX is not installed: pip install particlemesh[jax]")
    from particlemesh.autograd import jax as other

    mesh = MESHES["triclinic"]
    given = arrays(mesh)
    for name, interlaced in (("poisson", False), ("yukawa", True)):
        options = {"interlaced": interlaced, **options_of(name)}
        energy = potential(*given[:2], mesh, cell=given[2], **options).square().sum()
        expected = torch.autograd.grad(energy, given)
        with jax.enable_x64(True):
            call = lambda x, q, c, options=options: (  # noqa: E731
                other.potential(x, q, mesh, cell=c, **options) ** 2
            ).sum()
            value, slopes = jax.jit(jax.value_and_grad(call, (0, 1, 2)))(*(a.detach().numpy() for a in given))
        np.testing.assert_allclose(value, energy.item(), rtol=1e-11)
        for one, two in zip(slopes, expected, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-9)


def test_what_is_not_allowed_is_named():
    x, q, _ = arrays(MESHES["line"])
    cases = [
        (dict(green="yukawa"), "green='yukawa' needs kappa="), (dict(alpha=1.0), "green='poisson' has no alpha="),
        (dict(green=lambda k2: k2), "green is a function: give zero="), (dict(green="coulomb"), "green is 'coulomb'"),
        (dict(compensation="none"), "none"),
    ]  # fmt: skip
    for options, text in cases:
        with pytest.raises(ValueError, match=text):
            potential(x, q, MESHES["line"], **options)
    with pytest.raises(ValueError, match="ghosts"):
        potential(x, q, pm.Mesh(9, 2.0, ghosts=3))
    tensor = torch.tensor(2.0, requires_grad=True)
    for more in (dict(cell=tensor[None, None]), dict(green="yukawa", kappa=tensor), dict(zero=np.zeros(()))):
        with pytest.raises(TypeError, match="axis 0 is open, where derivatives are by positions and values only"):
            potential(x, q, MESHES["open line"], **more)
    potential(x, q, MESHES["open line"], green="yukawa", kappa=1.0)
    with pytest.raises(TypeError, match="kappa is True"):  # which equals 1
        potential(x, q, MESHES["open line"], green="yukawa", kappa=True)
    with pytest.raises(TypeError, match="values are complex; give real and imaginary parts"):
        potential(x, q + 0j, MESHES["line"])
