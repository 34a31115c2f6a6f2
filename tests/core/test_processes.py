# SPDX-License-Identifier: BSD-3-Clause
"""Threads, processes and compilers that hang, crash or spoil caches; imports that touch a GPU."""

import os
import pickle
import re
import signal
import threading
import time

import numpy as np
import pytest

import particlemesh as pm
from particlemesh import backends
from processes import SOURCE, child, finish

MESH = pm.Mesh((8, 9, 10), (1.0, 1.0, 1.0))
RNG = np.random.default_rng(1)
X = RNG.random((9000, 3))
Q = RNG.normal(size=(8, 9000))


def test_plans_in_several_threads_at_once(backend):
    results, errors = {}, []
    start = threading.Barrier(8)

    def work(k):
        try:
            start.wait()
            for _ in range(3):
                with pm.Plan(MESH, "bspline4", deterministic=True, threads=2) as plan:
                    plan.set_positions(backend.array(X))
                    field = plan.spread(backend.array(Q[k]))
                    values = plan.interpolate(field)
                    results.setdefault(k, set()).add(backend.host(field).tobytes() + backend.host(values).tobytes())
        except Exception as error:  # shown below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [repr(error) + str(error) for error in errors] == []
    for k in range(8):
        assert len(results[k]) == 1
        with pm.Plan(MESH, "bspline4", deterministic=True) as plan:
            plan.set_positions(backend.array(X))
            alone = backend.host(plan.spread(backend.array(Q[k])))
        np.testing.assert_allclose(np.frombuffer(next(iter(results[k]))[: alone.nbytes]), alone.ravel(), atol=1e-12)


FORKS = """
import os, signal, sys, threading, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)
import numpy as np, particlemesh as pm
from particlemesh.apps import nufft
from particlemesh.apps.pme import PME
from particlemesh.kernels import cpu

forks, rng = COUNT, np.random.default_rng(1)
x, q, many = rng.random((30, 3)), np.ones(30), rng.random((20000, 3))
mesh, box = pm.Mesh((8, 8, 8), (1., 1., 1.)), (2., 2., 2.)

class Use:
    def __init__(self, threads):
        self.plan, self.pme = pm.Plan(mesh, threads=threads), PME(box, 1e-3)
        self.grid = pm.UniformGrid((1.,) * 3, cell_size=0.3, threads=threads)

    def once(self, x):
        q = np.ones(len(x))
        self.plan.set_positions(x).spread(q)
        self.grid.build(x)
        if len(x) < 100:
            self.grid.pairs(0.3)
            self.pme(x, q)
            nufft.nufft3d1(*np.ascontiguousarray(x.T), q + 0j, (6, 6, 6), eps=1e-3)

mine, theirs = Use(1), Use(2)
mine.once(x)

def work():
    while True:
        theirs.once(many)
        theirs.once(x)

def build():
    while True:
        cpu.compiled(lambda x: x + 1, cached=False)(1.0)

for target in (work, build):
    threading.Thread(target=target, daemon=True).start()
hung = 0
expected = mine.plan.spread(q)
for n in range(forks):
    child = os.fork()
    if child == 0:
        try:
            mine.once(x)
            assert np.array_equal(mine.plan.spread(q), expected)
            Use(1).once(x)
            if n % 8 == 0:
                cpu.compiled(lambda x: x + 2, cached=False)(1.0)
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    end = time.monotonic() + 60
    while (done := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < end:
        time.sleep(0.001)
    if done[0] == 0:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        hung += 1
    assert done[1] == 0, done
assert np.array_equal(mine.plan.spread(q), expected)
print(hung, "of", forks, "hung", flush=True)
os._exit(hung > 0)
"""


def test_no_forked_child_hangs_while_threads_of_its_parent_work(request):
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork")
    count = 1000 if request.config.getoption("--thorough") else 3
    finish(child(FORKS.replace("COUNT", str(count)), timeout=3000))


# One function, compiled and kept like all others.
CLEAR = """
import numpy as np
from particlemesh.backends import cpu
array = np.ones(2**18)
cpu.clear(array)
assert not array.any()
"""


def test_a_damaged_numba_cache_is_a_miss(tmp_path):
    finish(child(CLEAR, tmp_path))
    files = sorted(p for p in tmp_path.rglob("*") if p.suffix in (".nbi", ".nbc"))
    assert len(files) >= 2
    for n, file in enumerate(files):  # cut short, emptied, overwritten
        content = file.read_bytes()
        file.write_bytes([content[: len(content) // 2], b"", b"\x80\x05garbage" * 40][n % 3])
    finish(child(CLEAR, tmp_path))
    started = time.monotonic()
    finish(child(CLEAR, tmp_path))  # mended
    assert time.monotonic() - started < 200


KERNEL = """
import numpy as np
from particlemesh import backends
backend = backends.current("BACKEND")
array = backend.upload(np.ones((4, 4)))
backend.clear(array[:, :2])
assert backend.download(array).sum() == 8
"""


def test_many_processes_with_cold_caches_at_once(backend, tmp_path, request):
    code = CLEAR if backend.name == "cpu" else KERNEL.replace("BACKEND", backend.name)
    many = [child(code, tmp_path, timeout=300) for _ in range(request.config.getoption("--many-processes"))]
    for process in many:
        finish(process)
    finish(child(code, tmp_path))  # and what they left is in order


def test_kernels_are_plain_c_functions_found_by_name():
    text = (SOURCE / "backends" / "cuda.h").read_text()
    assert re.search(r'#define KERNEL extern "C" __global__', text)
    for path in SOURCE.rglob("*"):
        if path.suffix in (".py", ".c", ".h"):
            assert "name_expressions" not in path.read_text(encoding="utf-8"), path


def test_a_pickled_plan_is_a_recipe(backend):
    plan = pm.Plan(MESH, pm.bspline(4), applications=7, deterministic=True, threads=2)
    fresh = pickle.loads(pickle.dumps(plan))
    plan.set_positions(backend.array(X))
    field = backend.host(plan.spread(backend.array(Q[0])))
    data = pickle.dumps(plan)
    assert len(data) < 5000  # no particles, no compiled code
    copy = pickle.loads(data)
    for one in (fresh, copy):
        assert (one.mesh, one.window, one.applications, one.threads) == (MESH, plan.window, 7, 2)
        assert one.deterministic
        with pytest.raises(RuntimeError, match="no particles yet"):
            one.spread(backend.array(Q[0]))
        one.set_positions(backend.array(X))
        np.testing.assert_allclose(backend.host(one.spread(backend.array(Q[0]))), field, atol=1e-12)
    assert pickle.loads(pickle.dumps(pm.bspline(4))) == pm.bspline(4)
    assert pickle.loads(pickle.dumps(MESH)) == MESH


def test_imports_and_tiny_problems_touch_no_gpu_and_start_no_thread_and_messages_say_what_to_install():
    code = """
import os, sys, threading
import particlemesh as pm
loaded = {"cupy", "pyopencl", "torch", "jax", "cuda", "matplotlib", "typer"} & set(sys.modules)
assert not loaded, loaded
assert threading.active_count() == 1
assert len(os.listdir("/proc/self/task")) == 1 if os.path.isdir("/proc/self/task") else True
mesh = pm.Mesh((8, 8, 8), (1.0, 1.0, 1.0))
pm.bspline(6)
assert not {"cupy", "pyopencl", "torch"} & set(sys.modules)

import numpy as np
x = np.random.default_rng(1).random((100, 3))
field = pm.spread(x, x[:, 0].copy(), mesh)
pm.interpolate(field, x, mesh)
assert threading.active_count() == 1
pm.spread(np.tile(x, (500, 1)), np.ones(50000), mesh, threads=2)
assert threading.active_count() == 2

sys.modules["cupy"] = sys.modules["pyopencl"] = None  # as if not installed
for name, package in (("cuda", "'cupy-cuda13x[ctk]'"), ("opencl", "pyopencl")):
    try:
        pm.Plan(mesh, "cic", backend=name)
    except RuntimeError as error:
        assert f"backend {name!r} cannot be used" in str(error), error
        assert f"pip install {package}" in str(error), error
    else:
        raise AssertionError(name)
"""
    finish(
        child(code, CUDA_VISIBLE_DEVICES="", OCL_ICD_VENDORS="/nowhere", OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    )


@pytest.mark.opencl
def test_devices_are_looked_for_once(monkeypatch):
    cl = pytest.importorskip("pyopencl", reason="PyOpenCL is not installed")
    if backends.module("opencl").available() is not None:
        pytest.skip("no OpenCL device")
    backend = backends.current("opencl")

    def refuse():
        raise AssertionError("looked for devices again")

    monkeypatch.setattr(cl, "get_platforms", refuse)
    assert all(backends.current("opencl") is backend for _ in range(100))


@pytest.mark.opencl
def test_a_device_without_atomics_or_float64_says_so(monkeypatch):
    cl = pytest.importorskip("pyopencl", reason="PyOpenCL is not installed")
    opencl = backends.module("opencl")
    if opencl.available() is not None:
        pytest.skip("no OpenCL device")
    import pyopencl.array

    device = backends.current("opencl").queue.device
    queue = cl.CommandQueue(cl.Context([device]))
    poor = opencl.backend(queue.context, device)
    monkeypatch.setattr(poor, "_fp64", 0)  # the one fact that is asked before a kernel is compiled
    x, q = X[:50], Q[0, :50]

    def arrays(real):
        return [pyopencl.array.to_device(queue, a.astype(real)) for a in (x, q)]

    with pytest.raises(RuntimeError, match="has no float64; use float32 or another backend"):
        pm.spread(*arrays(np.float64), MESH)
    positions, values = pyopencl.array.to_device(queue, x), arrays(np.float32)[1]
    with pytest.raises(RuntimeError, match="has no float64"):
        pm.spread(positions, values, MESH)
    field = pm.spread(*arrays(np.float32), MESH).get()
    assert field.sum() == pytest.approx(q.sum(), abs=1e-4)

    class Device:
        extensions, name, version, type = "cl_khr_fp64", "an old chip", "OpenCL 1.2", cl.device_type.GPU

    class Platform:
        name = version = "a platform"

        def get_devices(self):
            return [Device()]

    monkeypatch.setattr(cl, "get_platforms", lambda: [Platform()])
    monkeypatch.setattr(opencl, "devices", opencl.devices.__wrapped__)
    assert opencl.available() == "no OpenCL device with 64-bit atomics"


@pytest.mark.opencl
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.skipif(backends.module("opencl").available() is not None, reason="no OpenCL device")
def test_a_forked_child_gets_an_error_that_opencl_stays_behind():
    with pm.Plan(pm.Mesh(8, 1.0), "cic", backend="opencl") as plan:
        plan.set_positions(np.full((3, 1), 0.5))
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            try:
                plan.spread(np.ones(3))
            except RuntimeError as error:
                os._exit(0 if "start processes by 'spawn'" in str(error) else 2)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert plan.spread(np.ones(3)).sum() == pytest.approx(3)
