# SPDX-License-Identifier: BSD-3-Clause
"""One launch packs what a rank sends, and one unpacks or adds what it gets, however many ranks exchange."""

import collections
import threading

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.backends import cuda
from particlemesh.distributed import Domain, Remap, windows
from particlemesh.distributed.packing import _ADD, _PACK, _UNPACK, Boxed, Packing
from particlemesh.distributed.transfer import Form, Partition, Transfer
from particlemesh.distributed.windows import Halo, reach_of
from ptx import without_nvrtc
from rank_cases import numbers
from ranks import on_threads

SHAPE = 16, 12, 9
DTYPES = ["f4", "f8", "c8", "c16"]
_counts = collections.Counter()  # by thread and what is done


class Counted(np.ndarray):
    """An array that counts what is copied to it."""

    def __setitem__(self, place, value):
        _counts[threading.get_ident(), "copies"] += self.ndim > 1  # else it is a message, which the transport writes
        super().__setitem__(place, value)


def counted(function):
    return lambda *arguments: function(*arguments).view(Counted)


class Counting:
    """NumPy, as far as transfers and halos use it."""

    empty, zeros = staticmethod(counted(np.empty)), staticmethod(counted(np.zeros))


@pytest.fixture
def count(monkeypatch):
    """Return launches and copies of this rank since the last call."""
    launch = Packing._launch

    def launched(self, array, buffer, mode):
        _counts[threading.get_ident(), "launches"] += bool(self.nodes and array.size)
        launch(self, array, buffer, mode)

    monkeypatch.setattr(Packing, "_launch", launched)
    monkeypatch.setattr(windows, "module_of", lambda array: Counting)
    return lambda: tuple(_counts.pop((threading.get_ident(), what), 0) for what in ("launches", "copies"))


def given(part, whole):
    return np.ascontiguousarray(whole[(..., *(slice(*r) for r in part))])


@pytest.mark.parametrize("size", [2, 8, 64])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_transfer_is_a_launch_on_each_side(count, size, dtype):
    """And one copy of what stays; the numbers are those of slices of the whole field."""
    whole = numbers((2, *SHAPE), dtype)
    source = Partition.blocks(SHAPE, (min(size, 16), size // min(size, 16), 1))
    target = Partition.blocks(SHAPE, (1, 2, size // 2))

    def work(world):
        transfer = Transfer(source, target, world.rank)
        arrays = [given(part, whole) for part in source.parts[world.rank]]
        count()
        result = transfer.after(lambda: arrays, world, Form(Counting, (2,), np.dtype(dtype)), True)()
        done = count()
        assert result[0].tobytes() == given(target.parts[world.rank][0], whole).tobytes()
        peers = sum(n > 0 for n in transfer.send_counts)
        sides = bool(peers) + any(transfer.receive_counts)
        return done, (sides, len(transfer._kept)), peers

    done = on_threads(size, work)
    assert all(got == expected for got, expected, _ in done)
    assert max(launches + copies for (launches, copies), _, _ in done) <= 3
    assert max(peers for _, _, peers in done) >= min(size - 1, 5)


def oracle_of_fold(domain, rank, reach, held):
    """Add the terms of other windows piece by piece, in the order of ranks."""
    fields, per_rank = [], domain.per_rank
    pieces = domain.messages(rank, reach).owned
    for n, part in enumerate(domain.parts(rank)):
        mine = [p for some in pieces.values() for p in some if p.owner == rank * per_rank + n]
        main = next((p for p in mine if p.holder // per_rank == rank and p.shape == part.shape), None)
        batch = held[0].shape[:-3]
        field = np.zeros((*batch, *part.shape), held[0].dtype)
        if main is not None:
            field = held[main.holder][(..., *main.in_window())].copy()
        for piece in mine:
            if piece is not main:
                field[(..., *piece.in_part(part))] += held[piece.holder][(..., *piece.in_window())]
        fields.append(field)
    return fields


@pytest.mark.parametrize(
    "cuts",
    [dict(size=2), dict(size=8), dict(size=64), dict(size=3, per_rank=3), dict(size=6, parts="bisection")],
    ids=str,
)
@pytest.mark.parametrize("dtype", [*DTYPES, "i8"])
def test_a_halo_is_a_launch_on_each_side(count, cuts, dtype):
    """For each part: filled ghosts are the nodes, folded ones are added in the order of ranks, with the same bits."""
    mesh = pm.Mesh(SHAPE, pm.Box((1.0,) * 3, periodic=(True, False, True)))
    domain, reach = Domain(mesh, **cuts), reach_of(4, 3)
    starts, shapes = domain.windows(reach)
    whole = (1e3 * numbers((2, *SHAPE), "f8" if dtype == "i8" else dtype)).astype(dtype)
    held = [(1e3 * numbers((2, *shape), "f8" if dtype == "i8" else dtype, n)).astype(dtype)
            for n, shape in enumerate(shapes.tolist())]  # fmt: skip

    def work(world):
        rank, each = world.rank, domain.per_rank
        halo, mine = Halo(domain, world, reach), slice(rank * each, (rank + 1) * each)
        fields = [given(list(zip(p.lower, p.upper, strict=True)), whole) for p in domain.parts(rank)]
        count()
        filled = halo.fill(fields, (2,))()
        done = [count()]
        for window, start, shape in zip(filled, starts[mine], shapes[mine], strict=True):
            nodes = [np.arange(a, a + n) for a, n in zip(start, shape, strict=True)]
            expected = whole[np.ix_(range(2), *(n % k for n, k in zip(nodes, SHAPE, strict=True)))]
            expected[:, :, (nodes[1] < 0) | (nodes[1] >= SHAPE[1])] = 0  # beyond an open axis
            assert np.array_equal(window, expected)
        folded = halo.fold([window.copy() for window in held[mine]], (2,))()
        done.append(count())
        expected = oracle_of_fold(domain, rank, reach, held)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(folded, expected, strict=True))
        return done, sum(any(nodes) for nodes in shapes[mine]), len(domain.messages(rank, reach).owned) - 1

    results = on_threads(domain.size, work)
    for (fill, fold), parts, _ in results:
        assert fill == (2 * parts, parts)
        assert fold == (2 * parts, 0)
    if cuts == dict(size=64):
        assert max(peers for _, _, peers in results) >= 17


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_arrays_in_any_memory_order(dtype, ndim):
    """Reversed, strided, read-only and transposed arrays are those of their numbers."""
    shape = (5, 4, 6)[:ndim]
    boxes = [Boxed((0,) * ndim, shape, 0), Boxed((1,) * ndim, (2,) * ndim, int(np.prod(shape)))]
    packing = Packing(boxes, overlaps=True)
    total = 3 * (int(np.prod(shape)) + 2**ndim)
    dense, terms = numbers((3, *shape), dtype), numbers((total,), dtype, 7)
    expected, inner = np.empty(total, dtype), (slice(None), *(slice(1, 3),) * ndim)
    expected[: dense.size], expected[dense.size :] = dense.reshape(-1), dense[inner].reshape(-1)
    sums = dense + terms[: dense.size].reshape(dense.shape)
    sums[inner] += terms[dense.size :].reshape(sums[inner].shape)
    wide = np.zeros((3, *(2 * n for n in shape)), dtype)
    turned = np.empty(dense.shape[::-1], dtype).T
    for place in (
        dense.copy(),
        np.empty_like(dense)[:, ::-1],
        wide[(slice(None), *(slice(1, None, 2),) * ndim)],
        turned,
    ):
        array = place
        array[...] = dense
        got = np.empty(total, dtype)
        array.flags.writeable = False
        packing.pack(array, got)
        assert got.tobytes() == expected.tobytes()
        array.flags.writeable = True
        packing.add(array, terms)
        assert np.array_equal(array, sums)
    assert not wide[:, ::2].any()


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "u8"])
def test_integers_are_moved(dtype):
    whole = np.random.default_rng(4).integers(0, 2**8, SHAPE).astype(dtype)
    mesh = pm.Mesh(SHAPE, (1.0,) * 3)

    def work(world):
        source, target = Domain(mesh, 3), Domain(mesh, 3, parts="slabs")
        part, there = (domain.parts(world.rank)[0] for domain in (source, target))
        moved = Remap(source, target, world)(given(list(zip(part.lower, part.upper, strict=True)), whole))
        assert moved.dtype == whole.dtype
        assert np.array_equal(moved, given(list(zip(there.lower, there.upper, strict=True)), whole))

    on_threads(3, work)


@pytest.mark.backends("opencl")
@pytest.mark.parametrize("dtype", [*DTYPES, "i8"])
def test_the_kernel_does_what_the_cpu_does(backend, dtype):
    shape, reals = (5, 4, 6), "f8" if dtype == "i8" else dtype
    boxes = [Boxed((0, 1, 0), (5, 2, 6), 0), Boxed((4, 0, 3), (1, 4, 3), 60), Boxed((2, 1, 1), (3, 3, 5), 72)]
    packing, library = Packing(boxes, overlaps=True), backend.library
    field = (1e3 * numbers((2, 1, *shape), reals)).astype(dtype).reshape(2, *shape)
    terms = (1e3 * numbers((2 * 117,), reals, 3)).astype(dtype)
    for mode, some in ((_PACK, boxes), (_ADD, boxes), (_UNPACK, boxes[1:2])):
        of = packing if mode != _UNPACK else Packing(some)
        expected, here = (field.copy(), terms.copy()), (library.upload(field), library.upload(terms))
        of._launch(*expected, mode)
        of._on_device(*here, mode)
        for array, host in zip(here, expected, strict=True):
            assert library.download(array).tobytes() == host.tobytes()


@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
@pytest.mark.parametrize(("double", "integers", "words"), [(0, 0, 1), (0, 0, 2), (1, 0, 2), (1, 1, 1)])
def test_the_kernel_compiles_for_cuda(double, integers, words):
    defines = {"REAL_IS_DOUBLE": double, "INTEGERS": integers, "WORDS": words}
    assert b"pack_boxes" in cuda.compile_only("distributed/packing.c", defines, 90)
