# SPDX-License-Identifier: BSD-3-Clause
"""Torch's operators: derivatives by differences, compilation, vmap, complex values, boxes of any form."""

import numpy as np
import pytest

import oracle
import particlemesh as pm

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install particlemesh[torch]")

from particlemesh.autograd import torch as transfer  # noqa: E402

F64 = torch.float64
WHOLE_GRAPHS = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13),
    reason="before PyTorch 2.13 the compiler of whole graphs does not take a mesh as a constant",
)
MESHES = {
    "line": pm.Mesh(7, 2.0),
    "open": pm.Mesh((6, 5), (2.0, 1.5), periodic=(True, False), origin=(0.5, -1.0), offset=(0.25, 0.5)),
    "triclinic": pm.Mesh((5, 6), [[1.0, 0.2], [0.1, 1.3]]),
    "ghosts": pm.Mesh((4, 3, 5), (1.0, 2.0, 1.5), ghosts=(0, 3, 0)),
}


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("PyTorch finds no CUDA device")
    return request.param


class Case:
    """A mesh, and tensors on a device."""

    def __init__(self, mesh, device="cpu", dtype=F64, count=4, window="bspline5"):
        draw = torch.Generator().manual_seed(7)

        def normal(*shape):
            return torch.randn(shape, dtype=dtype, generator=draw).to(device).requires_grad_()

        d, box = mesh.ndim, mesh.box
        self.mesh, self.window = mesh, window
        inner = 0.05 + 0.9 * torch.rand((count, d), dtype=F64, generator=draw)
        x = torch.tensor(box.origin) + inner @ torch.tensor(box.matrix)
        images = 3 * torch.tensor(box.periodic, dtype=F64) @ torch.tensor(box.matrix)
        self.x = (x + images).to(device).requires_grad_()
        self.cell = torch.tensor(box.matrix, device=device).requires_grad_()
        self.values, self.vectors = normal(2, count), normal(2, count, d)
        self.field = normal(2, *mesh.field_shape)

    def calls(self, *names, cell=True):
        """Yield functions of positions, array and cell, with their arguments."""
        for name in names:
            array = {"spread": self.values, "spread_gradient": self.vectors}.get(name, self.field)

            def call(x, array, cell=None, name=name):
                first, second = (x, array) if name.startswith("spread") else (array, x)
                return getattr(transfer, name)(first, second, self.mesh, window=self.window, cell=cell)

            yield call, (self.x, array, self.cell) if cell else (self.x, array)


@pytest.fixture(params=list(MESHES))
def mesh(request):
    return MESHES[request.param]


@pytest.mark.parametrize("dtype", [F64, torch.complex128], ids=["real", "complex"])
def test_results_are_those_of_plain_sums(mesh, device, dtype):
    case = Case(mesh, device, dtype)
    host = {name: getattr(case, name).detach().cpu().numpy() for name in ("x", "values", "vectors", "field")}
    window = pm.bspline(5)
    exact = {
        "spread": oracle.spread(mesh, window, host["x"], host["values"]),
        "interpolate": oracle.interpolate(mesh, window, host["x"], host["field"]),
        "gradient": oracle.gradient(mesh, window, host["x"], host["field"]),
        "spread_gradient": oracle.spread_gradient(mesh, window, host["x"], host["vectors"]),
    }
    for (call, arguments), (name, expected) in zip(case.calls(*exact), exact.items(), strict=True):
        result = call(*arguments)
        assert result.dtype == dtype
        assert result.device.type == device
        np.testing.assert_allclose(result.detach().cpu(), expected, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("dtype", [F64, torch.complex128], ids=["real", "complex"])
def test_first_derivatives_by_positions_arrays_and_cell(mesh, device, dtype):
    for call, arguments in Case(mesh, device, dtype).calls("spread", "interpolate"):
        assert torch.autograd.gradcheck(call, arguments, fast_mode=True)


def test_second_derivatives_by_positions_and_cell(mesh, device):
    case = Case(mesh, device)
    for call, arguments in case.calls("spread", "interpolate"):
        assert torch.autograd.gradgradcheck(call, arguments, fast_mode=True)
    for call, arguments in case.calls("gradient", "spread_gradient"):
        assert torch.autograd.gradcheck(call, arguments, fast_mode=True)


def test_third_derivatives_by_positions_are_refused():
    ((call, (x, field)),) = Case(MESHES["line"]).calls("gradient", cell=False)
    (slope,) = torch.autograd.grad(call(x, field).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="third derivatives by positions.*detach the positions"):
        slope.sum().backward()


def test_lengths_are_a_cell_of_their_own():
    case = Case(MESHES["open"])
    lengths = torch.tensor(case.mesh.box.lengths).requires_grad_()
    for call, (x, array, matrix) in case.calls("spread", "interpolate"):
        by_lengths = torch.autograd.grad(call(x, array, lengths).pow(2).sum(), lengths)[0]
        by_matrix = torch.autograd.grad(call(x, array, matrix).pow(2).sum(), matrix)[0]
        torch.testing.assert_close(by_lengths, by_matrix.diagonal())
    with pytest.raises(ValueError, match=r"cell has shape \(3,\); give lengths \(2,\) or lattice vectors"):
        transfer.spread(case.x, case.values, case.mesh, cell=torch.ones(3))
    with pytest.raises(ValueError, match=r"positions have shape \(4, 2\); \(n, 1\) is needed"):
        transfer.spread(case.x, case.values, MESHES["line"])


def test_rounding_leaves_no_open_axis():
    """Faces of a triclinic box with open axes; one beyond them is refused."""
    matrix = np.array([[1.1, 0.3], [-0.2, 0.7]])
    mesh = pm.Mesh((9, 8), pm.Box(matrix, origin=(0.1, -5.0), periodic=False))
    corners = torch.tensor(np.array([[0, 0], [0, 1], [1, 0], [1, 1], [1 / 3, 1]]) @ matrix + mesh.box.origin)
    field = transfer.spread(corners, torch.ones(5, dtype=F64), mesh, window="ngp")
    assert float(field.sum()) == 5
    with pytest.raises(ValueError, match="particle 0"):
        transfer.spread(corners - 1e-9, torch.ones(5, dtype=F64), mesh, window="ngp")


def test_dtypes_of_positions_and_values_may_differ():
    case = Case(MESHES["triclinic"])
    narrow = case.values.detach().float().requires_grad_()
    field = transfer.spread(case.x, narrow, case.mesh, cell=case.cell)
    assert field.dtype == torch.float32
    slopes = torch.autograd.grad(field.pow(2).sum(), (case.x, narrow, case.cell))
    assert [s.dtype for s in slopes] == [F64, torch.float32, F64]
    wide = transfer.spread(case.x, case.values, case.mesh, cell=case.cell)
    for one, two in zip(slopes, torch.autograd.grad(wide.pow(2).sum(), (case.x, case.values, case.cell)), strict=True):
        torch.testing.assert_close(one.double(), two, rtol=1e-4, atol=1e-4)


def test_the_operators_keep_torchs_rules():
    case = Case(MESHES["triclinic"])
    text = transfer.text_of(case.mesh, "bspline4", {})
    operator = torch.ops.particlemesh.transfer
    for spreads, array, order in [
        (True, case.values, 0), (False, case.field, 0), (True, case.vectors, 1), (False, case.field, 1)
    ]:  # fmt: skip
        fractions = case.x if order == 0 else case.x.detach()
        torch.library.opcheck(operator.default, (fractions, array, spreads, order, text))


def force(x, q, cell, mesh):
    """A function of everything that uses all four functions."""
    density = transfer.spread(x, q, mesh, cell=cell)
    energy = transfer.interpolate(density, x.detach(), mesh, cell=cell).square().sum()
    slope = transfer.gradient(density.detach(), x.detach(), mesh, cell=cell)
    return energy + transfer.spread_gradient(x.detach(), slope * q[..., None], mesh, cell=cell).square().sum()


@WHOLE_GRAPHS
def test_whole_graphs_are_compiled(device):
    mesh = MESHES["triclinic"]
    case = Case(mesh, device)
    cell = case.cell.detach()
    compiled = torch.compile(lambda x, q: force(x, q, cell, mesh), fullgraph=True, backend="aot_eager")
    for count in (4, 3, 5):  # other numbers of particles: dynamic shapes
        x, q = torch.rand((count, 2), dtype=F64, device=device), torch.rand((2, count), dtype=F64, device=device)
        x.requires_grad_(), q.requires_grad_()
        slopes = torch.autograd.grad(compiled(x, q), (x, q))
        for one, two in zip(slopes, torch.autograd.grad(force(x, q, cell, mesh), (x, q)), strict=True):
            torch.testing.assert_close(one, two)


@WHOLE_GRAPHS
def test_a_compiled_function_follows_its_mesh():
    x, q = torch.rand((4, 2), dtype=F64), torch.ones(4, dtype=F64)
    compiled = torch.compile(transfer.spread, fullgraph=True, backend="eager")
    for mesh in (MESHES["triclinic"], pm.Mesh((5, 6), (1.0, 1.0)), pm.Mesh((5, 6), (1.0, 1.0), offset=0.5)):
        torch.testing.assert_close(compiled(x, q, mesh), transfer.spread(x, q, mesh))


@WHOLE_GRAPHS
def test_a_compiled_function_follows_its_window_and_options():
    x, q, mesh = torch.rand((4, 2), dtype=F64), torch.ones(4, dtype=F64), MESHES["triclinic"]
    compiled = torch.compile(
        lambda x, q, window, threads: transfer.spread(x, q, mesh, window=window, threads=threads),
        fullgraph=True, backend="eager",
    )  # fmt: skip
    for window, threads in (("cic", 1), ("tsc", 2), (pm.m4prime(), 3), (pm.bspline(6), 3)):
        torch.testing.assert_close(compiled(x, q, window, threads), transfer.spread(x, q, mesh, window=window))


def test_vmap_equals_a_loop():
    case = Case(MESHES["triclinic"])
    x, q = torch.stack([case.x, case.x + 0.1, 2 * case.x]).detach(), torch.randn((2, 4, 3), dtype=F64)

    def spread(x, q):
        return transfer.spread(x, q, case.mesh)

    def slope(x, q):
        return torch.func.grad(lambda x: spread(x, q).square().sum())(x)

    for function in (spread, slope):
        for axes in ((0, 2), (None, 2), (0, None)):
            given = [a if n is not None else a.select(m, 0) for a, n, m in zip((x, q), axes, (0, 2), strict=True)]
            result = torch.func.vmap(function, in_dims=axes)(*given)
            for n in range(3):
                one = [a if m is None else a.select(m, n) for a, m in zip(given, axes, strict=True)]
                torch.testing.assert_close(result[n], function(*one))
    none = torch.func.vmap(spread, in_dims=(1, 2))(x.movedim(0, 1)[:, :0], q[..., :0])
    assert none.shape == (0, 2, *case.mesh.field_shape)
    jacobian = torch.func.jacrev(spread, argnums=1)(x[0], q[0, :, 0])
    torch.testing.assert_close(jacobian @ q[0, :, 1], spread(x[0], q[0, :, 1]))


def test_autocast_rounds_nothing():
    """Products of matrices become bfloat16 there: boxes of lengths have none, and lattice vectors are refused."""
    x, field = torch.rand((5, 2), requires_grad=True), torch.rand(4, 6)
    mesh, lengths = pm.Mesh((4, 6), (1.0, 2.0)), torch.tensor([1.0, 2.0], requires_grad=True)

    def result(cell):
        value = transfer.gradient(field, x, mesh, cell=cell)
        return value, *torch.autograd.grad(value.square().sum(), (x,) if cell is None else (x, cell))

    for cell in (None, lengths):
        expected = result(cell)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(result(cell), expected, rtol=0, atol=0)
    tilted = pm.Mesh((4, 6), [[1.0, 0.0], [0.3, 2.0]])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for call in (
            lambda: transfer.gradient(field, x, mesh, cell=torch.eye(2)),
            lambda: transfer.spread(x, torch.rand(5), tilted),
            lambda: transfer.potential(x, torch.rand(5), tilted),
        ):
            with pytest.raises(
                TypeError, match="autocast would round derivatives by lattice vectors to torch.bfloat16"
            ):
                call()
        with torch.autocast("cpu", enabled=False):
            assert transfer.spread(x, torch.rand(5), tilted).dtype == torch.float32


def test_what_is_not_allowed_is_named():
    x, q = torch.rand(3), torch.rand(3)
    with pytest.raises(TypeError, match="option 'order' is not allowed here; the options are .*threads"):
        transfer.spread(x, q, MESHES["line"], order="sorted")
    with pytest.raises(TypeError, match=r"mesh is of type tuple; give a particlemesh.Mesh"):
        transfer.spread(x, q, (3,))
    with pytest.raises(ValueError, match=r"values has shape \(2,\); its last 1 axis must be 3"):
        transfer.spread(x, q[:2], MESHES["line"])
    with pytest.raises(ValueError, match="not finite"):
        transfer.spread(x * np.nan, q, MESHES["line"])
    for wrong in (torch.ones(3, dtype=torch.int64), x.half()):  # as integers the box would be another
        with pytest.raises(TypeError, match="positions have dtype .*; give float32 or float64"):
            transfer.spread(wrong, q, MESHES["line"])
    for given in ((x.numpy(), q), (x, q.numpy()), (x, q, np.ones(1))):
        with pytest.raises(TypeError, match="is of type ndarray; give a tensor"):
            transfer.spread(*given[:2], MESHES["line"], cell=given[2] if len(given) > 2 else None)
    with pytest.raises(ValueError, match="positions are on meta and the array is on cpu; give one device"):
        transfer.spread(x.to("meta"), q, MESHES["line"])
