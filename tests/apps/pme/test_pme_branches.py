# SPDX-License-Identifier: BSD-3-Clause
"""Both halves of a step at once: they share no memory that one of them writes, and results are those of one by one."""

import itertools

import numpy as np
import pytest

from particlemesh.apps.pme import PME, Dispersion, PMEBatch, Result, core
from particlemesh.backends.base import Unread
from particlemesh.backends.branches import Branch
from particlemesh.backends.cpu import CpuBackend
from particlemesh.backends.signature import _KERNEL, _expanded, _preprocessed
from particlemesh.backends.source import program
from pme_cases import TRICLINIC, random_charges
from streams import Cuda

OPTIONS = dict(
    cutoff=1.4, splitting=2.0, shape=(12, 15, 16), window="bspline5",
    exclusions=[(0, 1), (5, 7), (9, 3), (0, 2)], factors=[0.0, 0.5, 0.8333, 0.0],
)  # fmt: skip
SIZES = {name: OPTIONS[name] for name in ("cutoff", "splitting", "shape", "window")}
NAMES = ("energy", "energies", "forces", "virial")
STREAM = "stream"  # the kernel of sums over neighbours


def particles(moved=0.0):
    x, q = random_charges(50)
    x = x + moved * np.sin(np.arange(150.0)).reshape(50, 3)
    return x.astype(np.float32), np.stack([q * np.cos(n * np.arange(50.0)) for n in range(8)]).astype(np.float32)


class Launches:
    """Every command of a backend: its stream, and the memory that it reads and writes."""

    def __init__(self, monkeypatch, cuda):
        from particlemesh.backends import opencl

        self.cuda, self.commands, self._constant = cuda, [], {}
        launch, clear, download = (
            opencl.OpenClKernel.__call__, opencl.OpenClBackend.clear, opencl.OpenClBackend.download
        )  # fmt: skip

        def launched(kernel, items, *arguments, **options):
            self.note(kernel._name, zip(self.written(kernel), arguments, strict=True))
            return launch(kernel, items, *arguments, **options)

        def cleared(backend, array):
            self.note("clear", [(True, array)])
            return clear(backend, array)

        def downloaded(backend, array):
            self.note("download", [(False, array)])
            return download(backend, array)

        monkeypatch.setattr(opencl.OpenClKernel, "__call__", launched)
        monkeypatch.setattr(opencl.OpenClBackend, "clear", cleared)
        monkeypatch.setattr(opencl.OpenClBackend, "download", downloaded)

    def written(self, kernel):
        """Whether the kernel may write each of its arguments: pointers without const."""
        key = kernel._name, id(kernel._signatures)
        if key not in self._constant:
            text, macros = _preprocessed(program(*kernel._signatures._program))
            (declared,) = [d for name, d in _KERNEL.findall(text) if name == kernel._name]
            declared = [d for d in _expanded(declared, macros).split(",") if "__local" not in d]
            self._constant[key] = ["*" in d and "const" not in d.split("*")[0] for d in declared]
        return self._constant[key]

    def note(self, name, arguments):
        number = len(self.commands)
        self.cuda.does(number)
        memory = [(a.base_data.int_ptr, w) for w, a in arguments if not isinstance(a, (int, bytes, Unread))]
        self.commands.append((name, {p for p, _ in memory}, {p for p, w in memory if w}))

    def races(self):
        """Pairs of commands in no order, of which one writes what the other reads or writes."""
        return [
            (self.commands[a][0], self.commands[b][0])
            for a, b in itertools.combinations(range(len(self.commands)), 2)
            if self.cuda.unordered(a, b)
            and (self.commands[a][2] & self.commands[b][1] or self.commands[b][2] & self.commands[a][1])
        ]


def coulomb(backend):
    x, q = particles()
    pme = PME(TRICLINIC, **OPTIONS, dtype="float32", backend="opencl").reserve(50, 2)
    given = backend.array(x), backend.array(q[:2])
    return pme, lambda **more: pme(*given, **more)


def dipoles(backend):
    x, q = particles()
    pme = PME(TRICLINIC, **OPTIONS, dtype="float32", backend="opencl").reserve(50, dipoles=True)
    given = backend.array(x), backend.array(q[0])
    mu = backend.array(q[1:4].T.copy())
    return pme, lambda **more: pme(*given, dipoles=mu, **more)


def batch(backend):
    x, q = particles()
    call = PMEBatch(TRICLINIC, 2, **SIZES, dtype="float32", backend="opencl").reserve(50)
    given = backend.array(x), backend.array(q[0]), backend.array((np.arange(50) // 25).astype(np.int32))
    boxes = np.stack([TRICLINIC, TRICLINIC * 1.1])
    return call, lambda **more: call(*given, boxes=boxes, exclusions=[(0, 1), (30, 26)], **more)


def dispersion(backend):
    x, q = particles()
    call = Dispersion(TRICLINIC, **SIZES, dtype="float32", backend="opencl").reserve(50)
    given = [backend.array(a) for a in (x, 0.2 + 0 * q[0], 1 + q[0] ** 2)]
    pairs = OPTIONS["exclusions"]
    return call, lambda **more: call(given[0], sigma=given[1], epsilon=given[2], exclusions=pairs, **more)


@pytest.mark.backends("opencl")
@pytest.mark.parametrize(
    ("make", "check"), [(coulomb, False), (coulomb, True), (dispersion, False), (dipoles, True), (batch, True)]
)
def test_halves_share_no_memory_that_one_writes(backend, monkeypatch, make, check):
    monkeypatch.setattr(core.Core, "together", 1)
    cuda = Cuda()
    owner, call = make(backend)
    out = call()
    before = backend.host(out.forces)
    owner._core.branch = Branch(cuda, CpuBackend())
    launches = Launches(monkeypatch, cuda)
    for _ in range(2):  # the first command of a step must wait for the last of the step before
        call(check=check, out=out)
    np.testing.assert_allclose(backend.host(out.forces), before, rtol=0, atol=1e-4 * abs(before).max())
    second = [n for n in range(len(launches.commands)) if n in cuda.streams[1].past - cuda.before[0]]
    branch = {launches.commands[n][0] for n in second}
    assert {"assemble", STREAM} <= {name for name, *_ in launches.commands}
    assert len(branch) > 4
    assert launches.races() == []
    beside = [(a, b) for a, b in itertools.combinations(range(len(launches.commands)), 2) if cuda.unordered(a, b)]
    names = {frozenset(launches.commands[n][0] for n in pair) for pair in beside}
    assert any(STREAM in pair and len(pair) == 2 for pair in names)  # the halves are not one after the other
    assert not any({"assemble", "totals", "totals_of_systems"} & pair for pair in names)


@pytest.mark.backends("opencl")
def test_memory_that_both_halves_write_would_be_noticed(backend, monkeypatch):
    cuda = Cuda()
    x, q = particles()
    pme = PME(TRICLINIC, **OPTIONS, dtype="float32", backend="opencl").reserve(50, 1)
    given = backend.array(x), backend.array(q[0])
    out = pme(*given)
    memory = pme._core._memory
    memory["sums"] = memory["gradient"] = backend.library.empty(50 * 11, np.float32)
    pme._core.branch = Branch(cuda, CpuBackend())
    launches = Launches(monkeypatch, cuda)
    pme(*given, check=False, out=out)
    assert any(STREAM in pair for pair in launches.races())


@pytest.mark.backends("cuda")
@pytest.mark.parametrize("sets", [1, 8])
@pytest.mark.parametrize("check", [False, True])
def test_both_at_once_equal_one_by_one(backend, sets, check):
    pme = PME(TRICLINIC, **OPTIONS, dtype="float32", backend="cuda")
    for moved in (0.0, 0.02, 0.3):
        x, q = particles(moved)
        given = backend.array(x), backend.array(q[:sets])
        both = pme(*given, check=check)
        branch, pme._core.branch = pme._core.branch, None
        assert branch is not None
        single = pme(*given, check=check)
        pme._core.branch = branch
        again = pme(*given, check=check)
        for name in NAMES:
            exact = backend.host(getattr(single, name))
            for result in (both, again):
                actual = backend.host(getattr(result, name))
                np.testing.assert_allclose(actual, exact, rtol=0, atol=3e-6 * abs(exact).max(), err_msg=name)


@pytest.mark.backends("cuda")
def test_a_graph_holds_both_branches(backend):
    cupy = backend.cupy
    x, q = particles()
    pme = PME(TRICLINIC, **OPTIONS, dtype="float32", backend="cuda").reserve(50, 1)
    place, charges = backend.array(x), backend.array(q[0])
    empty = cupy.empty
    out = Result(empty((), "f4"), empty(50, "f4"), empty((50, 3), "f4"), empty((3, 3), "f4"))
    stream = cupy.cuda.Stream(non_blocking=True)
    pool = cupy.get_default_memory_pool()
    cupy.cuda.Device().synchronize()
    with stream:
        for _ in range(2):
            pme(place, charges, check=False, out=out)
        stream.synchronize()
        held, used = pool.total_bytes(), pool.used_bytes()
        stream.begin_capture()
        for _ in range(3):  # a fork after a join, within one graph
            pme(place, charges, check=False, out=out)
        graph = stream.end_capture()
        assert (pool.total_bytes(), pool.used_bytes()) == (held, used)
        for moved in (0.02, 0.3):
            x, q = particles(moved)
            place.set(x, stream=stream)
            charges.set(q[0], stream=stream)
            graph.launch(stream)
            stream.synchronize()
            exact = PME(TRICLINIC, **OPTIONS)(x, q[0])
            for name in NAMES:
                expected = getattr(exact, name)
                np.testing.assert_allclose(
                    getattr(out, name).get(), expected, rtol=0, atol=1e-5 * np.abs(expected).max(), err_msg=name
                )
    pme(place, charges, check=False, out=out)  # another stream, after the graph
    pme.check()


@pytest.mark.backends("cuda")
def test_an_error_in_one_half_leaves_a_step_that_works(backend):
    x, q = particles()
    pme = PME(TRICLINIC, **OPTIONS, dtype="float32", backend="cuda")
    first = pme(backend.array(x), backend.array(q[0]))
    bad = x.copy()
    bad[7] = np.nan
    for _ in range(2):
        with pytest.raises(ValueError, match="not finite"):
            pme(backend.array(bad), backend.array(q[0]))
    again = pme(backend.array(x), backend.array(q[0]))
    np.testing.assert_allclose(backend.host(again.forces), backend.host(first.forces), rtol=0, atol=1e-4)


def test_the_cpu_has_one_half_after_the_other():
    x, q = particles()
    pme = PME(TRICLINIC, **OPTIONS)
    pme(x, q[0])
    assert pme._core.branch is None
