# SPDX-License-Identifier: BSD-3-Clause
"""Repeated calls of solvers, transforms and PME are replayed as one: the same results as on the CPU, for any arrays."""

import functools
import gc
import re
import weakref

import numpy as np
import pytest

import particlemesh as pm
from late_work import here as on_stream
from late_work import wait
from particlemesh.apps import nufft
from particlemesh.apps.pme import PME, Dispersion, PMEBatch
from particlemesh.apps.pme.core import Core
from particlemesh.apps.pme.dipoles import Dipoles
from particlemesh.apps.pme.multipoles import Multipoles
from particlemesh.backends import cuda, tapes
from particlemesh.fourier import Solver, VectorSolver
from particlemesh.grid.queries.pair_lists import PairLists
from particlemesh.kernels import Replays
from tracing import functions_entered

pytestmark = pytest.mark.backends("cuda", "opencl")
N, MESH, TURNS = 120, pm.Mesh((8, 9, 10), (1.0, 1.0, 1.0)), 7
RNG = np.random.default_rng(3)
X = RNG.random((N, 3))


def numbers(*shape, complex_numbers=False):
    values = RNG.normal(size=shape)
    return values + 1j * RNG.normal(size=shape) if complex_numbers else values


def spanning():
    """Numbers from 0 to 1, both included: meshes of type 3 follow the ends of points and frequencies."""
    return np.append(RNG.random(N - 2), [0.0, 1.0])


def solver(**options):
    return Solver(MESH, "bspline4", **options)


def moved(made, x, q):
    return made.set_positions(x).potential(q)


def transformed(made, x, y, values):
    made.setpts(x, y)
    return made.execute(values)


def scattered(made, x, y, s, t, values):
    made.setpts(x, y, s=s, t=t)
    return made.execute(values), made.execute_adjoint(values)


def energies(made, *arrays, **named):
    result = made(*arrays, **named)
    return result.energies, result.forces, result.virial


def with_dipoles(made, x, q, dipoles):
    return *energies(made, x, q, dipoles=dipoles), made(x, q, dipoles=dipoles).torques


def with_quadrupoles(made, x, q, quadrupoles, widths):
    result = made(x, q, quadrupoles=quadrupoles, widths=widths)
    return result.energies, result.forces, result.virial, result.field_gradients


def in_boxes(made, x, q, system, boxes, dipoles=None):
    result = made(x, q, system, boxes=boxes, dipoles=dipoles)
    return result.energies, result.forces, result.virial, result.energy


def neighbours(box, x):
    return pm.neighbour_list("id", x, box, 0.2, sort_by="d")


def symmetric(count):
    half = 0.01 * numbers(count, 3, 3)
    return half + half.swapaxes(1, 2)


def electrostatics(**options):
    return PME((2.0,) * 3, cutoff=0.6, splitting=5.0, shape=16, window="bspline6", **options)


# Particles of any systems, in boxes that keep to one bound.
SYSTEMS = [
    lambda: 2 * RNG.random((N, 3)), functools.partial(numbers, N), lambda: RNG.integers(0, 3, N).astype(np.int32),
    lambda: RNG.uniform(1.75, 1.95, (3, 3)),
]  # fmt: skip


def batch():
    return PMEBatch((2.0,) * 3, 3, cutoff=0.6, splitting=5.0, shape=16, window="bspline6")


def potentials(**options):
    return solver(**options), "potential", [functools.partial(numbers, N)]


# What is made, a method or a function of it and of arrays, and these arrays' numbers.
CALLS = {
    "potential": potentials(),
    "potential by ik, twice": (solver(), "potential_and_gradient", [functools.partial(numbers, 2, N)]),
    "potential, interlaced": potentials(interlaced=True),
    "virial": (solver(green="ewald", alpha=5.0), "potential_gradient_virial", [functools.partial(numbers, N)]),
    "potential of a field": (solver(), "potential_field", [lambda: numbers(*MESH.shape)]),
    "potential of new positions": (solver(), moved, [lambda: RNG.random((N, 3)), functools.partial(numbers, N)]),
    "vectors": (VectorSolver(MESH, "bspline4"), "field", [lambda: numbers(3, N)]),
    "noise": (VectorSolver(MESH, "bspline4"), "sample", [lambda: numbers(3, *MESH.shape)]),
    "transform 1": (
        nufft.Plan(1, (6, 7), eps=1e-6), transformed,
        [*[lambda: 6 * RNG.random(N)] * 2, lambda: numbers(N, complex_numbers=True)],
    ),
    "transform 2": (
        nufft.Plan(2, (6, 7), eps=1e-6), transformed,
        [*[lambda: 6 * RNG.random(N)] * 2, lambda: numbers(6, 7, complex_numbers=True)],
    ),
    **{
        f"transform 3{name}": (
            nufft.Plan(3, 2, eps=1e-6), scattered,
            [*[lambda at=at: at + 6 * spanning()] * 2, *[lambda: 9 * spanning() - 4] * 2,
             lambda: numbers(N, complex_numbers=True)],
        )
        for name, at in (("", -3.0), (" far off", 50.0))
    },
    "neighbours": (pm.Box((1.0, 1.0, 1.0)), neighbours, [lambda: RNG.random((N, 3))]),
    "PME": (electrostatics(), energies, [lambda: 2 * RNG.random((N, 3)), functools.partial(numbers, N)]),
    "PME, sets and exclusions": (
        electrostatics(exclusions=[(0, 1), (4, 9)]), energies, [lambda: 2 * RNG.random((N, 3)), lambda: numbers(2, N)],
    ),
    "PME with dipoles": (
        electrostatics(), with_dipoles,
        [lambda: 2 * RNG.random((N, 3)), functools.partial(numbers, N), lambda: 0.01 * numbers(N, 3)],
    ),
    "PME with quadrupoles": (
        electrostatics(), with_quadrupoles,
        [
            lambda: 2 * RNG.random((N, 3)), functools.partial(numbers, N), functools.partial(symmetric, N),
            lambda: RNG.random(N) / 50,
        ],
    ),
    "PMEBatch": (batch(), in_boxes, SYSTEMS),
    "PMEBatch with dipoles": (batch(), in_boxes, [*SYSTEMS, lambda: 0.01 * numbers(N, 3)]),
    "dispersion": (
        Dispersion((2.0,) * 3, cutoff=0.6, splitting=5.0, shape=16, window="bspline6"), energies,
        [lambda: 2 * RNG.random((N, 3)), lambda: RNG.random(N)],
    ),
}  # fmt: skip


def of(made, call):
    return getattr(made, call) if isinstance(call, str) else functools.partial(call, made)


def placed(made, on=np.asarray):
    """Return a new object with the same arguments, with positions if it takes them apart from values."""
    kind, arguments = made.__reduce__()
    new = kind(*arguments)
    return new.set_positions(on(X)) if hasattr(new, "set_positions") else new


def agree(backend, kept):
    """Check pairs of results, here and there: no call writes to another's."""
    for pair in kept:
        for got, expected in zip(*((p if isinstance(p, tuple) else (p,)) for p in pair), strict=True):
            np.testing.assert_allclose(backend.host(got), expected, rtol=0, atol=1e-9 * np.abs(expected).max())


def refuse(*_, **__):
    raise AssertionError("this call is worked out, not replayed")


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_replayed_as_one_for_any_arrays_of_its_form(backend, monkeypatch, name):
    made, call, forms = CALLS[name]
    here, there, kept = placed(made), placed(made, backend.array), []
    for turn in range(TURNS):
        arrays = [form() for form in forms]
        expected = of(here, call)(*arrays)
        with monkeypatch.context() as patch:
            if turn > 4:
                for where, what in ((pm.Plan, "spread"), (pm.Plan, "interpolate"), (Core, "step"), (Dipoles, "step"),
                                    (Multipoles, "step"), (PairLists, "submit")):  # fmt: skip
                    patch.setattr(where, what, refuse)
            got = of(there, call)(*map(backend.array, arrays))
        kept.append((got, expected))
    agree(backend, kept)


def test_numbers_of_particles_and_outputs_may_alternate(backend):
    """Memory of one form is another's in between, or was replaced: tapes have what they need."""
    here, there = electrostatics(), electrostatics()
    for turn in range(12):
        count, virial = (60, 120, 90)[turn // 2 % 3] if turn < 6 else 120, turn % 2 == 0
        x, q = 2 * RNG.random((count, 3)), numbers(count)
        expected = here(x, q, virial=virial)
        got = there(backend.array(x), backend.array(q), virial=virial)
        np.testing.assert_allclose(backend.host(got.forces), expected.forces, atol=1e-9 * np.abs(expected.forces).max())
        assert (got.virial is None) == (expected.virial is None)


@pytest.mark.parametrize("check", [True, False])
def test_a_replayed_step_reports_what_is_wrong(backend, check):
    pme = electrostatics()
    x, q = 2 * RNG.random((N, 3)), numbers(N)
    twins, lost, charged = x.copy(), x.copy(), q.copy()
    twins[3], lost[7, 1], charged[5] = x[100], np.nan, np.inf
    forces = electrostatics()(x, q).forces
    for _ in range(3):
        for _ in range(4):
            np.testing.assert_allclose(backend.host(pme(backend.array(x), backend.array(q)).forces), forces, atol=1e-9)
        for bad, charges, message in (
            (lost, q, "not finite of 120" if check else "not finite"),
            (twins, q, "lie on top of each other: 3"),
            (x, charged, "charges are not finite; the first is that of particle 5"),
        ):
            with pytest.raises(ValueError, match=message):
                pme(backend.array(bad), backend.array(charges), check=check)
                pme.check()


def test_boxes_of_systems_end_what_is_replayed(backend):
    def made(on):
        system = on(np.arange(N, dtype=np.int32) % 3)
        solver = Solver(MESH, "bspline4", green="ewald", alpha=5.0, systems=3)
        return solver, lambda boxes: solver.set_positions(on(X), system=system, boxes=boxes)

    (here, place_here), (there, place_there) = made(np.asarray), made(backend.array)
    for turn in range(8):
        boxes = np.full((3, 3), 1.0 + 0.1 * (turn // 4))
        q = numbers(N)
        place_here(boxes), place_there(boxes)
        expected, got = here.potential(q), there.potential(backend.array(q))
        np.testing.assert_allclose(backend.host(got), expected, atol=1e-9 * np.abs(expected).max())


def test_what_reads_numbers_back_is_not_replayed(backend):
    library, calls = backend.library, []
    replays, target = Replays(library), backend.array(np.zeros(4))

    def largest(values, out):
        def call():
            calls.append(float(library.download(values).max()))
            library.copy(out, values)

        replays("largest", (values, out), call)

    for turn in range(5):
        largest(backend.array(np.full(4, float(turn))), target)
    assert calls == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert backend.host(target).tolist() == [4.0] * 4


@pytest.mark.parametrize("name", ["neighbours", "potential", "virial", "PME"])
def test_two_streams_in_turn(backend, name):
    """Arrays are late on purpose: each call waits for its own, and for the memory of the call before."""
    made, call, forms = CALLS[name]
    here, streams, kept = placed(made), (backend.stream(), backend.stream()), []
    with backend.on(streams[0]):
        there = placed(made, lambda host: on_stream(backend, host, streams[0]))
    for turn in range(10):
        stream, arrays = streams[turn % 2 if turn > 5 else 0], [form() for form in forms]
        with backend.on(stream):
            got = of(there, call)(*(backend.late(array, stream) for array in arrays))
        kept.append((got, of(here, call)(*arrays)))
    wait(backend, *streams)
    agree(backend, kept)


@pytest.mark.backends("cuda")
def test_temporaries_of_a_dropped_tape_stay_until_its_last_replay(backend):
    """They are in the pool of the stream that recorded it, and the last replay is on another."""
    library, streams, n = backend.library, (backend.stream(), backend.stream()), 2**20
    replays, given = Replays(library), np.arange(n, dtype=np.float64)

    def call(source, busy, out):
        temporary = library.empty(n, np.float64)
        library.copy(temporary, source)
        for _ in range(300):  # a few milliseconds, in which others may take the memory
            library.copy(busy[0], busy[1])
        library.copy(out, temporary)

    with backend.on(streams[0]):
        source, busy = backend.array(given), backend.array(np.zeros((2, 2**23)))
        outs = [backend.array(np.zeros(n)) for _ in range(4)]
    wait(backend, *streams)
    for k, out in enumerate(outs):
        with backend.on(streams[k == 3]):
            replays("busy", (source, busy, out), functools.partial(call, source, busy, out))
    replays.clear()
    gc.collect()
    with backend.on(streams[0]):
        others = [library.empty(n, np.float64) for _ in range(4)]
        for other in others:
            library.clear(other)
    wait(backend, *streams)
    np.testing.assert_array_equal(backend.host(outs[3]), given)


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", CALLS)
def test_an_object_may_move_to_another_stream(backend, name):
    """Also in calls that are not replayed yet: those inside of a call are on its stream."""
    made, call, forms = CALLS[name]
    here, streams, kept = placed(made), (backend.stream(), backend.stream()), []
    with backend.on(streams[0]):
        there = placed(made, lambda host: on_stream(backend, host, streams[0]))
    for turn in range(6):
        stream, arrays = streams[turn // 2 % 2], [form() for form in forms]
        with backend.on(stream):
            got = of(there, call)(*(on_stream(backend, array, stream) for array in arrays))
        kept.append((got, of(here, call)(*arrays)))
    wait(backend, *streams)
    agree(backend, kept)


def test_check_reads_what_the_last_call_wrote(backend):
    pme, stream = electrostatics(), backend.stream()
    x, q = 2 * RNG.random((N, 3)), numbers(N)
    for turn in range(16):
        charges = q.copy()
        charges[5] = np.inf if turn % 2 else q[5]
        with backend.on(stream):
            pme(*(on_stream(backend, array, stream) for array in (x, charges)), check=False)
        if turn % 2:
            with pytest.raises(ValueError, match="that of particle 5"):
                pme.check()
        else:
            pme.check()


@pytest.mark.parametrize("sets", [0, 1])
def test_nothing_to_do_may_be_repeated(backend, sets):
    pme, plan = electrostatics(), pm.Plan(MESH, "bspline4").set_positions(backend.array(np.zeros((0, 3))))
    transform = nufft.Plan(3, 1, eps=1e-6)
    transform.setpts(backend.array(np.zeros(0)), s=backend.array(np.arange(3.0)))
    for _ in range(4):
        count = 5 if sets == 0 else 0
        result = pme(backend.array(RNG.random((count, 3))), backend.array(np.zeros((sets, count))))
        assert tuple(result.forces.shape) == (sets, count, 3)
        assert plan.interpolate(backend.array(np.zeros(MESH.shape))).shape == (0,)
        assert not backend.host(transform.execute(backend.array(np.zeros(0, complex)))).any()


def test_nothing_of_the_caller_is_kept(backend):
    pme, seen = electrostatics(), []
    for _ in range(TURNS):
        arrays = [backend.array(2 * RNG.random((N, 3))), backend.array(numbers(N))]
        result = pme(*arrays)
        seen += [weakref.ref(array) for array in (*arrays, result.forces)]
        del arrays, result
    gc.collect()
    assert [ref() is None for ref in seen] == [True] * len(seen)


def test_calls_with_much_memory_of_their_own_are_made_again(backend, monkeypatch):
    """A tape keeps the temporaries of its call."""
    monkeypatch.setattr(tapes, "MOST_BYTES", 4 * 8 * N)
    library, made = backend.library, []
    for count, replayed in ((N, True), (N + 1, False)):
        replays, calls, target = Replays(library), [], backend.array(np.zeros(count))

        def copied(values, replays=replays, calls=calls, target=target, count=count):
            def call():
                calls.append(count)
                between = library.empty((count,), np.float64)
                library.copy(between, values)
                library.copy(target, between)

            replays("copied", (values, target), call)

        for turn in range(5):
            copied(backend.array(np.full(count, float(turn))))
            assert backend.host(target).tolist() == [float(turn)] * count
        made.append((len(calls) < 5) == replayed)
    assert made == [True, True]


@pytest.mark.backends("cuda")
def test_a_capture_between_replays(backend):
    here, there, cupy = placed(CALLS["potential"][0]), placed(CALLS["potential"][0], backend.array), backend.cupy
    q, out = backend.array(numbers(N)), backend.array(np.empty(N))
    for turn in range(TURNS):
        values = numbers(N)
        got = there.potential(backend.array(values))
        np.testing.assert_allclose(backend.host(got), here.potential(values), atol=1e-9)
        if turn == 3:
            stream = cupy.cuda.Stream(non_blocking=True)
            with stream:
                there.potential(q, out=out)
                stream.begin_capture()
                there.potential(q, out=out)
                graph = stream.end_capture()
            q.set(values)
            graph.launch(stream)
            stream.synchronize()
            np.testing.assert_allclose(backend.host(out), here.potential(values), atol=1e-9)


@pytest.mark.backends("cuda")
@pytest.mark.parametrize("virial", [False, True])
def test_calls_for_the_same_addresses_become_graphs(backend, monkeypatch, virial):
    here, there = electrostatics(), electrostatics()
    sets = [(backend.array(2 * RNG.random((N, 3))), backend.array(numbers(N))) for _ in range(3)]
    outs = [there(*arrays, virial=virial) for arrays in sets]
    for turn in range(24):
        which = turn % 3 if turn < 18 else 0
        (x, q), out, hosts = sets[which], outs[which], (2 * RNG.random((N, 3)), numbers(N))
        x.set(hosts[0]), q.set(hosts[1])
        with monkeypatch.context() as patch:
            if turn > 11:
                patch.setattr(cuda, "_play", lambda *_: pytest.fail("this call is not a graph"))
            result = there(x, q, virial=virial, out=out)
        expected = here(*hosts, virial=virial)
        assert result.forces is out.forces
        np.testing.assert_allclose(
            backend.host(result.forces), expected.forces, atol=1e-9 * np.abs(expected.forces).max()
        )
        np.testing.assert_allclose(backend.host(result.energy), expected.energy, rtol=1e-9, atol=1e-9)
    bad = backend.array(np.full((N, 3), np.nan))
    with pytest.raises(ValueError, match="not finite"):
        there(bad, sets[0][1], virial=virial)
    x.set(hosts[0])
    result = there(x, q, virial=virial, out=out)
    np.testing.assert_allclose(backend.host(result.forces), expected.forces, atol=1e-9 * np.abs(expected.forces).max())


@pytest.mark.backends("cuda")
def test_tensors_on_a_stream_of_their_own(backend):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    here, there = electrostatics(), electrostatics()
    for turn in range(TURNS):
        x, q = 2 * RNG.random((N, 3)), numbers(N)
        with torch.cuda.stream(torch.cuda.Stream() if turn % 3 == 2 else torch.cuda.current_stream()):
            result = there(torch.tensor(x, device="cuda"), torch.tensor(q, device="cuda"))
            forces = result.forces.cpu().numpy()
        np.testing.assert_allclose(forces, here(x, q).forces, atol=1e-9 * np.abs(forces).max())


@pytest.fixture
def waits(backend, monkeypatch):
    """Counts how often numbers are read back: each time waits once."""
    kind, counts = type(backend.library), [0, 0]

    def counted(read):
        def call(*arguments):
            counts[0] += counts[1] == 0
            counts[1] += 1
            try:
                return read(*arguments)
            finally:
                counts[1] -= 1

        return call

    for owner, name in ((kind, "download"), (kind, "read"), (tapes.Posted, "read"), (cuda.Pinned, "read")):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    return counts


def test_a_replayed_step_waits_once(backend, waits):
    if backend.name == "opencl":
        pytest.importorskip("pyvkfft", reason="transforms by the host wait, too: install pyvkfft")
    pme = electrostatics()
    for turn in range(TURNS):
        waits[0] = 0
        pme(backend.array(4 * RNG.random((N, 3)) - 1), backend.array(numbers(N)))  # some have left the box
        if turn > 3:
            assert waits[0] == 1
    waits[0] = 0
    pme(backend.array(2 * RNG.random((N, 3))), backend.array(numbers(N)), check=False)
    assert waits[0] == 0


def test_searches_of_a_grid_wait_once_and_enter_few_functions(backend, waits):
    x = backend.array(RNG.random((500, 3)))
    grid = pm.UniformGrid((1.0, 1.0, 1.0), cell_size=0.15)
    calls = {"build": (lambda: grid.build(x), 60), "pairs": (lambda: grid.pairs(0.15), 150),
             "list": (lambda: pm.neighbour_list("ijS", x, (1.0, 1.0, 1.0), 0.15), 180)}  # fmt: skip
    for name, (call, most) in calls.items():
        for _ in range(TURNS):
            waits[0] = 0
            call()
        assert waits[0] == 1, name
        assert functions_entered(call) <= most, name


def test_a_neighbour_list_is_submitted_before_anything_is_read(backend, waits, monkeypatch):
    """So the host waits once; what is wrong with the build is read when nothing is left to wait for."""
    x = RNG.random((500, 3))
    expected = pm.neighbour_list("ij", x, (1.0, 1.0, 1.0), 0.15)
    for turn in range(TURNS):
        if turn == 1:  # this looks where cells begin, and later calls are played all the same
            pm.neighbour_list("ij", backend.array(x), (1.0, 1.0, 1.0), backend.array(np.full(500, 0.075)))
        waits[0] = 0
        with monkeypatch.context() as patch:
            if turn > 4:  # played as one
                patch.setattr(pm.UniformGrid, "_build", None)
                patch.setattr(PairLists, "submit", None)
            listed = pm.neighbour_list("ij", backend.array(x), (1.0, 1.0, 1.0), 0.15)
        assert turn == 0 or waits[0] == 1
        assert {*zip(*map(list, map(backend.host, listed)), strict=True)} == {*zip(*map(list, expected), strict=True)}
    for wrong in (np.nan, 2.0**21):
        bad = np.where(np.arange(500)[:, None] == 7, wrong, x)
        with pytest.raises(ValueError, match="of 500 particles; the first is 7") as checked:
            pm.UniformGrid((1.0, 1.0, 1.0), cell_size=0.15).build(backend.array(bad))
        for _ in range(2):
            with pytest.raises(ValueError, match=re.escape(str(checked.value))):
                pm.neighbour_list("ij", backend.array(bad), (1.0, 1.0, 1.0), 0.15)


# PyOpenCL's scopes and transforms by the host enter more.
@pytest.mark.parametrize(
    ("name", "cuda", "opencl"),
    [("PME", 300, 450), ("PMEBatch", 400, 520), ("potential", 110, 180), ("transform 2", 190, 280)],
)
def test_a_replayed_call_enters_few_functions(backend, name, cuda, opencl):
    made, call, forms = CALLS[name]
    there = placed(made, backend.array)
    for _ in range(TURNS):
        of(there, call)(*(backend.array(form()) for form in forms))
    arrays = [backend.array(form()) for form in forms]
    assert functions_entered(lambda: of(there, call)(*arrays)) <= {"cuda": cuda, "opencl": opencl}[backend.name]
