# SPDX-License-Identifier: BSD-3-Clause
"""What is given as out= is written, or refused: never returned as it was, never read and written at once."""

import numpy as np
import pytest

import oracle
import particlemesh as pm
from kinds import FIELD, MESH, SLOPES, VALUES, WINDOW, Q, X
from particlemesh import backends
from particlemesh.arrays import operands

Z = Q + 1j * Q[::-1]
LAZY = {
    "conjugate": lambda a: a.conj(),
    "negative": lambda a: a.conj().imag,
    "conjugate of a part": lambda a: a[..., ::2].conj(),
}


@pytest.mark.parametrize("lazy", LAZY)
@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_a_lazy_view_of_torch_is_no_output(place, lazy):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if place == "cuda" and not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA device")

    def put(host):
        return torch.tensor(host).to(place)

    nodes = (*MESH.shape[:2], MESH.shape[2] * (2 if "part" in lazy else 1))
    store = put(np.full(nodes, 3.0 + 4.0j))
    out = LAZY[lazy](store)
    assert out.is_conj() or out.is_neg()
    with pm.Plan(MESH, WINDOW) as plan:
        plan.set_positions(put(X))
        values = put(Z if out.is_complex() else Q)
        with pytest.raises(ValueError, match="out is a lazy conjugate or negative view of a tensor, whose memory"):
            plan.spread(values, out=out)
        for both in ((out, out), (put(VALUES), out)):
            with pytest.raises((ValueError, TypeError), match="out"):
                plan.value_and_gradient(put(FIELD), out=both)
        assert (store == 3.0 + 4.0j).all()  # as it was
        resolved = out.resolve_conj().resolve_neg()
        assert plan.spread(values, out=resolved) is resolved
        expected = oracle.spread(MESH, WINDOW, X, values.cpu().numpy())
        np.testing.assert_allclose(resolved.cpu().numpy(), expected, atol=1e-13)


def test_a_lazy_view_of_torch_is_read_as_it_looks():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, z = torch.tensor(X), torch.tensor(Z)
    for values in (z.conj(), z.conj().imag, z.imag):
        field = pm.spread(x, values, MESH, window=WINDOW)
        expected = oracle.spread(MESH, WINDOW, X, values.resolve_conj().resolve_neg().numpy())
        np.testing.assert_allclose(field.numpy(), expected, atol=1e-13)


def device():
    reason = backends.module("opencl").available()
    if reason is not None:
        pytest.skip(f"opencl does not work here: {reason}")
    return backends.current("opencl").queue


def region(queue, buffer, first, shape, dtype=np.float64):
    """An array in a sub-buffer of its own, which starts ``first`` numbers into its parent."""
    from pyopencl.array import Array

    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return Array(queue, shape, dtype, data=buffer.get_sub_region(first * np.dtype(dtype).itemsize, size))


STEP = 4096 // 8  # numbers between two sub-buffers: devices want them so far apart


@pytest.mark.opencl
@pytest.mark.parametrize("way", ["two sub-buffers", "buffer and sub-buffer", "sub-buffer and buffer"])
def test_sub_buffers_that_overlap_are_refused(way):
    import pyopencl as cl
    from pyopencl.array import Array

    queue = device()
    parent = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 8 * 8 * STEP)
    mesh = pm.Mesh((2 * STEP,), (1.0,))
    count = 2 * STEP

    def pair(apart):
        """Values and a field: as many numbers, ``apart`` of them from each other's start."""
        whole = Array(queue, (count,), np.float64, data=parent)
        if way == "two sub-buffers":
            return region(queue, parent, 0, (count,)), region(queue, parent, apart, (count,))
        if way == "buffer and sub-buffer":
            return whole, region(queue, parent, apart, (count,))
        return region(queue, parent, apart, (count,)), whole

    x = np.random.default_rng(3).random(count)
    q = np.random.default_rng(4).normal(size=count)
    with pm.Plan(mesh, "cic", backend="opencl") as plan:
        plan.set_positions(x)
        for apart in (0, STEP):
            values, field = pair(apart)
            assert operands.overlap(values, field) and operands.overlap(field, values)
            with pytest.raises(ValueError, match="out shares memory with the input; give a separate array"):
                plan.spread(values, out=field)
            with pytest.raises(ValueError, match="out shares memory with the input"):
                plan.interpolate(field, out=values)
            with pytest.raises(ValueError, match="two arrays of out share memory"):
                plan.value_and_gradient(np.zeros(mesh.shape), out=(values, field.reshape(count, 1)))
        values, field = pair(2 * STEP)  # side by side
        assert not operands.overlap(values, field)
        values.set(q)
        for _ in range(4):  # played from a tape in the end
            assert plan.spread(values, out=field) is field
        np.testing.assert_allclose(field.get(), oracle.spread(mesh, pm.bspline(2), x[:, None], q), atol=1e-11)


@pytest.mark.opencl
def test_elements_of_sub_buffers_are_compared_one_by_one():
    import pyopencl as cl

    queue = device()
    parent = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 8 * 8 * STEP)
    low, high = region(queue, parent, 0, (2 * STEP,)), region(queue, parent, STEP, (2 * STEP,))
    assert operands.overlap(low[::2], high[::2])
    assert not operands.overlap(low[::2], high[1::2])  # the others
    assert not operands.overlap(low[:STEP], high)
    assert operands.overlap(low[: STEP + 1], high)
    assert operands.overlap(low[STEP:], high[:1])
    assert not operands.overlap(low[:0], low)
    other = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 8 * 8 * STEP)
    assert not operands.overlap(low, region(queue, other, 0, (2 * STEP,)))


@pytest.mark.opencl
def test_shared_virtual_memory_is_refused_as_output():
    import pyopencl as cl
    from pyopencl.array import InconsistentOpenCLQueueWarning, empty, to_device
    from pyopencl.tools import SVMAllocator

    queue = device()
    if not queue.device.svm_capabilities:
        pytest.skip("this device has no shared virtual memory")
    # Without a queue memory is freed at once. By commands of a queue PoCL 3.0 frees it twice, and the process ends.
    shared = SVMAllocator(queue.context, flags=cl.svm_mem_flags.READ_WRITE)
    with pytest.warns(InconsistentOpenCLQueueWarning):
        values, field = (empty(queue, shape, np.float64, allocator=shared) for shape in (Q.shape, MESH.shape))
    x, q, slopes = (to_device(queue, host) for host in (X, Q, SLOPES))
    with pm.Plan(MESH, WINDOW) as plan:
        plan.set_positions(x)
        with pytest.raises(TypeError, match="out lies in shared virtual memory, which is read-only here: give an"):
            plan.spread(q, out=field)
        with pytest.raises(TypeError, match="out lies in shared virtual memory"):
            plan.value_and_gradient(to_device(queue, FIELD), out=(values, slopes))


@pytest.mark.opencl
@pytest.mark.parametrize("named", [None, "opencl"])
@pytest.mark.parametrize("accumulate", [False, True])
def test_an_output_whose_elements_share_memory_is_refused(named, accumulate):
    if named is not None:
        device()
    store, strided = np.zeros(4000), np.lib.stride_tricks.as_strided
    steps = {
        "broadcast": (0, 280, 56, 8), "all in one": (0, 0, 0, 0), "planes within planes": (8, 280, 56, 8),
        "batch without a common stride": (24, 8, 280, 56, 8),
    }  # fmt: skip
    with pm.Plan(MESH, WINDOW, backend=named) as plan:
        plan.set_positions(X)
        for name, strides in steps.items():
            batch = (2, 3)[: len(strides) - 3]
            out = strided(store, (*batch, *MESH.shape), strides)
            values = np.broadcast_to(Q, (*batch, 40))
            with pytest.raises(ValueError, match="out has elements that share memory"):
                plan.spread(values, out=out, accumulate=accumulate)
            assert not store.any(), name
        apart = strided(store, (2, 3, *MESH.shape), (3 * 8 * 210, 8, 24 * 35, 24 * 7, 24))  # in every other order
        np.testing.assert_allclose(plan.spread(np.broadcast_to(Q, (2, 3, 40)), out=apart)[1, 2], FIELD, atol=1e-13)


def test_arrays_of_the_host_are_compared_element_by_element():
    store = np.zeros((50, 4))
    assert operands.overlap(store[:30], store[29:])
    assert operands.overlap(store[::-1], store[:1])
    assert not operands.overlap(store[:, 0], store[:, 1:])
    assert not operands.overlap(store[:30], store[30:])
    assert not operands.overlap(store[:0], store)
    with pm.Plan(MESH, WINDOW) as plan:
        plan.set_positions(X)
        both = np.zeros(VALUES.shape), np.zeros(SLOPES.shape)
        plan.value_and_gradient(FIELD, out=both)
        np.testing.assert_allclose(both[0], VALUES, atol=1e-13)


@pytest.mark.parametrize("batch", [(0,), (2, 0)])
def test_an_empty_output_has_no_elements_to_share(backend, batch):
    # NumPy gives some empty arrays strides of zero.
    out = np.lib.stride_tricks.as_strided(np.empty(0), (*batch, *MESH.shape), (0,) * (len(batch) + 3))
    if backend.name != "cpu":
        out = backend.array(np.empty((*batch, *MESH.shape)))
    with pm.Plan(MESH, WINDOW) as plan:
        plan.set_positions(backend.array(X))
        assert plan.spread(backend.array(np.empty((*batch, 40))), out=out) is out
