# SPDX-License-Identifier: BSD-3-Clause
"""Plans and single functions with torch tensors that require grad."""

import threading

import numpy as np
import pytest

import oracle
import particlemesh as pm
from particlemesh.fourier import Solver, VectorSolver

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install particlemesh[torch]")

F64 = torch.float64
MESHES = [pm.Mesh(7, 2.0), pm.Mesh((5, 6), [[1.0, 0.2], [0.1, 1.3]]), pm.Mesh((4, 5, 3), (1.0, 2.0, 1.5))]
VERBS = ("spread", "interpolate", "gradient", "spread_gradient", "value_and_gradient")


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("PyTorch finds no CUDA device")
    return request.param


def arrays(mesh, dtype=F64, count=4, device="cpu"):
    """Positions, and an array for each verb."""
    draw = torch.Generator().manual_seed(5)
    d = mesh.ndim
    shapes = dict.fromkeys(VERBS, (2, *mesh.shape)) | {"spread": (2, count), "spread_gradient": (2, count, d)}
    x = torch.rand((count, d), dtype=F64, generator=draw) @ torch.tensor(mesh.box.matrix)
    given = {verb: torch.randn(shape, dtype=dtype, generator=draw).to(device) for verb, shape in shapes.items()}
    return x.to(device).requires_grad_(), {verb: array.requires_grad_() for verb, array in given.items()}


def function(mesh, verb, **options):
    return lambda x, array: getattr(pm.Plan(mesh, "bspline5", **options).set_positions(x), verb)(array)


def test_derivatives_of_sorted_plans_are_in_the_callers_order():
    mesh = pm.Mesh((64, 64), (1.0, 1.0))
    x, given = arrays(mesh, count=40)
    order = pm.Plan(mesh, "bspline5", order="sorted").set_positions(x.detach()).order
    assert order.tolist() != list(range(40))
    for verb in ("spread", "interpolate"):
        assert torch.autograd.gradcheck(function(mesh, verb, order="sorted"), (x, given[verb]), fast_mode=True)


def test_single_functions_and_coordinates_one_by_one():
    mesh = MESHES[1]
    x, given = arrays(mesh)
    columns = tuple(x.detach()[:, a].clone().requires_grad_() for a in range(2))
    calls = {
        "spread": lambda q, *c: pm.spread(c, q, mesh), "interpolate": lambda f, *c: pm.interpolate(f, c, mesh),
        "gradient": lambda f, *c: pm.gradient(f, c, mesh),
    }  # fmt: skip
    for verb, call in calls.items():
        assert torch.autograd.gradcheck(call, (given[verb], *columns), fast_mode=True)
    line = torch.rand(4, dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, q: pm.spread(x, q, MESHES[0]), (line, given["spread"]))
    whole = torch.arange(4)
    assert torch.autograd.gradcheck(lambda x: pm.spread(x, whole, MESHES[0]), (line,))


def test_without_grad_tensors_are_data():
    mesh = MESHES[1]
    x, given = arrays(mesh)
    expected = oracle.spread(mesh, pm.bspline(4), x.detach().numpy(), given["spread"].detach().numpy())
    with torch.no_grad():
        plan = pm.Plan(mesh).set_positions(x)
        field = plan.spread(given["spread"])
        out = torch.zeros_like(field)
        assert plan.spread(given["spread"], out=out) is out
        assert not field.requires_grad
        np.testing.assert_allclose(field, expected, atol=1e-13)
        np.testing.assert_array_equal(out, field)
        pm.UniformGrid((1.0, 1.0), shape=(4, 4)).build(x)
        np.testing.assert_allclose(plan.lost(given["spread"]), 0)
    assert not plan.spread(given["spread"].detach()).requires_grad  # these positions were data
    with torch.inference_mode():
        np.testing.assert_array_equal(pm.spread(x, given["spread"], mesh), field)


def test_what_has_no_derivatives_is_refused():
    mesh = MESHES[1]
    x, given = arrays(mesh)
    plan = pm.Plan(mesh).set_positions(x)
    with pytest.raises(TypeError, match=r"out= and accumulate= are not differentiable.*torch.no_grad\(\)"):
        plan.spread(given["spread"], out=torch.zeros(2, *mesh.shape, dtype=F64))
    with pytest.raises(TypeError, match=r"requires grad, and this call is not differentiable.*Pass tensor.detach\(\)"):
        plan.lost(given["spread"])
    with pytest.raises(TypeError, match="requires grad, and this call is not differentiable"):
        pm.UniformGrid((1.0, 1.0), shape=(4, 4)).build(x)
    for solver, words in ((Solver(MESHES[0]), "call .*torch.potential"), (VectorSolver(MESHES[0]), "detach them")):
        with pytest.raises(TypeError, match=rf"positions require grad, and a \w*Solver has no derivatives.*{words}"):
            solver.set_positions(x)
    with pytest.raises(TypeError, match="the positions require grad, and this array is a ndarray: give a tensor"):
        plan.spread(np.ones(4))
    with pytest.raises(ValueError, match="not finite"):
        plan.set_positions((x * np.nan).detach().requires_grad_())
    assert plan.spread(given["spread"]).requires_grad  # the plan keeps its positions


def test_derivatives_need_the_positions_of_the_call():
    mesh = MESHES[1]
    x, given = arrays(mesh)
    plan = pm.Plan(mesh).set_positions(x)
    field = plan.spread(given["spread"])
    with torch.no_grad():
        x += 0.1  # the plan has its own positions
    field.sum().backward(retain_graph=True)
    plan.set_positions(x)
    with pytest.raises(RuntimeError, match=r"the plan has new positions since spread\(\).*Call backward\(\) before"):
        field.sum().backward()
    plan.close()


def test_saved_tensors_are_not_the_plans_memory():
    """A plan that is used again, and closed, leaves results and derivatives of graphs alone."""
    mesh = MESHES[2]
    x, given = arrays(mesh)
    plan = pm.Plan(mesh, order="sorted").set_positions(x)
    field = plan.spread(given["spread"])
    (slope,) = torch.autograd.grad(field.square().sum(), x)
    kept = field.detach().clone(), slope.clone()
    for _ in range(3):
        plan.spread(given["spread"].detach() * 9)
        plan.set_positions(torch.rand((4, 3), dtype=F64))
    plan.close()
    torch.testing.assert_close((field.detach(), slope), kept, rtol=0, atol=0)


def test_two_threads_differentiate_plans_of_their_own():
    mesh = MESHES[1]
    x, given = arrays(mesh)
    expected = torch.autograd.grad(pm.spread(x, given["spread"], mesh).square().sum(), x)[0]
    results = []

    def work():
        for _ in range(20):
            field = pm.spread(x, given["spread"], mesh)
            results.extend(torch.autograd.grad(field.square().sum(), x))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 60
    for slope in results:
        torch.testing.assert_close(slope, expected)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch reads it itself
def test_compiled_functions_call_plans_uncompiled():
    mesh = MESHES[1]
    x, given = arrays(mesh)
    call = torch.compiler.disable(pm.Plan(mesh).set_positions(x).spread)
    function = lambda q: (2 * call(q)).square().sum()  # noqa: E731
    slopes = [
        torch.autograd.grad(f(given["spread"]), (x, given["spread"]))
        for f in (function, torch.compile(function, backend="eager"))
    ]
    torch.testing.assert_close(*slopes)


def test_plans_of_several_systems_are_differentiable():
    mesh, system = MESHES[1], torch.tensor([0, 1, 1, 0])
    x, given = arrays(mesh)
    boxes = torch.tensor(mesh.box.matrix) * torch.tensor([1.0, 1.5]).reshape(2, 1, 1)

    def field(x, q):
        return pm.Plan(mesh, "bspline5", systems=2).set_positions(x, system=system, boxes=boxes).spread(q)

    assert field(x, given["spread"]).shape == (2, 2, *mesh.shape)
    assert torch.autograd.gradcheck(field, (x, given["spread"]), fast_mode=True)
    assert torch.autograd.gradgradcheck(field, (x, given["spread"]), fast_mode=True)
    with pytest.raises(TypeError, match="boxes require grad, and a plan has no derivatives by them"):
        pm.Plan(mesh, systems=2).set_positions(x, system=system, boxes=boxes.requires_grad_())
    with pytest.raises((TypeError, RuntimeError), match="requires? grad"):
        pm.Plan(mesh, systems=2).set_positions(x.detach(), system=system, boxes=boxes)
