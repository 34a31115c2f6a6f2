# SPDX-License-Identifier: BSD-3-Clause
"""hybrid_mesh: the width that is chosen, and rows longer than an interval."""

import numpy as np
import pytest

import oracle
import particlemesh as pm
from particlemesh.spread import hybrid_mesh

MESH = pm.Mesh((3, 7, 11), pm.Box((1.0, 1.1, 1.3), (0.1, 0.2, 0.3), (True, False, True)))
WINDOW = pm.bspline(4)
RNG = np.random.default_rng(22)
X = (0.01 + 0.98 * RNG.random((70, 3))) * MESH.box.lengths + MESH.box.origin
Q = RNG.normal(size=(3, 70))
on_devices = pytest.mark.backends("opencl", "cuda")


def plan_of(backend, mesh=MESH, window=WINDOW, dtype="float64", **options):
    return pm.Plan(mesh, window, method="hybrid_mesh", dtype=dtype, backend=backend, options={"hybrid_mesh": options})


def close(result, expected, tolerance=1e-13):
    np.testing.assert_allclose(result, expected, atol=tolerance * max(1.0, np.abs(expected).max()))


def lengths_by_hand(mesh, window, x):
    lengths = np.zeros(mesh.field_shape, int)
    for u in oracle.node_coordinates(mesh, x):
        np.add.at(lengths, oracle.contributions(mesh, window, u)[0], 1)
    return lengths.ravel()


def ruled(lengths, least, longest):
    """Bell and Garland's width, column by column."""
    enough = max(least, len(lengths) / 3)
    width = 0
    while width < longest and np.count_nonzero(lengths >= width + 1) >= enough:
        width += 1
    return width


@on_devices
@pytest.mark.parametrize(("count", "least", "longest"), [(70, 40, 2047), (70, 150, 2047), (70, 300, 2047), (70, 1, 4)])
def test_the_width_is_bell_and_garlands(backend, monkeypatch, count, least, longest):
    monkeypatch.setattr(hybrid_mesh, "LEAST_ROWS", least)
    monkeypatch.setattr(hybrid_mesh, "LONGEST", longest)
    expected = lengths_by_hand(MESH, WINDOW, X[:count])
    with plan_of(backend.name) as plan:
        plan.set_positions(backend.array(X[:count]))
        close(
            backend.host(plan.spread(backend.array(Q[:, :count]))), oracle.spread(MESH, WINDOW, X[:count], Q[:, :count])
        )
        matrix = plan.methods.known["spread"]._room(plan.workspace, slopes=False)
        lengths, (width,), start = (backend.host(a) for a in (matrix.lengths, matrix.width, matrix.start))
        np.testing.assert_array_equal(lengths, expected)
        assert width == ruled(expected, least, longest)
        np.testing.assert_array_equal(np.diff(start.astype(int)), np.maximum(expected - int(width), 0))
        assert (width > 0) == (least < 300)
        assert width * len(expected) <= matrix.ell_plane


@on_devices
@pytest.mark.parametrize("width", [0, 3])
@pytest.mark.parametrize("wide", [False, True])
def test_rows_longer_than_intervals(backend, monkeypatch, width, wide):
    """All particles on a few nodes: rows go over many intervals, and carries over many of a warp's."""
    monkeypatch.setattr(hybrid_mesh, "INTERVAL", 64)
    monkeypatch.setattr(hybrid_mesh.HybridMesh, "narrow", 1000 if wide else 2**31)
    mesh, window, count = pm.Mesh((40,), 1.0), pm.bspline(3), 9000
    x = np.repeat([0.11, 0.52, 0.55], (5000, 3990, 10)) if width else np.full(count, 0.3)
    q = np.stack([RNG.normal(size=count), np.ones(count)])
    with plan_of(backend.name, mesh, window, width=width) as plan:
        plan.set_positions(backend.array(x))
        result = [backend.host(plan.spread(backend.array(q))) for _ in range(2)]
        close(result[0], oracle.spread(mesh, window, x[:, None], q), 1e-12)
        np.testing.assert_array_equal(*result)
