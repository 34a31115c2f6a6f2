# SPDX-License-Identifier: BSD-3-Clause
"""Transforms over ranks are SciPy's, with the same bits for any number of ranks, parts and cuts."""

import numpy as np
import pytest
import scipy.fft

import particlemesh as pm
from particlemesh.distributed import FFT, Domain, RankError, Remap, World
from particlemesh.distributed.transfer import (
    PENCILS,
    SLABS,
    Form,
    Partition,
    Transfer,
    intersection,
    kind_for,
    ranges,
    shape_of,
    stages,
)
from ranks import on_threads

SHAPES = [(13,), (7, 12), (1, 5), (13, 11, 9), (8, 5, 7), (3, 17, 2), (4, 1, 6)]


def mesh_of(shape, **more):
    return pm.Mesh(shape, tuple(1.0 + axis for axis in range(len(shape))), **more)


def whole_field(shape, dtype, real):
    rng = np.random.default_rng(5)
    values = rng.standard_normal((2, *shape)) + (0 if real else 1j * rng.standard_normal((2, *shape)))
    return values.astype(dtype if real else np.result_type(dtype, np.complex64))


def local(whole, parts):
    """Return a rank's arrays of a whole field."""
    arrays = [whole[(..., *(slice(*r) for r in ranges(part)))].copy() for part in parts]
    return arrays[0] if len(parts) == 1 else tuple(arrays)


def joined(pieces, whole):
    """Return a whole field from the arrays and ranges of all ranks; each node is written once."""
    result = np.full(whole, np.nan, pieces[0][0].dtype)
    for array, part in pieces:
        place = (..., *(slice(*r) for r in part))
        assert np.isnan(result[place]).all()
        result[place] = array
    assert not np.isnan(result).any()
    return result


def transformed(size, shape, dtype, real, by="auto", **cuts):
    """Return the modes and the field after both directions, put together from all ranks."""
    mesh, field = mesh_of(shape), whole_field(shape, dtype, real)
    domain = Domain(mesh, size, **cuts)

    def work(world):
        fft = FFT(domain, world, real, parts=by)
        given = local(field, domain.parts(world.rank))
        before = [np.copy(array) for array in (given if isinstance(given, tuple) else [given])]
        modes = fft.forward(given)
        kept = modes.copy()
        back = fft.inverse(modes)
        assert modes.tobytes() == kept.tobytes(), "inverse changed its input"
        given, back, sums = (
            x if isinstance(x, tuple) else [x] for x in (given, back, fft.inverse(modes, norm="forward"))
        )
        factor = back[0].dtype.type(1 / np.prod(shape))
        assert all((a * factor == b).all() for a, b in zip(sums, back, strict=True))
        assert all(a.tobytes() == b.tobytes() for a, b in zip(before, given, strict=True)), "forward changed its input"
        mine = [(array, ranges(part)) for array, part in zip(back, domain.parts(world.rank), strict=True)]
        return (modes, fft.part), mine, fft.modes

    results = on_threads(size, work)
    modes = joined([block for block, _, _ in results], (2, *results[0][2]))
    return modes, joined([pair for _, pairs, _ in results for pair in pairs], (2, *shape))


def reference(shape, dtype, real):
    """Return SciPy's transform axis by axis, from the last one to the first."""
    modes = whole_field(shape, dtype, real)
    for axis in range(-1, -len(shape) - 1, -1):
        modes = (scipy.fft.rfft if real and axis == -1 else scipy.fft.fft)(modes, axis=axis)
    return modes


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("dtype", "real"), [("f4", True), ("f8", True), ("f4", False), ("f8", False)])
def test_modes_are_scipys_and_their_bits_do_not_depend_on_ranks(shape, dtype, real):
    expected, field = reference(shape, dtype, real), whole_field(shape, dtype, real)
    library = (scipy.fft.rfftn if real else scipy.fft.fftn)(field, axes=range(-len(shape), 0))
    tolerance = 20 * np.finfo(dtype).eps
    assert abs(expected - library).max() <= tolerance * abs(library).max()
    _, once = transformed(1, shape, dtype, real)
    assert abs(once - field).max() <= tolerance * abs(field).max()
    for size, by in ((1, "auto"), (2, "slabs"), (3, "pencils"), (4, "auto"), (7, "slabs"), (7, "pencils")):
        modes, back = transformed(size, shape, dtype, real, by)
        assert modes.dtype == expected.dtype and back.dtype == field.dtype
        assert modes.tobytes() == expected.tobytes(), (size, by)
        assert back.tobytes() == once.tobytes(), (size, by)


@pytest.mark.parametrize(
    "cuts",
    [dict(parts="slabs"), dict(parts="pencils"), dict(parts="bisection", per_rank=2), dict(per_rank=3),
     dict(parts=(1, 1, 4)), dict(parts=(4, 1, 1)), dict(parts=(2, 2, 1))],
    ids=str,
)  # fmt: skip
def test_any_domain_has_the_same_modes(cuts):
    modes, back = transformed(4, (9, 7, 10), "f4", True, **cuts)
    assert modes.tobytes() == reference((9, 7, 10), "f4", True).tobytes()
    assert back.tobytes() == transformed(1, (9, 7, 10), "f4", True)[1].tobytes()


def test_a_balanced_domain_of_slabs_is_transformed_where_it_is():
    domain = Domain(mesh_of((12, 4, 4)), 2, parts="slabs")
    uneven = domain.balanced(np.arange(12.0)[::-1].reshape(12, 1, 1) ** 2)
    assert uneven.parts(0)[0].shape == (2, 4, 4)
    field = whole_field((12, 4, 4), "f8", True)

    def work(world):
        fft = FFT(uneven, world)
        assert "from the domain" not in fft.explain()
        return fft.forward(local(field, uneven.parts(world.rank))), fft.part

    modes = joined(on_threads(2, work), (2, 12, 4, 3))
    assert modes.tobytes() == reference((12, 4, 4), "f8", True).tobytes()


@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize("box", [(2.0, 3.0, 5.0), [[2, 0, 0], [0.5, 3, 0], [0.3, -0.4, 4]]], ids=["right", "triclinic"])
def test_wavenumbers_are_the_local_part_of_the_meshs(box, real):
    mesh = pm.Mesh((6, 5, 4), box)
    expected = np.broadcast_arrays(*mesh.wavenumbers(real=real))

    def work(world):
        fft = FFT(Domain(mesh, world.size), world, real)
        k = fft.wavenumbers()
        assert np.broadcast_shapes(*(c.shape for c in k), fft.spectrum_shape) == fft.spectrum_shape
        return [(np.broadcast_to(component, fft.spectrum_shape), fft.part) for component in k]

    for axis, pieces in enumerate(zip(*on_threads(3, work), strict=True)):
        assert joined(list(pieces), expected[axis].shape).tobytes() == expected[axis].tobytes()


def test_a_derivative_by_wavenumbers():
    """exp(i k x) is an eigenfunction: a whole use of forward, wavenumbers and inverse."""
    mesh = pm.Mesh((6, 9, 8), (1.0, 2.0, 3.0))
    x, y, z = np.meshgrid(*map(mesh.nodes, range(3)), indexing="ij")
    wave = 2 * np.pi * np.array([2 / 1.0, -3 / 2.0, 1 / 3.0])
    field, slope = np.sin(wave[0] * x + wave[1] * y + wave[2] * z), np.cos(wave[0] * x + wave[1] * y + wave[2] * z)
    domain = Domain(mesh, 4)

    def work(world):
        fft = FFT(domain, world)
        modes, k = fft.forward(local(field, domain.parts(world.rank))), fft.wavenumbers()
        return [(fft.inverse(1j * component * modes), ranges(domain.parts(world.rank)[0])) for component in k]

    for axis, pieces in enumerate(zip(*on_threads(4, work), strict=True)):
        np.testing.assert_allclose(joined(list(pieces), mesh.shape), wave[axis] * slope, atol=1e-11)


def test_remap_goes_anywhere_and_back():
    mesh = mesh_of((7, 6, 5))
    source, target = Domain(mesh, 3), Domain(mesh, 3, parts="bisection", per_rank=2)
    field = whole_field((7, 6, 5), "f4", False)

    def work(world):
        given = local(field, source.parts(world.rank))
        moved = Remap(source, target, world)(given)
        for array, part in zip(moved, target.parts(world.rank), strict=True):
            assert array.tobytes() == local(field, [part]).tobytes()
        back = Remap(target, source, world)(moved)
        assert back.tobytes() == given.tobytes()
        parts = [domain.parts() for domain in (source, Domain(mesh, 3, parts="slabs"))]  # one part for each rank
        assert Remap(*parts, world)(given).tobytes() == local(field, [parts[1][world.rank]]).tobytes()
        return True

    assert all(on_threads(3, work))


def test_kinds_of_cuts():
    cube, modes = (64, 64, 64), (64, 64, 33)
    assert kind_for(Partition.blocks(cube, (4, 1, 1)), modes) == SLABS
    assert kind_for(Partition.blocks(cube, (65, 1, 1)), modes) == PENCILS  # not every rank gets a slab
    assert kind_for(Partition.blocks((64, 4), (9, 1)), (64, 3)) == SLABS
    large, modes = (2048, 2048, 1024), (2048, 2048, 513)
    for pieces, kind in (((4, 2, 2), SLABS), ((8, 8, 1), PENCILS), ((8, 8, 4), SLABS), ((32, 32, 1), PENCILS)):
        assert kind_for(Partition.blocks(large, pieces), modes) == kind
    three = stages(Partition.blocks((8, 8, 8), (2, 2, 2)), (8, 8, 5), PENCILS)
    assert [stage.axes for stage in three] == [(2,), (1,), (0,)]
    assert all(shape_of(part[0])[stage.axes[0]] for stage in three for part in stage.layout.parts)


@pytest.mark.parametrize("size", [1, 2, 5, 6])
def test_what_one_rank_sends_another_expects(size):
    """Messages match from both sides, and each node leaves and arrives once, without any communication."""
    shape = (5, 4, 7)
    layouts = [Partition.blocks(shape, (size, 1, 1)), Partition.blocks(shape, (1, 1, size))]
    for source, target in [layouts, layouts[::-1]]:
        moves = [Transfer(source, target, rank) for rank in range(size)]
        for a in range(0 if moves[0].trivial else size):
            for b in range(size):
                assert moves[a].send_counts[b] == moves[b].receive_counts[a]
            sent = sum(moves[a].send_counts) + sum(
                np.prod(shape_of(common))
                for part in source.parts[a] for other in target.parts[a] if (common := intersection(part, other))
            )  # fmt: skip
            assert sent == sum(np.prod(shape_of(part)) for part in source.parts[a])


def test_a_transfer_packs_what_the_other_unpacks():
    rows, columns = Partition.blocks((4, 6), (2, 1)), Partition.blocks((4, 6), (1, 2))
    whole = np.arange(24.0).reshape(1, 4, 6)
    form = Form(np, (1,), whole.dtype)
    arrays = [[whole[:, :2]], [whole[:, 2:]]]
    moves = [Transfer(rows, columns, rank) for rank in range(2)]
    for (result,) in on_threads(2, lambda w: moves[w.rank].after(lambda: arrays[w.rank], w, form, True)()):
        rank = int(result[0, 0, 0]) // 3
        assert (result == whole[:, :, 3 * rank : 3 * rank + 3]).all()
    with pytest.raises(ValueError, match="same nodes and ranks"):
        Transfer(rows, Partition.blocks((4, 6), (3, 1)), 0)


def test_a_wrong_field_on_one_rank_is_an_error_on_all():
    domain = Domain(mesh_of((6, 4)), 3)

    def work(world):
        fft = FFT(domain, world)
        right = np.ones(domain.parts(world.rank)[0].shape)
        wrong = [right[:1], right.astype(complex), right.astype(np.longdouble), "field"]
        messages = ["shape", "complex", "longdouble|float128", "field"]
        for given, message in zip(wrong, messages, strict=True):
            expected = (ValueError, TypeError) if world.rank == 1 else RankError
            with pytest.raises(expected, match=message):
                fft.forward(given if world.rank == 1 else right)
        with pytest.raises(RankError, match="float32"):
            fft.forward(right.astype(np.float32) if world.rank == 2 else right)
        return fft.forward(right).sum()

    assert on_threads(3, work)[0] == pytest.approx(24)


@pytest.mark.parametrize(
    ("shape", "size"), [((1,), 3), ((2,), 3), ((5, 1), 8), ((1, 1, 2), 5), ((3, 1, 1), 4)], ids=str
)
@pytest.mark.parametrize("real", [True, False])
def test_ranks_without_nodes_have_empty_parts(shape, size, real):
    modes, back = transformed(size, shape, "f8", real, parts="bisection")
    assert modes.tobytes() == reference(shape, "f8", real).tobytes()
    assert abs(back - whole_field(shape, "f8", real)).max() < 1e-14


@pytest.mark.parametrize("axes", [(-2, -1), (-3, -2, -1), (-3, -2)], ids=str)
def test_modes_are_left_out_of_two_axes_at_once(axes):
    """A GPU transforms several axes at once, and so leaves out modes of two together."""
    numbers = [[1, 0, -3], [2, -1], [0, 3, -2, 1]]
    fft = FFT(Domain(mesh_of((7, 5, 8)), 1), World(), False, numbers=numbers)
    modes = whole_field((7, 5, 8), "f8", False)
    index = np.ix_(
        *(np.array(numbers[axis]) if axis in axes else np.arange(modes.shape[axis]) for axis in (-3, -2, -1))
    )
    kept, back = modes[:, *index], np.zeros_like(modes)
    assert (fft._in_band(np, modes, axes, True) == kept).all()
    back[:, *index] = kept
    assert (fft._in_band(np, kept, axes, False) == back).all()


def test_errors_before_any_message():
    world, mesh = World(), mesh_of((4, 4))
    with pytest.raises(ValueError, match="cut for 2 ranks and the world has 1"):
        FFT(Domain(mesh, 2), world)
    with pytest.raises(ValueError, match="there are 2 parts; give one for each of 1 ranks"):
        Remap(Domain(mesh, 2).parts(), Domain(mesh, 1), world)
    with pytest.raises(ValueError, match="give one mesh"):
        Remap(Domain(mesh, 1), Domain(mesh_of((4, 5)), 1), world)
    with pytest.raises(ValueError, match="norm is 'ortho'"):
        FFT(Domain(mesh, 1), world).inverse(np.zeros((4, 3), complex), norm="ortho")
    with pytest.raises(ValueError, match="parts"):
        FFT(Domain(mesh, 1), world, parts="cubes")
    with pytest.raises(ValueError, match="periodic"):
        FFT(Domain(pm.Mesh(4, 1.0, periodic=False), 1), world).wavenumbers()


def test_without_a_check_a_rank_raises_alone():
    fft = FFT(Domain(mesh_of((4, 4)), 1), World(), check=False)
    with pytest.raises(ValueError, match="shape"):
        fft.forward(np.ones((3, 4)))
    assert fft.forward(np.ones((4, 4)))[0, 0] == 16


def test_cores_are_shared_by_the_ranks_of_a_host():
    alone = FFT(Domain(mesh_of((4, 4)), 1), World()).threads
    assert on_threads(2, lambda world: FFT(Domain(mesh_of((4, 4)), 2), world).threads) == [max(1, alone // 2)] * 2


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_rank_that_fails_between_transposes_stops_all(stage):
    """Local work before each message of pencils from a domain of blocks: 'no memory' on one rank is an error on all."""
    domain = Domain(mesh_of((6, 4, 5)), 4, parts=(2, 1, 2))

    def work(world):
        fft = FFT(domain, world, parts="pencils")
        moves = [fft._gather, *fft._there]
        assert not any(move.trivial for move in moves)
        field, messages = np.ones(domain.parts(world.rank)[0].shape), moves[stage].messages

        def fail(arrays, form):
            raise MemoryError("no room for messages")

        if world.rank == 2:
            moves[stage].messages = fail
        with pytest.raises(MemoryError if world.rank == 2 else RankError, match="no room"):
            fft.forward(field)
        moves[stage].messages = messages
        return fft.inverse(fft.forward(field))

    for back in on_threads(4, work):
        np.testing.assert_allclose(back, 1, rtol=1e-12)


@pytest.mark.parametrize(("shape", "size", "by"), [((13,), 2, "auto"), ((7, 12), 3, "auto"), ((8, 5, 7), 4, "pencils")])
@pytest.mark.parametrize("real", [True, False])
def test_some_modes_are_those_of_all(shape, size, by, real):
    """In the order that is asked for; to the inverse, others are zero."""
    field, domain = whole_field(shape, np.float64, real), Domain(mesh_of(shape), size)
    numbers = [np.arange(-(n // 3), n // 3 + 1)[::-1] for n in shape]
    if real:
        numbers[-1] = np.arange(shape[-1] // 3 + 1)
    every = (scipy.fft.rfftn if real else scipy.fft.fftn)(field, axes=range(1, len(shape) + 1))
    index = np.ix_(range(2), *(k % n for k, n in zip(numbers, shape, strict=True)))
    rest = np.zeros_like(every)
    rest[index] = every[index]
    back = scipy.fft.irfftn(rest, shape) if real else scipy.fft.ifftn(rest, axes=range(1, len(shape) + 1))

    def work(world):
        fft = FFT(domain, world, real, parts=by, numbers=numbers)
        parts = domain.parts(world.rank)
        modes = fft.forward(local(field, parts))
        return fft.gather(modes), fft.inverse(modes), parts[0], [k.ravel() for k in fft.wavenumbers()], fft.part

    for modes, returned, part, waves, held in on_threads(size, work):
        assert abs(modes - every[index]).max() < 1e-12 * abs(every).max()
        assert abs(returned - local(back, [part])).max(initial=0) < 1e-12
        for axis, (wave, (start, stop)) in enumerate(zip(waves, held, strict=True)):
            np.testing.assert_allclose(wave, 2 * np.pi / (1 + axis) * numbers[axis][start:stop])


@pytest.mark.parametrize(("numbers", "words"), [
    ([[1], [2], [3]], "for each axis"), ([[1, 1], [0]], "twice"), ([[1.5], [0]], "integers"), ([[0], [9]], "8 nodes"),
    ([[0], [-1]], "8 nodes"),
])  # fmt: skip
def test_modes_that_are_none_are_refused(numbers, words):
    with pytest.raises(ValueError, match=words):
        FFT(Domain(mesh_of((6, 8)), 1), World(), numbers=numbers)
