# SPDX-License-Identifier: BSD-3-Clause
"""Streams, queues and devices that get each other's data too early, or their memory: work is late on purpose."""

import re

import numpy as np
import pytest

import oracle
import particlemesh as pm
from late_work import FIELDS, MESH, Q, X, here, plan_on, wait
from particlemesh import backends

pytestmark = pytest.mark.backends("cuda", "opencl")


def spread(backend, plan, values, stream):
    with backend.on(stream):
        return plan.spread(values)


def test_two_streams_one_wait_and_plans_freed_in_flight(backend):
    streams = backend.stream(), backend.stream()
    fields = []
    for k, stream in enumerate(streams):
        plan = plan_on(backend, stream)
        fields.append(spread(backend, plan, backend.late(Q[k], stream), stream))
        plan.close()
        del plan
    wait(backend, *streams)
    for k in (0, 1):
        np.testing.assert_allclose(backend.host(fields[k]), FIELDS[k], atol=1e-12)


def test_memory_freed_in_flight_is_not_given_to_others(backend):
    stream, other = backend.stream(), backend.stream()
    plan = plan_on(backend, stream)
    late = backend.late(Q, stream)
    # A layout that has to be copied, so that the plan makes a temporary and forgets it at once.
    field = spread(backend, plan, late[:, None, :], stream)
    plan.close()
    del plan, late
    for size in (400, 720, 1440, 200 * 3) * 8:
        with backend.on(other):
            here(backend, np.full(size, 1e30), other)
    wait(backend, stream, other)
    np.testing.assert_allclose(backend.host(field)[:, 0], FIELDS, atol=1e-12)


def test_values_are_read_after_their_producer_has_finished(backend):
    stream, producer = backend.stream(), backend.stream()
    plan = plan_on(backend, stream)
    if backend.name == "opencl":  # the array knows its writers
        late = backend.late(Q[0], producer)
        field = plan.spread(late.with_queue(stream))
    else:  # the producer's stream is the current one
        late = backend.late(Q[0], producer)
        field = spread(backend, plan, late, producer)
    wait(backend, stream, producer)
    np.testing.assert_allclose(backend.host(field), FIELDS[0], atol=1e-12)


def test_positions_are_read_after_their_producer_has_finished(backend):
    stream, producer = backend.stream(), backend.stream()
    plan = pm.Plan(MESH, "bspline3")
    late = backend.late(X, producer)
    with backend.on(producer):
        plan.set_positions(late.with_queue(stream) if backend.name == "opencl" else late)
    field = spread(backend, plan, here(backend, Q[1], stream), stream)
    wait(backend, stream, producer)
    np.testing.assert_allclose(backend.host(field), FIELDS[1], atol=1e-12)


@pytest.mark.backends("opencl")
def test_results_tell_other_queues_when_they_are_ready(backend):
    stream, other = backend.stream(), backend.stream()
    plan = plan_on(backend, stream)
    field = plan.spread(backend.late(Q[0], stream))
    values = plan.interpolate(field)
    for result, expected in ((field, FIELDS[0]), (values, oracle.interpolate(MESH, pm.bspline(3), X, FIELDS[0]))):
        np.testing.assert_allclose(result.with_queue(other).get(), expected, atol=1e-12)


@pytest.mark.direction("spread")
def test_one_plan_on_two_streams_in_turn(backend, law):
    streams = backend.stream(), backend.stream()
    plan = plan_on(backend, streams[0], law.method.name)
    early = here(backend, Q[1], streams[1])
    spread(backend, plan, early, streams[1])  # compiles
    wait(backend, streams[1])
    late = spread(backend, plan, backend.late(Q[0], streams[0]), streams[0])
    soon = spread(backend, plan, early, streams[1])  # scratch of the plan is in use on the other stream
    wait(backend, *streams)
    np.testing.assert_allclose(backend.host(late), FIELDS[0], atol=1e-12)
    np.testing.assert_allclose(backend.host(soon), FIELDS[1], atol=1e-12)


def test_new_positions_while_the_old_are_in_use(backend):
    stream, other = backend.stream(), backend.stream()
    plan = plan_on(backend, stream)
    field = spread(backend, plan, backend.late(Q[0], stream), stream)
    for shift in (0.25, 0.5, 0.75):  # more than a plan has spare buffers
        with backend.on(other):
            plan.set_positions(here(backend, X + shift, other), check=False)
    wait(backend, stream, other)
    np.testing.assert_allclose(backend.host(field), FIELDS[0], atol=1e-12)


def test_room_is_reserved_while_positions_are_on_their_way(backend):
    stream = backend.stream()
    plan = pm.Plan(MESH, "bspline3", dtype="float64", backend=backend.name)
    q = here(backend, Q[0], stream)
    with backend.on(stream):
        plan.set_positions(here(backend, X + 0.5, stream))
        plan.set_positions(backend.late(X, stream), check=False)
    plan.reserve(1000)  # moves them, on another stream
    field = spread(backend, plan, q, stream)
    wait(backend, stream)
    backend.wait()
    np.testing.assert_allclose(backend.host(field), FIELDS[0], atol=1e-12)


@pytest.mark.backends("cuda")
def test_arrays_of_a_device_that_is_not_the_current_one(backend):
    cupy = backend.cupy
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("one CUDA device: nothing can be on another")
    with cupy.cuda.Device(1):
        x, q = cupy.asarray(X), cupy.asarray(Q[0])
        cupy.cuda.get_current_stream().synchronize()
    assert cupy.cuda.runtime.getDevice() == 0
    with pm.Plan(MESH, "bspline3") as plan:
        plan.set_positions(x)
        field = plan.spread(q)
        values = plan.interpolate(field)
        assert field.device.id == values.device.id == 1
    assert cupy.cuda.runtime.getDevice() == 0
    with cupy.cuda.Device(1):
        cupy.cuda.get_current_stream().synchronize()
    np.testing.assert_allclose(cupy.asnumpy(field), FIELDS[0], atol=1e-12)
    with pm.Plan(MESH, "bspline3") as plan:
        plan.set_positions(x)
        with pytest.raises(ValueError, match="copy it there, or use one plan or grid per device"):
            plan.spread(cupy.asarray(Q[0]))


def test_arrays_of_another_kind_or_context_are_refused(backend):
    with pm.Plan(MESH, "cic") as plan:
        plan.set_positions(backend.array(X))
        text = f"values is a NumPy array and the work is on '{backend.name}'"
        with pytest.raises(TypeError, match=text):
            plan.spread(Q[0])
    with pm.Plan(MESH, "cic", backend="cpu") as plan:
        with pytest.raises(TypeError, match="positions is a .* array and the work is on 'cpu'"):
            plan.set_positions(backend.array(X))
        plan.set_positions(X)
        with pytest.raises(TypeError, match="out is a .* array and the work is on 'cpu'"):
            plan.spread(Q[0], out=backend.array(np.zeros(MESH.shape)))


@pytest.mark.backends("opencl")
def test_two_contexts(backend):
    import pyopencl as cl
    import pyopencl.array

    queue = cl.CommandQueue(cl.Context([backend.queue.device]))
    foreign = pyopencl.array.to_device(queue, Q[0])
    with pm.Plan(MESH, "cic") as plan:
        plan.set_positions(backend.array(X))
        device = backends.current("opencl").device
        named = re.escape(device)
        with pytest.raises(ValueError, match=f"values is on {named} .*, the work on {named} ") as error:
            plan.spread(foreign)
        both = [part.split(")")[0] for part in str(error.value).split(device + " (")[1:]]
        assert len(both) == 2
        assert both[0] != both[1]  # the two contexts are distinguished


@pytest.mark.backends("opencl")
def test_a_queue_that_has_the_address_of_a_freed_one(backend):
    import pyopencl as cl
    import pyopencl.array

    foreign = cl.Context([backend.queue.device])
    with pm.Plan(MESH, "cic") as plan:
        plan.set_positions(backend.array(X))
        for _ in range(20):
            mine = backend.stream()
            address = mine.int_ptr
            plan.spread(pyopencl.array.to_device(mine, Q[0]))
            plan.spread(backend.array(Q[0]))
            backend.wait()
            del mine
            queues = [cl.CommandQueue(foreign) for _ in range(5)]
            same = [queue for queue in queues if queue.int_ptr == address] or queues[:1]
            with pytest.raises(ValueError, match="copy it there, or use one plan or grid per device"):
                plan.spread(pyopencl.array.to_device(same[0], Q[0]))
