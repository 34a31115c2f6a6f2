# SPDX-License-Identifier: BSD-3-Clause
"""Nothing is cast silently: numbers come in a type that is computed with, or are refused; masks likewise."""

import numpy as np
import pytest

import particlemesh as pm
from kinds import KINDS, MESH, Q, X
from public_calls import CALLS, arrays_of, bound

REFUSED = ["f2", "g", "G"]
ALLOWED = "float32, float64, complex64, complex128 and integers are allowed, without implicit casts: convert"
OURS = [name for name in CALLS if not name.startswith(("apps.", "distributed.", "fourier.", "kernels."))]


def plan():
    return pm.Plan(MESH, "cic").set_positions(X)


def grid():
    return pm.UniformGrid(MESH.box, shape=(3, 3, 3)).build(X)


@pytest.mark.parametrize("name", [name for name in OURS if arrays_of(name) and name != "UniformGrid.build_keys"])
def test_types_that_would_be_cast_are_refused(name, tmp_path):
    made = bound(name, tmp_path)
    for argument, host in arrays_of(name).items():
        for dtype in REFUSED:
            with pytest.raises(TypeError, match=f"{ALLOWED}|real numbers are needed"):
                made(**{argument: host.astype(dtype)})
        for bad in ("S3", "U3", "O", "M8[s]", "V4"):
            with pytest.raises(TypeError, match=f"dtype is|have dtype|{ALLOWED}|real numbers are needed"):
                made(**{argument: np.zeros(host.shape, np.dtype(bad))})


@pytest.mark.parametrize("name", [n for n in CALLS if arrays_of(n) and "Halves" not in n])  # which take native arrays
def test_masks_are_never_dropped(name, tmp_path):
    """A mask that is dropped gives results of numbers that are not there."""
    if name.startswith("apps.mri"):
        pytest.importorskip("mrinufft")
    made = bound(name, tmp_path)
    for argument, host in arrays_of(name).items():
        masked = np.ma.array(host, mask=np.arange(host.size).reshape(host.shape) == 3)
        for given in (masked, [masked, masked])[: 1 + (name in OURS and host.ndim > 1)]:
            with pytest.raises(TypeError, match="the mask would be lost"):
                made(**{argument: given})
        assert not {path.name for path in tmp_path.iterdir()} - {"x.npz"}, "nothing is written"
    made()


def test_positions_by_axis_and_boxes_of_systems_are_numbers_too():
    several, system = pm.Plan(MESH, "cic", systems=2), np.zeros(len(X), int)
    for host, take in (
        (X[:, 0], lambda a: pm.Plan(MESH, "cic").set_positions((X[:, 0], X[:, 1], a))),
        (np.ones((2, 3)), lambda a: several.set_positions(X, system=system, boxes=a)),
        (X, lambda a: grid().build(X, a)),
    ):
        for dtype in (*REFUSED, "S3", "O"):
            with pytest.raises(TypeError, match=f"dtype is|have dtype|{ALLOWED}|real numbers are needed"):
                take(host.astype(dtype) if dtype in REFUSED else np.zeros(host.shape, dtype))
        with pytest.raises(TypeError, match="the mask would be lost"):
            take(np.ma.array(host, mask=host == host.flat[3]))


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
