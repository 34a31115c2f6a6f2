# SPDX-License-Identifier: BSD-3-Clause
"""single_mesh: the matrix is the operator, whichever way it is built, added up and counted."""

import numpy as np
import pytest

import oracle
import particlemesh as pm
import ptx
from cases import matrices
from particlemesh.backends import cuda, opencl
from particlemesh.spread.single_mesh import SingleMesh, lanes_of_row, rows_of_group
from ptx import without_nvrtc

CONSTRUCTIONS = ("sorted", "paper")
# Axes that wrap and are shorter than the support, one that is open, and rows of two groups with an odd one.
MESHES = {
    "short": pm.Mesh((3, 2, 4), (1.0, 1.1, 1.3)),
    "open": pm.Mesh((4, 5, 35), pm.Box((1.0, 2.0, 3.0), (0.1, 0.2, 0.3), (True, False, True)), offset=(0.0, 0.5, 0.2)),
    "plane": pm.Mesh((33, 9), pm.Box((1.0, 2.0), (0.0, 0.0), (False, True))),
}
WINDOW = pm.bspline(5)
on_devices = pytest.mark.backends("opencl", "cuda")


def particles(mesh, count=40, spread=0.98):
    """Positions, most of them anywhere, values and vectors."""
    rng = np.random.default_rng(11)
    x = (0.01 + spread * rng.random((count, mesh.ndim))) * mesh.box.lengths + mesh.box.origin
    return x, rng.normal(size=count), rng.normal(size=(count, mesh.ndim))


def plan_of(backend, mesh, window=WINDOW, dtype="float64", deterministic=False, **options):
    return pm.Plan(
        mesh, window, method="single_mesh", backend=backend.name, dtype=dtype, deterministic=deterministic,
        options={"single_mesh": options},
    )  # fmt: skip


def close(came, wanted, tolerance=1e-13):
    np.testing.assert_allclose(came, wanted, atol=tolerance * max(1.0, np.abs(wanted).max()))


@on_devices
@pytest.mark.parametrize("construction", CONSTRUCTIONS)
@pytest.mark.parametrize("name", MESHES)
def test_the_stored_matrix_is_the_operator(backend, name, construction):
    mesh = MESHES[name]
    x, _, v = particles(mesh)
    weights, slopes, *_ = matrices(mesh, WINDOW, x)
    lengths = np.zeros(mesh.field_shape, int)
    for u in oracle.node_coordinates(mesh, x):
        np.add.at(lengths, oracle.contributions(mesh, WINDOW, u)[0], 1)
    with plan_of(backend, mesh, construction=construction) as plan:
        plan.set_positions(backend.array(x))
        plan.spread_gradient(backend.array(v))
        method = plan._methods["spread"]
        rows, slopes_of = method._rows(plan.workspace), method._slopes(plan.workspace)
        start, column, weight, slope = map(backend.host, (rows.start, rows.column, rows.weight, slopes_of))
        np.testing.assert_array_equal(np.diff(start.astype(int)), lengths.ravel())
        assert start[0] == 0
        column, weight, slope = column[: start[-1]], weight[: start[-1]], slope.reshape(mesh.ndim, -1)[:, : start[-1]]
        row = np.repeat(np.arange(lengths.size), lengths.ravel())
        if construction == "sorted":  # columns are places
            column = backend.host(plan.workspace.orders["nodes"].order)[column]
        dense = np.zeros_like(weights)
        np.add.at(dense, (column, row), weight)
        close(dense, weights)
        dense = np.zeros_like(slopes)
        for b in range(mesh.ndim):
            np.add.at(dense[:, b], (column, row), slope[b])
        close(dense, slopes)


@on_devices
@pytest.mark.parametrize("construction", CONSTRUCTIONS)
@pytest.mark.parametrize("reduction", ["stream", "shuffle", "local"])
def test_any_number_of_threads_gives_the_oracles_field(backend, construction, reduction):
    mesh = MESHES["open"]
    x, q, _ = particles(mesh)
    wanted = oracle.spread(mesh, WINDOW, x, q)
    for threads in (None, 1, 2, 4, 8, 16, 32):
        options = dict(construction=construction, reduction=reduction, threads_per_row=threads)
        with plan_of(backend, mesh, **options) as plan:
            plan.set_positions(backend.array(x))
            close(backend.host(plan.spread(backend.array(q))), wanted)


@on_devices
def test_rows_too_long_for_local_memory_are_written_at_once(backend):
    mesh = MESHES["plane"]
    x, q, v = particles(mesh, 1200, spread=0.03)
    wanted, bent = oracle.spread(mesh, WINDOW, x, q), oracle.spread_gradient(mesh, WINDOW, x, v)
    with plan_of(backend, mesh) as plan:
        plan.set_positions(backend.array(x))
        close(backend.host(plan.spread(backend.array(q))), wanted)
        close(backend.host(plan.spread_gradient(backend.array(v))), bent)


@on_devices
@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_entries_counted_in_64_bits(backend, construction, monkeypatch):
    mesh = MESHES["short"]
    x, q, v = particles(mesh)
    monkeypatch.setattr(SingleMesh, "narrow", 0)
    with plan_of(backend, mesh, construction=construction) as plan:
        plan.set_positions(backend.array(x))
        close(backend.host(plan.spread(backend.array(q))), oracle.spread(mesh, WINDOW, x, q))
        close(backend.host(plan.spread_gradient(backend.array(v))), oracle.spread_gradient(mesh, WINDOW, x, v))
        assert plan._methods["spread"]._rows(plan.workspace).start.dtype == np.uint64


@on_devices
@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_nobody_and_nobody_with_weight(backend, construction):
    mesh = MESHES["open"]
    with plan_of(backend, mesh, construction=construction) as plan:
        for count in (0, 3):
            plan.set_positions(backend.array(np.full((count, 3), np.nan)), check=not count)
            assert not backend.host(plan.spread(backend.array(np.ones(count)))).any()
            assert not backend.host(plan.spread_gradient(backend.array(np.ones((count, 3))))).any()


@on_devices
@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_a_value_that_is_not_finite_stays_on_its_nodes(backend, construction):
    mesh = MESHES["open"]
    x, q, _ = particles(mesh)
    q[[0, -1]] = np.nan, np.inf
    wanted = oracle.spread(mesh, WINDOW, x, np.isfinite(q) * 1.0) * 0
    for bad in (0, -1):
        wanted += np.where(oracle.spread(mesh, WINDOW, x[[bad]], np.ones(1)) != 0, q[bad], 0)
    with plan_of(backend, mesh, construction=construction) as plan:
        plan.set_positions(backend.array(x))
        field = backend.host(plan.spread(backend.array(q)))
    np.testing.assert_array_equal(np.isfinite(field), np.isfinite(wanted))


@on_devices
def test_sorted_gives_the_same_bits_and_the_papers_construction_says_that_it_does_not(backend):
    mesh = MESHES["plane"]
    x, q, _ = (a.astype(np.float32) for a in particles(mesh, 300))

    def field(**options):
        with plan_of(backend, mesh, dtype="float32", deterministic=True, **options) as plan:
            plan.set_positions(backend.array(x))
            return backend.host(plan.spread(backend.array(q)))

    np.testing.assert_array_equal(field(), field())
    with pytest.raises(pm.MethodNotSuitable, match="not deterministic with construction='paper'"):
        field(construction="paper")


@on_devices
def test_reserved_for_more_than_there_are(backend):
    mesh = MESHES["plane"]
    x, q, v = particles(mesh)
    with plan_of(backend, mesh) as plan:
        plan.reserve(100)
        for count in (40, 7, 33):
            plan.set_positions(backend.array(x[:count]), check=False)
            wanted = oracle.spread(mesh, WINDOW, x[:count], q[:count])
            bent = oracle.spread_gradient(mesh, WINDOW, x[:count], v[:count])
            close(backend.host(plan.spread(backend.array(q[:count]))), wanted)
            close(backend.host(plan.spread_gradient(backend.array(v[:count]))), bent)


def test_lanes_of_a_row_follow_the_papers_rule():
    means = {0.0: 1, 0.99: 1, 1: 1, 1.99: 1, 2: 2, 3.99: 2, 4: 4, 7.99: 4, 8: 8, 15.99: 8, 16: 16, 103: 16}
    assert {mean: lanes_of_row(int(100 * mean), 100) for mean in means} == means


def test_rows_of_a_group_fit_its_memory():
    assert rows_of_group(103 * 10, 10, 128, 8) == 32
    assert rows_of_group(300 * 10, 10, 128, 8) == 8
    assert rows_of_group(10**5, 10, 128, 8) == 32  # no few of them would fit
    assert rows_of_group(10, 10, 33, 8) == 17  # two groups of about as many
    assert rows_of_group(10, 10, 5, 8) == 5


@pytest.mark.opencl
@pytest.mark.skipif(opencl.available() is not None, reason="no OpenCL device")
@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
def test_nothing_is_added_atomically_where_values_are_spread(monkeypatch):
    from cupy.cuda import nvrtc

    asked = set()
    plain = opencl.OpenClBackend.kernel

    def kernel(self, file, name, defines):
        asked.add((file, tuple(defines.items())))
        return plain(self, file, name, defines)

    monkeypatch.setattr(opencl.OpenClBackend, "kernel", kernel)
    x, q, v = particles(MESHES["open"])
    for construction in CONSTRUCTIONS:
        options = {"single_mesh": {"construction": construction}}
        with pm.Plan(MESHES["open"], "cic", method="single_mesh", backend="opencl", options=options) as plan:
            plan.set_positions(x)
            plan.spread(q + 1j * q)
            plan.spread_gradient(v)
    monkeypatch.setattr(nvrtc, "getSupportedArchs", lambda: [80])  # so that what comes is PTX, which can be read
    texts = {file: [] for file, _ in asked}
    for file, defines in asked:
        if file.startswith("spread/single_mesh"):
            texts[file].append(cuda.compile_only(file, dict(defines), 90).decode())
    assert len(texts["spread/single_mesh.c"]) == 4
    assert not any(ptx.ATOMIC.search(text) for text in texts["spread/single_mesh.c"])
    assert all("atom." in text for text in texts["spread/single_mesh_build.c"])  # they would be seen
