# SPDX-License-Identifier: BSD-3-Clause
"""Trajectories as the programs read them for which they are written: ParaView's library and OVITO."""

import json

import numpy as np
import pytest
from test_dem_files import BOX, needed, pile, recorded


def test_paraviews_library_reads_points_with_their_columns(tmp_path):
    pyvista = needed("pyvista")
    needed("meshio")
    states = recorded(pile(), tmp_path / "a.vtu")
    series = json.loads((tmp_path / "a.vtu.series").read_text())["files"]
    for file, state in zip(series, states, strict=True):
        points = pyvista.read(tmp_path / file["name"])
        assert (points.n_points, points.n_cells) == (len(state.radii), len(state.radii))
        for name, values in (
            ("velocity", state.velocities),
            ("angular_velocity", state.spins),
            ("radius", state.radii),
        ):
            np.testing.assert_array_equal(points.point_data[name], values)
        np.testing.assert_array_equal(points.points, state.positions)
        spheres = points.glyph(scale="radius", geom=pyvista.Sphere(radius=1.0), orient=False)
        assert spheres.bounds[0] == pytest.approx((state.positions[:, 0] - state.radii).min(), abs=0.01)


@pytest.mark.parametrize(("ending", "module"), [("gsd", "gsd.hoomd"), ("xyz", "ase.io")])
def test_ovito_reads_spheres_and_the_box(tmp_path, ending, module):
    io = needed("ovito.io")
    needed(module)
    states = recorded(pile(), tmp_path / f"a.{ending}")
    source = io.import_file(str(tmp_path / f"a.{ending}"))
    assert source.source.num_frames == len(states)
    for number, state in enumerate(states):
        data = source.compute(number)
        cell, particles = np.array(data.cell), data.particles
        np.testing.assert_allclose(cell[:, :3], np.diag(BOX.lengths), rtol=1e-6)
        assert data.attributes["time"] == pytest.approx(state.time)
        moved = cell[:, 3] - BOX.origin  # .gsd has its box around 0
        turns = (np.array(particles.positions) - moved - state.positions) / BOX.lengths
        np.testing.assert_allclose(turns, np.rint(turns), atol=1e-6)
        if ending == "xyz":
            np.testing.assert_allclose(moved, 0, atol=1e-9)
            assert tuple(data.cell.pbc) == BOX.periodic
        for name, values in (
            ("Radius", state.radii),
            ("Velocity", state.velocities),
            ("angular_velocity", state.spins),
        ):
            np.testing.assert_allclose(np.array(particles[name]), values, rtol=1e-6, atol=1e-7)
