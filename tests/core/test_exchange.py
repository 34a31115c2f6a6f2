# SPDX-License-Identifier: BSD-3-Clause
"""Arrays that have no kind of their own: by the array API, by DLPack, and columns of pandas."""

import sys

import numpy as np
import pytest

import particlemesh as pm
from kinds import FIELD, MESH, SLOPES, VALUES, Q, X
from particlemesh.arrays.kinds import foreign


class Bare:
    """An array of which nothing is known but ``__dlpack__``, in the protocol's first form."""

    def __init__(self, host):
        self._host = np.array(host)

    def __dlpack__(self):
        return self._host.__dlpack__()


class Shared:
    """Memory of a GPU that the host reaches through a buffer only, as MLX has it on Metal."""

    def __init__(self, host):
        self._host = np.array(host)

    def __dlpack__(self, **options):
        raise BufferError("this memory is not exported")

    def __dlpack_device__(self):
        return 8, 0

    def __buffer__(self, flags):
        return memoryview(self._host)


class Strict:
    """Arrays of array-api-strict, on any of its devices."""

    def __init__(self, device="CPU_DEVICE"):
        self.library = pytest.importorskip("array_api_strict", reason="array-api-strict is not installed")
        self.device = self.library.Device(device)

    def make(self, host):
        return self.library.asarray(np.array(host), device=self.device)

    def host(self, array):
        assert type(array) is type(self.make(0.0)) and array.device == self.device
        return np.from_dlpack(array)


class Mlx:
    """Arrays of MLX; float64 lives on its CPU."""

    def __init__(self):
        self.library = pytest.importorskip("mlx.core", reason="MLX is not installed")
        self.library.set_default_device(self.library.cpu)

    def make(self, host):
        return self.library.asarray(np.array(host), dtype=getattr(self.library, np.asarray(host).dtype.name))

    def host(self, array):
        assert isinstance(array, self.library.array)
        return np.asarray(array)


class Minimal:
    """There is no function that makes such an array: results are NumPy's."""

    def __init__(self, kind):
        self.make = kind

    def host(self, array):
        assert type(array) is np.ndarray
        return array


KINDS = {
    "array-api-strict": Strict,
    "array-api-strict-device": lambda: Strict("device1"),
    "mlx": Mlx,
    "dlpack": lambda: Minimal(Bare),
}


@pytest.fixture(params=list(KINDS))
def kind(request):
    return KINDS[request.param]()


@pytest.mark.parametrize("dtype", ["f8", "c8"])
def test_library_device_and_type_come_back(kind, dtype):
    real, tolerance = ("f4", 2e-5) if dtype == "c8" else ("f8", 1e-12)
    q, x = kind.make(Q.astype(dtype)), kind.make(X.astype(real))
    with pm.Plan(MESH, "tsc") as plan:
        plan.set_positions(x)
        field = plan.spread(q)
        values, slopes = plan.value_and_gradient(field)
        both = plan.spread(kind.make(np.stack([Q, 3 * Q]).astype(dtype)))
        empty = plan.empty_field(2)
    assert kind.host(field).dtype == dtype and kind.host(slopes).dtype == dtype
    np.testing.assert_allclose(kind.host(field), FIELD, atol=tolerance)
    np.testing.assert_allclose(kind.host(values), VALUES, atol=tolerance)
    np.testing.assert_allclose(kind.host(slopes), SLOPES, atol=40 * tolerance)
    np.testing.assert_allclose(kind.host(both), np.stack([FIELD, 3 * FIELD]), atol=4 * tolerance)
    assert kind.host(empty).shape == (2, *MESH.shape)


def test_grids_lists_and_cells_are_of_the_library(kind):
    columns = tuple(kind.make(X[:, axis]) for axis in range(3))
    i, j, d = pm.neighbour_list("ijd", kind.make(X), MESH.box, kind.make(np.full(len(X), 0.2)))
    expected = pm.neighbour_list("ijd", X, MESH.box, 0.4)
    for array, exact in zip((i, j, d), expected, strict=True):
        np.testing.assert_allclose(kind.host(array), exact, rtol=1e-13)
    with pm.UniformGrid(MESH.box, cell_size=0.4) as grid:
        grid.build(columns)
        np.testing.assert_array_equal(kind.host(grid.count(0.4)), np.bincount(expected[0], minlength=len(X)))
    result, exact = pm.locate(kind.make(X), MESH), pm.locate(X, MESH)
    np.testing.assert_array_equal(kind.host(result.cells), exact.cells)


def test_memory_is_read_in_place_and_a_plans_own_memory_is_handed_out_as_a_copy():
    host = np.array(Q)
    shared = type("Same", (Bare,), {"__init__": lambda self, host: setattr(self, "_host", host)})(host)
    assert np.shares_memory(foreign(shared, "values")[1], host)
    strict = Strict()
    with pm.Plan(MESH, "tsc", order="sorted") as plan:
        plan.set_positions(strict.make(X))
        order = np.array(strict.host(plan.order))
        strict.host(plan.order)[:] = 0
        np.testing.assert_array_equal(strict.host(plan.order), 0 * order)  # one copy, of which the plan reads nothing
        np.testing.assert_allclose(plan.spread(Q[order]), FIELD, atol=1e-12)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="classes of Python have a buffer from Python 3.12 on")
def test_memory_that_a_gpu_shares_with_the_host():
    np.testing.assert_allclose(pm.spread(Shared(X), Shared(Q), MESH, window="tsc"), FIELD, atol=1e-12)


def test_what_dlpack_does_not_give_is_refused_with_a_reason():
    class Elsewhere(Bare):
        def __dlpack_device__(self):
            return 7, 0  # Vulkan

    class Half(Bare):
        def __dlpack__(self, **options):
            raise BufferError("bfloat16 is not exported")

    with pm.Plan(MESH, "tsc") as plan:
        plan.set_positions(X)
        before = plan.spread(Q)
        for wrong in (Elsewhere(Q), Half(Q)):
            with pytest.raises(TypeError, match=r"values is of type \w+, and DLPack gives no array of it .*NumPy"):
                plan.spread(wrong)
        with pytest.raises(TypeError, match="arrays that DLPack reaches are not written"):
            plan.spread(Q, out=Bare(FIELD))
        with pytest.raises(ValueError, match=r"values has shape \(39,\)"):
            plan.spread(Bare(Q[:39]))
        with pytest.raises(TypeError, match="dtype is float16"):
            plan.spread(Bare(Q.astype("f2")))
        np.testing.assert_array_equal(plan.spread(Q), before)


def test_columns_of_pandas():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(X, columns=list("xyz"), index=np.arange(len(X)) * 7 + 3)
    frame["q"] = Q
    frame["name"] = "ion"
    with pm.Plan(MESH, "tsc") as plan:
        plan.set_positions(frame[["x", "y", "z"]])
        np.testing.assert_allclose(plan.spread(frame["q"]), FIELD, atol=1e-12)
        np.testing.assert_allclose(plan.interpolate(FIELD), VALUES, atol=1e-12)
        with pytest.raises(TypeError, match="values: dtype is"):
            plan.spread(frame["name"])
        frame.loc[10, "y"] = np.nan
        with pytest.raises(ValueError, match=rf"the first is particle 1 at \({X[1, 0]:.17g}, nan, {X[1, 2]:.17g}\)"):
            plan.set_positions(frame[["x", "y", "z"]])
        with pytest.raises(ValueError, match=rf"the first is particle 1 at \({X[1, 0]:.17g}, nan, {X[1, 2]:.17g}\)"):
            plan.set_positions((frame["x"], frame["y"], frame["z"]))


def _raises(error):
    def method(self, **options):
        raise error

    return method


HALVES = {
    "a device that is none": dict(__dlpack__=_raises(BufferError("no")), __dlpack_device__=lambda self: None),
    "an empty device": dict(__dlpack__=_raises(BufferError("no")), __dlpack_device__=lambda self: ()),
    "no memory": dict(__dlpack__=_raises(AttributeError("no memory here")), __dlpack_device__=lambda self: (1, 0)),
    "no capsule": dict(__dlpack__=lambda self, **options: 3, __dlpack_device__=lambda self: (1, 0)),
    "no namespace": dict(
        __dlpack__=lambda self, **options: Q.__dlpack__(**options), __dlpack_device__=lambda self: (1, 0),
        __array_namespace__=_raises(AttributeError("no namespace")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("half", HALVES)
def test_half_of_a_protocol_is_an_error_in_words(half):
    array = type("Half", (), HALVES[half])()
    with pytest.raises(TypeError, match="positions is of type Half, and DLPack gives no array of it .*: convert it"):
        pm.spread(array, Q, MESH)
    with pytest.raises(TypeError, match="values is of type Half, and DLPack gives no array of it .*: convert it"):
        pm.spread(X, array, MESH)
