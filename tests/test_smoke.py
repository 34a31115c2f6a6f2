# SPDX-License-Identifier: BSD-3-Clause
"""A few seconds that tell whether an installation works; runs on its own, outside the repository."""

import numpy as np

import particlemesh as pm
from particlemesh.backends import source
from particlemesh.choosing.choice import METHODS
from particlemesh.grid.builders import METHODS as BUILDERS


def test_spread_and_interpolate_are_adjoint():
    rng = np.random.default_rng(1)
    mesh = pm.Mesh(shape=(8, 9, 10), box=(1.0, 2.0, 3.0))
    x = rng.random((100, 3)) * mesh.box.lengths
    q, f = rng.normal(size=100), rng.normal(size=mesh.shape)
    plan = pm.Plan(mesh, "bspline4")
    plan.set_positions(x)
    field = plan.spread(q)
    assert abs(field.sum() - q.sum()) < 1e-12 * np.abs(q).sum()
    assert abs(np.vdot(field, f) - np.vdot(q, plan.interpolate(f))) < 1e-10


def test_neighbours_are_those_of_all_pairs():
    x = np.random.default_rng(2).random((100, 3))
    i, j, d = pm.neighbour_list("ijd", x, (1.0, 1.0, 1.0), 0.2)
    away = x[None] - x[:, None]
    distances = np.linalg.norm(away - np.rint(away), axis=2)
    assert len(i) == np.count_nonzero(distances < 0.2) - 100
    assert np.abs(d - distances[i, j]).max() < 1e-12


def test_every_method_for_gpus_has_its_kernel_file():
    for methods in METHODS.values():
        for method in methods:
            if method.backends - {"cpu"}:
                folder, stem = method.__module__.split(".")[1:]
                assert "KERNEL" in source.text(f"{folder}/{stem}.c")
    for builder in BUILDERS:
        if builder.kernels:
            assert "KERNEL" in source.text(f"grid/builders/{builder.name}.c")
