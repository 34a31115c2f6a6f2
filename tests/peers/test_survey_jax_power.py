# SPDX-License-Identifier: BSD-3-Clause
"""Multipoles of a survey by jax-power and by ours in one run; ``JAX_POWER_FIGURES=1`` writes their file."""

import csv
import os

import numpy as np
import pytest

import survey_cases as cases
from particlemesh.fourier import survey_spectrum

jaxpower = pytest.importorskip("jaxpower", reason="jax-power is not installed")


def by_jax_power(galaxies, randoms):
    """Return columns of the file."""
    import jax

    jax.config.update("jax_enable_x64", True)
    place = jaxpower.MeshAttrs(meshsize=cases.NODES, boxsize=cases.EDGE, boxcenter=cases.CENTRE)
    fields = [
        jaxpower.ParticleField(x, weights / (1 + density * cases.POWER), attrs=place)
        for x, weights, density in (galaxies, randoms)
    ]
    both = jaxpower.FKPField(*fields)
    bins = jaxpower.BinMesh2SpectrumPoles(place, edges=cases.EDGES, ells=cases.ORDERS)
    field = both.paint(resampler="pcs", interlacing=2, compensate=True, out="real")
    norm = jaxpower.compute_fkp2_normalization(both, bin=bins, cellsize=10.0)
    noise = jaxpower.compute_fkp2_shotnoise(both, bin=bins)
    spectrum = jaxpower.compute_mesh2_spectrum(field, bin=bins, los="firstpoint").clone(norm=norm)
    poles = {f"power{order}": np.asarray(spectrum.get(order).value()) for order in cases.ORDERS}
    means = dict(k=np.asarray(spectrum.get(0).coords("k")), modes=np.asarray(bins.nmodes))
    return means | poles | dict(noise=np.asarray(noise[0]) / np.asarray(norm[0]))


def test_both_have_the_same_multipoles():
    galaxies, randoms, mesh = cases.survey()
    peer = by_jax_power(galaxies, randoms)
    if os.environ.get("JAX_POWER_FIGURES"):
        with cases.FILE.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(peer)
            writer.writerows([repr(float(n)) for n in row] for row in zip(*peer.values(), strict=True))
    ours = survey_spectrum(
        galaxies, randoms, mesh, power=cases.POWER, multipoles=cases.ORDERS, observer=(0, 0, 0), edges=cases.EDGES
    )
    cases.agree(ours, peer)
    for name, column in cases.theirs().items():
        np.testing.assert_allclose(column, peer[name], rtol=1e-6, atol=1e-6 * abs(peer[name]).max())
