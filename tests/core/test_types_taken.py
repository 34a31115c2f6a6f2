# SPDX-License-Identifier: BSD-3-Clause
"""Nothing is cast silently: numbers come in a type that is computed with, or are refused; masks likewise."""

import numpy as np
import pytest

import particlemesh as pm
import particlemesh.distributed as pmd
from kinds import KINDS, MESH, Q, X
from pair_sums import VALUES
from particlemesh import fourier, kernels
from particlemesh.apps import brownian, dem, files, nufft, pme

FIELD = np.zeros(MESH.field_shape)
REFUSED = ["f2", "g", "G"]
ALLOWED = "float32, float64, complex64, complex128 and integers are allowed, without implicit casts: convert"


def plan():
    made = pm.Plan(MESH, "cic")
    made.set_positions(X)
    return made


def grid():
    return pm.UniformGrid(MESH.box, shape=(3, 3, 3)).build(X)


# Every public argument that takes an array of numbers, in the array's place.
ARGUMENTS = {
    "spread positions": (X, lambda a: pm.spread(a, Q, MESH)),
    "spread values": (Q, lambda a: pm.spread(X, a, MESH)),
    "interpolate field": (FIELD, lambda a: pm.interpolate(a, X, MESH)),
    "interpolate positions": (X, lambda a: pm.interpolate(FIELD, a, MESH)),
    "gradient field": (FIELD, lambda a: pm.gradient(a, X, MESH)),
    "hessian field": (FIELD, lambda a: pm.hessian(a, X, MESH)),
    "plan positions": (X, lambda a: pm.Plan(MESH, "cic").set_positions(a)),
    "plan positions by axis": (X[:, 0], lambda a: pm.Plan(MESH, "cic").set_positions((X[:, 0], X[:, 1], a))),
    "boxes of systems": (
        np.ones((2, 3)),
        lambda a: pm.Plan(MESH, "cic", systems=2).set_positions(X, system=np.zeros(len(X), int), boxes=a),
    ),
    "plan values": (Q, lambda a: plan().spread(a)),
    "plan vectors": (X, lambda a: plan().spread_gradient(a)),
    "plan tensors": (np.multiply.outer(X, X[0]), lambda a: plan().spread_hessian(a)),
    "plan field": (FIELD, lambda a: plan().interpolate(a)),
    "plan field, gradient": (FIELD, lambda a: plan().gradient(a)),
    "plan field, both": (FIELD, lambda a: plan().value_and_gradient(a)),
    "plan field, hessian": (FIELD, lambda a: plan().hessian(a)),
    "plan field, all three": (FIELD, lambda a: plan().value_gradient_hessian(a)),
    "lost values": (Q, lambda a: plan().lost(a)),
    "box positions": (X, MESH.box.fractional),
    "folded positions": (X, MESH.box.fold),
    "grid positions": (X, lambda a: grid().build(a)),
    "grid radii": (Q**2, lambda a: grid().build(X, a)),
    "grid half edges": (X, lambda a: grid().build(X, a)),
    "cutoffs": (Q**2, lambda a: grid().pairs(a)),
    "cutoffs of counts": (Q**2, lambda a: grid().count(a)),
    "points": (X, lambda a: grid().neighbours(a, 0.1)),
    "nearest points": (X, lambda a: grid().nearest(1, 0.1, a)),
    "stream values": (Q, lambda a: grid().stream(0.1, VALUES, a)),
    "list positions": (X, lambda a: pm.neighbour_list("ij", a, MESH.box, 0.1)),
    "list radii": (Q**2, lambda a: pm.neighbour_list("ij", X, MESH.box, a)),
}  # fmt: skip


@pytest.mark.parametrize("what", ARGUMENTS)
def test_types_that_would_be_cast_are_refused(what):
    host, call = ARGUMENTS[what]
    for dtype in REFUSED:
        with pytest.raises(TypeError, match=f"{ALLOWED}|real numbers are needed"):
            call(host.astype(dtype))
    for bad in ("S3", "U3", "O", "M8[s]", "V4"):
        with pytest.raises(TypeError, match=f"dtype is|have dtype|{ALLOWED}|real numbers are needed"):
            call(np.zeros(host.shape, np.dtype(bad)))


@pytest.mark.parametrize("dtype", REFUSED)
def test_a_refused_type_is_named_with_what_is_allowed_and_what_to_do(dtype):
    text = rf"values: dtype is {np.dtype(dtype)}; {ALLOWED} the numbers yourself"
    with pytest.raises(TypeError, match=text):
        plan().spread(Q.astype(dtype))


@pytest.mark.parametrize("bad", [np.array("0.1"), np.array(b"1"), "0.1", np.array(0.1 + 0j), np.array(True), [["a"]]])
def test_a_radius_without_a_number_is_refused(bad):
    for call in (lambda: grid().build(X, bad), lambda: grid().pairs(bad), lambda: grid().count(bad)):
        with pytest.raises(TypeError, match="a number is needed|numbers"):
            call()
    with pytest.raises(TypeError, match="a number is needed|numbers"):
        pm.neighbour_list("ij", X, MESH.box, bad)


@pytest.mark.parametrize("what", ARGUMENTS)
def test_masks_are_never_dropped(what):
    host, call = ARGUMENTS[what]
    masked = np.ma.array(host, mask=np.arange(host.size).reshape(host.shape) == 3)
    for given in (masked, [masked, masked]):
        with pytest.raises(TypeError, match="the mask would be lost"):
            call(given)


P, W = np.random.default_rng(1).random((20, 3)), np.cos(np.arange(20.0))
C = W + 1j
CUBE = pm.Mesh((8, 8, 8), (1.0, 1.0, 1.0))
RHO = np.random.default_rng(2).random(CUBE.shape)
SPRING = dem.LinearSpring(stiffness=1.0)


def ranks(thing, *arguments, **options):
    return thing(pmd.Domain(CUBE, 1), pmd.World(), *arguments, **options)


def table(array, folder):
    with files.writing_table(folder / "t.npz") as rows:
        rows.append({"a": array})


def spheres():
    return brownian.RPY((20.0,) * 3, accuracy=1e-2).set_positions(20 * P)


def granular(x=20 * P, radius=0.1, v=0 * P, **options):
    return dem.Simulation(x, radius, v, **dict(density=1.0, contact=SPRING, time_step=1e-3) | options)


def charges():
    return pme.PME((4.0,) * 3, accuracy=1e-2)


# Arrays that programs take: the array, and the call that takes it.
PROGRAMS = {
    "solver positions": (P, lambda a, _: fourier.Solver(CUBE, "cic").set_positions(a)),
    "solver values": (W, lambda a, _: fourier.Solver(CUBE, "cic").set_positions(P).potential(a)),
    "transformed field": (RHO, lambda a, _: fourier.Transform(CUBE, "cic").forward(a)),
    "spectrum positions": (P, lambda a, _: fourier.power_spectrum(a, W, CUBE)),
    "spectrum values": (W, lambda a, _: fourier.power_spectrum(P, a, CUBE)),
    "spectrum edges": (np.arange(1.0, 40.0), lambda a, _: fourier.power_spectrum(P, W, CUBE, edges=a)),
    "points": (P[:, 0], lambda a, _: nufft.nufft1d1(a, C, 8)),
    "strengths": (C, lambda a, _: nufft.nufft1d1(P[:, 0], a, 8)),
    "modes": (C[:8], lambda a, _: nufft.nufft1d2(P[:, 0], a)),
    "frequencies": (W, lambda a, _: nufft.nufft1d3(P[:, 0], C, a)),
    "charged positions": (4 * P, lambda a, _: charges()(a, W)),
    "charges": (W, lambda a, _: charges()(4 * P, a)),
    "dipoles": (P, lambda a, _: charges()(4 * P, W, dipoles=a)),
    "exclusions": (
        np.array([[0, 1], [2, 3]]), lambda a, _: pme.PME((4.0,) * 3, accuracy=1e-2, exclusions=a)(4 * P, W),
    ),
    "attracted positions": (4 * P, lambda a, _: pme.Dispersion((4.0,) * 3, accuracy=1e-2)(a, W)),
    "coefficients": (W, lambda a, _: pme.Dispersion((4.0,) * 3, accuracy=1e-2)(4 * P, a)),
    "spheres": (20 * P, lambda a, _: brownian.RPY((20.0,) * 3, accuracy=1e-2).set_positions(a)),
    "forces": (P, lambda a, _: spheres().velocity(a)),
    "noise": (P, lambda a, _: spheres().square_root(a)),
    "diffusing spheres": (20 * P, lambda a, _: brownian.BrownianDynamics(a, spheres(), time_step=0.1)),
    "grains": (20 * P, lambda a, _: granular(a)),
    "grain radii": (W**2 + 0.1, lambda a, _: granular(radius=a)),
    "grain velocities": (P, lambda a, _: granular(v=a)),
    "grain densities": (W**2 + 0.1, lambda a, _: granular(density=a)),
    "rank positions": (P, lambda a, _: ranks(pmd.Plan, "cic").set_positions(a)),
    "rank values": (W, lambda a, _: ranks(pmd.Plan, "cic").set_positions(P).spread(a)),
    "rank fields": (RHO, lambda a, _: ranks(pmd.Plan, "cic").set_positions(P).interpolate(a)),
    "rank grids": (P, lambda a, _: ranks(pmd.UniformGrid, radius=0.2).build(a)),
    "rank transforms": (RHO, lambda a, _: ranks(pmd.FFT).forward(a)),
    "kernel operands": (P, lambda a, _: kernels.take(a, (None, 3), "x")),
    "written fields": (RHO, lambda a, folder: files.write_field(folder / "f.npz", a, CUBE)),
    "written columns": (W, table),
}  # fmt: skip


@pytest.mark.parametrize("what", PROGRAMS)
def test_programs_never_drop_a_mask(what, tmp_path):
    host, call = PROGRAMS[what]
    with pytest.raises(TypeError, match="the mask would be lost"):
        call(np.ma.array(host, mask=np.arange(host.size).reshape(host.shape) == 3), tmp_path)
    assert list(tmp_path.iterdir()) == []
    call(host, tmp_path)


def test_masks_of_keys_are_never_dropped():
    with pytest.raises(TypeError, match="the mask would be lost"):
        grid().build_keys(np.ma.array([1, 2, 3], mask=[True, False, False]), 4)


@pytest.mark.parametrize("where", [{"box": (1.0, 2.0)}, {"offset": (0.5, 0.5)}, {"origin": (0.1, 0.2)}])
def test_masks_of_boxes_and_meshes_are_never_dropped(where):
    ((name, numbers),) = where.items()
    arguments = {"box": (1.0, 2.0), name: np.ma.array(numbers, mask=[True, False])}
    with pytest.raises(TypeError, match="the mask would be lost"):
        pm.Mesh((4, 4), **arguments)


@pytest.mark.parametrize("verb", ["fold_ghosts", "fill_ghosts"])
def test_masks_of_fields_with_ghosts_are_never_dropped(verb):
    mesh = pm.Mesh((3, 3), (1.0, 1.0), ghosts=1)
    shape = mesh.field_shape if verb == "fold_ghosts" else mesh.shape
    masked = np.ma.array(np.ones(shape), mask=np.eye(len(np.ones(shape)), dtype=bool))
    with pytest.raises(TypeError, match="the mask would be lost"):
        getattr(mesh, verb)(masked)
    with pytest.raises(TypeError, match="the mask would be lost"):
        getattr(mesh, verb)(list(masked))


@pytest.mark.parametrize("dtype", ["i4", "u4", "i8", "u8"])
def test_integers_that_a_plan_does_not_hold_are_refused(dtype):
    largest = np.iinfo(dtype).max
    with pm.Plan(MESH, "cic", dtype="float32") as made:
        made.set_positions(X)
        for whole in (2**24, 2**30, largest // 2 + 1):
            assert made.spread(np.full(40, whole, dtype)).dtype == np.float32
        for whole in (2**24 + 1, largest // 2, largest - 1):
            with pytest.raises(TypeError, match=f"values has dtype {np.dtype(dtype)}, and float32 does not hold all"):
                made.spread(np.full(40, whole, dtype))


@pytest.mark.opencl
@pytest.mark.parametrize("kind", ["pyopencl", "cupy", "torch-cpu"])
def test_half_precision_of_a_device_is_refused(kind):
    from particlemesh import backends

    maker = KINDS[kind]
    reason = backends.module(maker.home).available()
    if reason is not None:
        pytest.skip(reason)
    x, q = maker.make(X), maker.make(Q)
    made = pm.Plan(MESH, "cic")
    made.set_positions(x)
    half_x, half_q = maker.make(X.astype("f2")), maker.make(Q.astype("f2"))
    cells = pm.UniformGrid(MESH.box, shape=(3, 3, 3))
    for call in (
        lambda: made.spread(half_q), lambda: made.set_positions(half_x), lambda: pm.spread(x, half_q, MESH),
        lambda: cells.build(half_x), lambda: cells.build(x, half_q), lambda: cells.build(x).pairs(half_q),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=ALLOWED):
            call()
    assert made.spread(q) is not None


def test_bfloat16_of_torch_is_refused():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, q = torch.tensor(X), torch.tensor(Q)
    made = pm.Plan(MESH, "cic")
    made.set_positions(x)
    for call in (
        lambda: made.spread(q.bfloat16()), lambda: made.set_positions(x.bfloat16()),
        lambda: pm.spread(x, q.bfloat16(), MESH), lambda: made.spread(q, out=torch.zeros(MESH.shape).bfloat16()),
        lambda: pm.UniformGrid(MESH.box, shape=(3, 3, 3)).build(x.bfloat16()),
        lambda: pm.neighbour_list("ij", x.bfloat16(), MESH.box, 0.1),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=f"dtype is bfloat16; {ALLOWED}"):
            call()
