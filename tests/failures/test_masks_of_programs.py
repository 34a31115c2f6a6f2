# SPDX-License-Identifier: BSD-3-Clause
"""Masks of arrays that programs take: an array whose mask is dropped gives results of numbers that are not there."""

import numpy as np
import pytest

import particlemesh as pm
import particlemesh.distributed as pmd
from particlemesh import fourier, kernels
from particlemesh.apps import brownian, dem, files, nufft, pme

X = np.random.default_rng(1).random((20, 3))
Q = np.cos(np.arange(20.0))
C = Q + 1j
BOX = (1.0, 1.0, 1.0)
MESH = pm.Mesh((8, 8, 8), BOX)
FIELD = np.random.default_rng(2).random(MESH.shape)
SPRING = dem.LinearSpring(stiffness=1.0)


def ranks(thing, *arguments, **options):
    return thing(pmd.Domain(MESH, 1), pmd.World(), *arguments, **options)


def table(array, folder):
    with files.writing_table(folder / "t.npz") as rows:
        rows.append({"a": array})


def spheres():
    return brownian.RPY((20.0,) * 3, accuracy=1e-2).set_positions(20 * X)


def granular(x=20 * X, radius=0.1, v=0 * X, **options):
    return dem.Simulation(x, radius, v, **dict(density=1.0, contact=SPRING, time_step=1e-3) | options)


def charges():
    return pme.PME((4.0,) * 3, accuracy=1e-2)


# The array that is masked, and the call that takes it.
CALLS = {
    "solver positions": (X, lambda a, _: fourier.Solver(MESH, "cic").set_positions(a)),
    "solver values": (Q, lambda a, _: fourier.Solver(MESH, "cic").set_positions(X).potential(a)),
    "transformed field": (FIELD, lambda a, _: fourier.Transform(MESH, "cic").forward(a)),
    "spectrum positions": (X, lambda a, _: fourier.power_spectrum(a, Q, MESH)),
    "spectrum values": (Q, lambda a, _: fourier.power_spectrum(X, a, MESH)),
    "spectrum edges": (np.arange(1.0, 40.0), lambda a, _: fourier.power_spectrum(X, Q, MESH, edges=a)),
    "points": (X[:, 0], lambda a, _: nufft.nufft1d1(a, C, 8)),
    "strengths": (C, lambda a, _: nufft.nufft1d1(X[:, 0], a, 8)),
    "modes": (C[:8], lambda a, _: nufft.nufft1d2(X[:, 0], a)),
    "frequencies": (Q, lambda a, _: nufft.nufft1d3(X[:, 0], C, a)),
    "charged positions": (4 * X, lambda a, _: charges()(a, Q)),
    "charges": (Q, lambda a, _: charges()(4 * X, a)),
    "dipoles": (X, lambda a, _: charges()(4 * X, Q, dipoles=a)),
    "exclusions": (
        np.array([[0, 1], [2, 3]]), lambda a, _: pme.PME((4.0,) * 3, accuracy=1e-2, exclusions=a)(4 * X, Q),
    ),
    "attracted positions": (4 * X, lambda a, _: pme.Dispersion((4.0,) * 3, accuracy=1e-2)(a, Q)),
    "coefficients": (Q, lambda a, _: pme.Dispersion((4.0,) * 3, accuracy=1e-2)(4 * X, a)),
    "spheres": (20 * X, lambda a, _: brownian.RPY((20.0,) * 3, accuracy=1e-2).set_positions(a)),
    "forces": (X, lambda a, _: spheres().velocity(a)),
    "noise": (X, lambda a, _: spheres().square_root(a)),
    "diffusing spheres": (20 * X, lambda a, _: brownian.BrownianDynamics(a, spheres(), time_step=0.1)),
    "grains": (20 * X, lambda a, _: granular(a)),
    "grain radii": (Q**2 + 0.1, lambda a, _: granular(radius=a)),
    "grain velocities": (X, lambda a, _: granular(v=a)),
    "grain densities": (Q**2 + 0.1, lambda a, _: granular(density=a)),
    "rank positions": (X, lambda a, _: ranks(pmd.Plan, "cic").set_positions(a)),
    "rank values": (Q, lambda a, _: ranks(pmd.Plan, "cic").set_positions(X).spread(a)),
    "rank fields": (FIELD, lambda a, _: ranks(pmd.Plan, "cic").set_positions(X).interpolate(a)),
    "rank grids": (X, lambda a, _: ranks(pmd.UniformGrid, radius=0.2).build(a)),
    "rank transforms": (FIELD, lambda a, _: ranks(pmd.FFT).forward(a)),
    "kernel operands": (X, lambda a, _: kernels.take(a, (None, 3), "x")),
    "written fields": (FIELD, lambda a, folder: files.write_field(folder / "f.npz", a, MESH)),
    "written columns": (Q, table),
}  # fmt: skip


@pytest.mark.parametrize("what", CALLS)
def test_masks_are_never_dropped(what, tmp_path):
    host, call = CALLS[what]
    with pytest.raises(TypeError, match="the mask would be lost"):
        call(np.ma.array(host, mask=np.arange(host.size).reshape(host.shape) == 3), tmp_path)
    assert list(tmp_path.iterdir()) == []
    call(host, tmp_path)
