# SPDX-License-Identifier: BSD-3-Clause
"""Laws of the mesh: where nodes are, ghosts as an adjoint pair, Fourier factors, staggered twins, refusals."""

import copy
import itertools
import pickle

import numpy as np
import pytest

from particlemesh.box import Box
from particlemesh.mesh import Mesh
from particlemesh.window import bspline, fitted, window_of

TRICLINIC = [[2.0, 0.0, 0.0], [0.5, 3.0, 0.0], [-0.4, 0.7, 4.0]]


@pytest.mark.parametrize(
    ("periodic", "offset", "intervals", "nodes"),
    [
        (True, 0, 4, [1.0, 1.5, 2.0, 2.5]),
        (True, 0.25, 4, [1.125, 1.625, 2.125, 2.625]),
        (True, -3.5, 4, [-0.75, -0.25, 0.25, 0.75]),
        (False, 0.5, 4, [1.25, 1.75, 2.25, 2.75]),
        (False, 0, 3, [1.0, 1 + 2 / 3, 1 + 4 / 3, 3.0]),
    ],
)
def test_nodes_of_an_axis(periodic, offset, intervals, nodes):
    mesh = Mesh(4, 2.0, periodic=periodic, origin=1.0, offset=offset, ghosts=[(2, 1)])
    assert mesh.intervals == (intervals,)
    np.testing.assert_allclose(mesh.spacing, [2.0 / intervals])
    np.testing.assert_allclose(mesh.nodes(0), nodes, rtol=1e-15)
    h = 2.0 / intervals
    with_ghosts = [nodes[0] - 2 * h, nodes[0] - h, *nodes, nodes[-1] + h]
    np.testing.assert_allclose(mesh.nodes(-1, ghosts=True), with_ghosts, atol=1e-15)
    assert mesh.node_volume == pytest.approx(h)


@pytest.mark.parametrize("nodes", [2, 3, 7, 50, 1000])
def test_the_last_node_of_an_open_axis_is_on_the_face(nodes):
    assert Mesh(nodes, 0.7, periodic=False).nodes(0)[-1] == 0.7


def test_nodes_of_a_triclinic_box_are_distances_along_its_vectors():
    mesh = Mesh((2, 3, 4), Box(TRICLINIC, origin=5.0))
    np.testing.assert_allclose(mesh.nodes(1), np.linalg.norm(TRICLINIC[1]) * np.arange(3) / 3)


def test_attributes():
    mesh = Mesh(np.array([4, 5]), (2.0, 3.0), ghosts=(1, (2, 3)), offset=(0.0, 0.5), periodic=(True, False))
    assert mesh.shape == (4, 5)
    assert all(type(nodes) is int for nodes in mesh.shape)
    assert mesh.ndim == 2
    assert mesh.ghosts == ((1, 1), (2, 3))
    assert mesh.field_shape == (6, 10)
    assert mesh.size == 20
    assert mesh.periodic == (True, False)
    assert mesh.node_volume == pytest.approx(6 / 20)
    assert Mesh((2**31 - 1,) * 3, (1, 1, 1)).size == (2**31 - 1) ** 3
    assert Mesh(2**31 - 4, 1, ghosts=[(1, 2)]).field_shape == (2**31 - 1,)


def test_it_is_a_value():
    mesh = Mesh((4, 5), Box((2.0, 3.0), periodic=(True, False)), offset=(0.1, 0.5), ghosts=((1, 0), 0))
    for twin in (pickle.loads(pickle.dumps(mesh)), copy.deepcopy(mesh), eval(repr(mesh))):
        assert twin == mesh
        assert hash(twin) == hash(mesh)
    assert mesh == Mesh([4, 5], (2, 3), periodic=(True, False), offset=[0.1, 0.5], ghosts=[(1, 0), (0, 0)])
    assert mesh != Mesh((4, 5), mesh.box, offset=(0.1, 0.5))
    with pytest.raises(AttributeError):
        mesh.shape = (1, 1)


@pytest.mark.parametrize("shape", [(1,), (4,), (5,), (4, 3), (5, 2, 6)])
@pytest.mark.parametrize("real", [False, True])
def test_wavenumbers_of_orthorhombic_boxes(shape, real):
    mesh = Mesh(shape, tuple(1.5 + a for a in range(len(shape))))
    for axis, k in enumerate(mesh.wavenumbers(real=real)):
        frequencies = np.fft.rfftfreq if real and axis == mesh.ndim - 1 else np.fft.fftfreq
        np.testing.assert_allclose(k.ravel(), 2 * np.pi * frequencies(shape[axis], mesh.spacing[axis]), rtol=1e-14)
        assert k.shape == tuple(k.size if a == axis else 1 for a in range(mesh.ndim))


@pytest.mark.parametrize("real", [False, True])
def test_wavenumbers_of_a_triclinic_box_differentiate_its_waves(real):
    mesh = Mesh((5, 7, 9), Box(TRICLINIC))
    fraction = np.stack(np.meshgrid(*(np.arange(n) / n for n in mesh.shape), indexing="ij"), axis=-1)
    mode = np.array([1, -2, 3])
    reciprocal = 2 * np.pi * np.linalg.inv(TRICLINIC) @ mode
    wave = np.cos(2 * np.pi * fraction @ mode)
    transform, inverse = (np.fft.rfftn, np.fft.irfftn) if real else (np.fft.fftn, np.fft.ifftn)
    for k, expected in zip(mesh.wavenumbers(real=real), reciprocal, strict=True):
        slope = inverse(1j * k * transform(wave), mesh.shape, axes=(0, 1, 2)).real
        np.testing.assert_allclose(slope, -expected * np.sin(2 * np.pi * fraction @ mode), atol=1e-12)


@pytest.mark.parametrize("kind", ["continuous", "discrete"])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("name", ["ngp", "cic", "tsc", "bspline6", "m4prime"])
def test_compensation_equals_brute_force(name, real, power, kind):
    mesh = Mesh((4, 3, 6), (2.0, 3.0, 1.0), offset=0.3)
    window = window_of(name)
    offsets = np.arange(-8, 9)
    fine = (np.arange(1600) + 0.5) / 100 - 8
    expected = np.ones(mesh.shape)
    for index in np.ndindex(*mesh.shape):
        for n, nodes in zip(index, mesh.shape, strict=True):
            angle = 2 * np.pi * np.fft.fftfreq(nodes)[n]
            if kind == "discrete":
                factor = (window(offsets) * np.cos(angle * offsets)).sum()
            else:
                factor = (window(fine) * np.cos(angle * fine)).sum() / 100
            expected[index] /= factor**power
    factors = mesh.compensation(name, kind, power=power, real=real)
    np.testing.assert_allclose(
        factors, expected[..., :4] if real else expected, rtol=1e-12 if kind == "discrete" else 1e-3
    )


def test_compensation_undoes_spreading_onto_the_nodes():
    # A particle on a node spreads the window's samples, whose transform is the discrete symbol.
    mesh = Mesh((8, 5), (1.0, 1.0))
    sample = np.zeros((8, 5))
    window = bspline(4)
    for i, j in itertools.product(range(-2, 3), repeat=2):
        sample[i % 8, j % 5] += window(i) * window(j)
    delta = np.fft.ifftn(np.fft.fftn(sample) * mesh.compensation(window, "discrete")).real
    expected = np.zeros((8, 5))
    expected[0, 0] = 1
    np.testing.assert_allclose(delta, expected, atol=1e-14)


def test_compensation_refuses_a_zero():
    window = fitted(lambda x: np.where(abs(x) < 0.5, 1.0, 0.5), 3, 1e-12)
    with pytest.raises(ValueError, match="vanishes at mode 2 of axis 0: the compensation would divide by zero"):
        Mesh(4, 1.0).compensation(window, "discrete")


GHOSTED = [
    ((4,), ((0, 0),), True),
    ((4,), ((1, 2),), True),
    ((3,), ((7, 11),), True),
    ((1,), ((2, 3),), True),
    ((3,), ((3, 6),), True),
    ((5,), ((2, 1),), False),
    ((3, 4), ((5, 0), (1, 9)), (True, False)),
    ((2, 3, 4), ((1, 5), (0, 0), (2, 2)), (True, False, True)),
]


@pytest.mark.parametrize(("shape", "ghosts", "periodic"), GHOSTED)
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.complex128, np.int64])
def test_ghosts_fold_and_fill_as_an_adjoint_pair(shape, ghosts, periodic, batch, dtype):
    mesh = Mesh(shape, (1.0,) * len(shape), ghosts=ghosts, periodic=periodic, offset=0.5)
    rng = np.random.default_rng(2)

    def whole_numbers(size):
        values = rng.integers(-9, 10, size) + (1j * rng.integers(-9, 10, size) if dtype is np.complex128 else 0)
        return values.astype(dtype)

    ghosted, plain = whole_numbers((*batch, *mesh.field_shape)), whole_numbers((*batch, *shape))
    ghosted.flags.writeable = plain.flags.writeable = False
    folded, filled = mesh.fold_ghosts(ghosted), mesh.fill_ghosts(plain)
    assert folded.dtype == filled.dtype == dtype
    assert folded.shape == plain.shape
    assert filled.shape == ghosted.shape
    expected_fold, expected_fill = np.zeros_like(folded), np.zeros_like(filled)
    for index in np.ndindex(*mesh.field_shape):
        node = [i - lower for i, (lower, _) in zip(index, mesh.ghosts, strict=True)]
        if any(not p and not 0 <= n < k for n, k, p in zip(node, shape, mesh.periodic, strict=True)):
            continue
        image = tuple(n % k for n, k in zip(node, shape, strict=True))
        expected_fold[(..., *image)] += ghosted[(..., *index)]
        expected_fill[(..., *index)] = plain[(..., *image)]
    np.testing.assert_array_equal(folded, expected_fold)
    np.testing.assert_array_equal(filled, expected_fill)
    # Whole numbers, so that the two inner products are equal and not only close.
    assert np.vdot(folded, plain) == np.vdot(ghosted, filled)


def test_ghosts_take_any_strides_and_return_new_arrays():
    mesh = Mesh((4, 6), (1.0, 1.0))
    field = np.arange(24.0).reshape(6, 4).T
    for result in (mesh.fold_ghosts(field), mesh.fill_ghosts(field)):
        np.testing.assert_array_equal(result, field)
        assert not np.shares_memory(result, field)


class Foreign:
    """An array that is not NumPy's and knows only what array kinds share: shape, dtype, indexing."""

    def __init__(self, values):
        self.values = values
        self.shape = values.shape
        self.dtype = values.dtype

    def __getitem__(self, index):
        return Foreign(self.values[index])

    def __setitem__(self, index, other):
        self.values[index] = other.values

    def __iadd__(self, other):
        self.values += other.values
        return self


class Tensor(Foreign):
    """The same with torch's way to allocate."""

    def __getitem__(self, index):
        return Tensor(self.values[index])

    def new_zeros(self, shape):
        return Tensor(np.zeros(shape, self.dtype))


def zeros(shape, dtype):
    """What the module of `Foreign` allocates with, as the module of a CuPy array does."""
    return Foreign(np.zeros(shape, dtype))


@pytest.mark.parametrize("kind", [Foreign, Tensor])
def test_ghosts_of_other_array_kinds(kind):
    mesh = Mesh((3, 4), (1.0, 1.0), ghosts=((4, 1), (0, 2)), periodic=(True, False))
    ghosted, plain = np.random.default_rng(3).normal(size=mesh.field_shape), np.arange(12.0).reshape(3, 4)
    folded, filled = mesh.fold_ghosts(kind(ghosted)), mesh.fill_ghosts(kind(plain))
    assert type(folded) is type(filled) is kind
    np.testing.assert_array_equal(folded.values, mesh.fold_ghosts(ghosted))
    np.testing.assert_array_equal(filled.values, mesh.fill_ghosts(plain))


def test_ghosts_of_a_sequence_are_a_numpy_array():
    mesh = Mesh(3, 1.0, ghosts=1)
    np.testing.assert_array_equal(mesh.fold_ghosts([10.0, 1.0, 2.0, 3.0, 20.0]), [21, 2, 13])
    np.testing.assert_array_equal(mesh.fill_ghosts((1j, 2j, 3j)), [3j, 1j, 2j, 3j, 1j])


def test_ghosts_of_opencl_arrays_are_refused_with_a_way_out():
    array = pytest.importorskip("pyopencl.array")
    field = object.__new__(array.Array)  # needs no device
    field.shape, field.dtype = (5,), np.dtype(np.float64)
    for call in (Mesh(3, 1.0, ghosts=1).fold_ghosts, Mesh(3, 1.0, ghosts=1).fill_ghosts):
        with pytest.raises(TypeError, match=r"field is a pyopencl\.array\.Array; arrays of NumPy, CuPy .* its get"):
            call(field)


def test_staggered_twins():
    periodic = Mesh((4, 5), (1.0, 1.0), ghosts=2)
    twin = periodic.shifted((0.5, 1.75))
    assert twin.offset == (0.5, 1.75)
    assert (twin.shape, twin.ghosts, twin.box) == (periodic.shape, periodic.ghosts, periodic.box)
    np.testing.assert_allclose(twin.nodes(0), periodic.nodes(0) + periodic.spacing[0] / 2)
    faces = Mesh((5, 4), (2.0, 1.0), periodic=(False, True), ghosts=((1, 2), 0))
    cells = faces.shifted((0.5, 0))
    assert cells.shape == (4, 4)
    assert cells.intervals == faces.intervals
    assert cells.ghosts == faces.ghosts
    np.testing.assert_array_equal(cells.spacing, faces.spacing)
    np.testing.assert_allclose(cells.nodes(0), (faces.nodes(0)[1:] + faces.nodes(0)[:-1]) / 2)
    assert cells.shifted((-0.5, 0)) == faces
    assert faces.shifted(0) == faces


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: Mesh((), 1.0), ValueError, "shape has 0 axes; a mesh has 1 to 3"),
        (lambda: Mesh((1, 1, 1, 1), 1.0), ValueError, "shape has 4 axes; a mesh has 1 to 3"),
        (lambda: Mesh((4, 0), (1, 1)), ValueError, r"shape\[1\] is 0; 1 to 2147483647 is allowed"),
        (lambda: Mesh(2**31, 1), ValueError, r"shape\[0\] is 2147483648"),
        (lambda: Mesh(4.0, 1), TypeError, r"shape\[0\] is 4.0; an integer"),
        (lambda: Mesh("64", 1), TypeError, "an integer of 1 to"),
        (lambda: Mesh((4, 4), 1.0), ValueError, r"shape \(4, 4\) has 2 axes and the box has 1 axis"),
        (lambda: Mesh(4, (1, 1)), ValueError, "has 1 axis and the box has 2 axes"),
        (lambda: Mesh(4, Box(1), periodic=True), ValueError, "periodic is True beside a Box"),
        (lambda: Mesh(4, Box(1), origin=0), ValueError, "origin is 0 beside a Box"),
        (lambda: Mesh(4, 1, periodic=False, offset=0.25), ValueError, "axis 0 is open: give 0"),
        (lambda: Mesh(1, 1, periodic=False), ValueError, r"shape\[0\] is 1; an open axis .* needs 2 or more"),
        (lambda: Mesh(4, 1, offset=np.nan), ValueError, "offset is nan; every number must be finite"),
        (lambda: Mesh((4, 4), (1, 1), offset=(0, 0, 0)), ValueError, r"offset has shape \(3,\)"),
        (lambda: Mesh(4, 1, ghosts=(1, 2)), ValueError, r"ghosts is \(1, 2\); this mesh has 1 axis"),
        (
            lambda: Mesh(4, 1, ghosts=((1, 2, 3),)),
            ValueError,
            r"ghosts\[0\] is \(1, 2, 3\); give an int or a pair",
        ),
        (lambda: Mesh(4, 1, ghosts=2**31 - 1), ValueError, r"with 4 nodes the axis has 4294967298; at most 2147483647"),
        (lambda: Mesh(4, 1).part(0, 2, ghosts=[(0, 2**31 - 2)]), ValueError, "the axis has 2147483648; at most"),
        (lambda: Mesh(4, 1, ghosts=-1), ValueError, r"ghosts\[0\] is -1"),
        (lambda: Mesh(4, 1, ghosts=1.5), TypeError, r"ghosts\[0\] is 1.5; an integer"),
        (lambda: Mesh(4, 1).nodes(1), ValueError, "axis is 1; -1 to 0 is allowed"),
        (lambda: Mesh(4, 1, periodic=False).wavenumbers(), ValueError, "axis 0 is open; wavenumbers need"),
        (lambda: Mesh(4, 1, periodic=False).compensation("cic"), ValueError, "axis 0 is open"),
        (
            lambda: Mesh(4, 1).compensation("cic", "both"),
            ValueError,
            "kind is 'both'; choose from 'continuous'",
        ),
        (lambda: Mesh(4, 1).compensation("cic", power=3), ValueError, "power is 3; choose from 1, 2"),
        (lambda: Mesh(4, 1, periodic=False).shifted(-0.5), ValueError, "offset 0.0: give 0, or 0.5"),
        (
            lambda: Mesh(4, 1, periodic=False, offset=0.5).shifted(0.5),
            ValueError,
            "give 0, or -0.5 for nodes on the",
        ),
        (
            lambda: Mesh(4, 1, ghosts=1).fold_ghosts(np.zeros(4)),
            ValueError,
            r"field has shape \(4,\); .* must be 6",
        ),
        (lambda: Mesh(4, 1).fold_ghosts("abcd"), TypeError, "field is a str that makes no array of numbers"),
        (lambda: Mesh(4, 1).fill_ghosts([[1], [1, 2]]), TypeError, "field is a list that makes no array"),
        (lambda: Mesh(4, 1).fill_ghosts([1, 2]), ValueError, r"field has shape \(2,\)"),
        (
            lambda: Mesh((4, 4), (1, 1)).fill_ghosts(np.zeros(4)),
            ValueError,
            "must be 4, 4; any batch axes",
        ),
    ],
)
def test_refusals(call, error, text):
    with pytest.raises(error, match=text):
        call()
