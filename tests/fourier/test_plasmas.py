# SPDX-License-Identifier: BSD-3-Clause
"""Waves of electrons in one dimension grow and fade by the rates of linear theory, within one percent."""

import numpy as np
import pytest
from scipy.optimize import curve_fit, newton
from scipy.special import wofz

import particlemesh as pm
from particlemesh.fourier import Solver


def fields(x, v, charges, k, count, step, gradient="ik"):
    """Return the amplitude of the field of the wave k at `count` times of leapfrog, from Gauss's law."""
    length = 2 * np.pi / k
    solver = Solver(pm.Mesh(32, length), "bspline4", green="poisson", compensation="continuous", gradient=gradient)
    wave = np.empty(count, complex)
    for n in range(count):
        slope = solver.set_positions(x % length).gradient(charges)[:, 0]
        wave[n] = 2j / (k * length) * (charges @ np.exp(-1j * k * x))
        v = v + (step if n else step / 2) * slope
        x = x + step * v
    return wave


@pytest.mark.filterwarnings("ignore:.*itself")
@pytest.mark.parametrize("gradient", ["ik", "window"])
@pytest.mark.parametrize("k", [0.4, np.sqrt(3 / 8), 0.8])
def test_two_cold_beams_grow_by_their_rate(k, gradient):
    """Of 1 = [1 / (w - k)^2 + 1 / (w + k)^2] / 2 the growing root has w^2 = k^2 + 1/2 - sqrt(2 k^2 + 1/4)."""
    gamma = np.sqrt(np.sqrt(2 * k**2 + 0.25) - k**2 - 0.5)
    beams, count, step = np.array([[1.0], [-1.0]]), 256, 0.05
    places = (np.arange(count) + 0.5) * 2 * np.pi / k / count
    rates = 1j * gamma - k * beams
    shift = 1e-4 * np.exp(1j * k * places) / rates**2
    x, v = (places + shift.real).ravel(), (beams - (1j * rates * shift).real).ravel()
    wave = abs(fields(x, v, np.full(2 * count, -np.pi / k / count), k, 201, step, gradient))
    rate = np.polyfit(step * np.arange(201)[50:], np.log(wave[50:]), 1)[0]
    assert rate == pytest.approx(gamma, rel=0.01)


@pytest.mark.parametrize("k", [0.4, 0.5])
def test_landau_damps_a_wave_of_a_maxwellian(k):
    """Its frequency and rate solve 1 + (1 + z Z(z)) / k^2 = 0 with z = w / (sqrt(2) k)."""

    def dispersion(omega):
        z = omega / (np.sqrt(2) * k)
        return 1 + (1 + z * 1j * np.sqrt(np.pi) * wofz(z)) / k**2

    root = newton(dispersion, 1.4 - 0.1j)
    length, step = 2 * np.pi / k, 0.1
    places, speeds = (np.arange(64) + 0.5) * length / 64, np.linspace(-6, 6, 200)
    weights = np.exp(-(speeds**2) / 2)
    x, v = (a.ravel() for a in np.meshgrid(places - 0.01 / k * np.sin(k * places), speeds, indexing="ij"))
    charges = -np.tile(weights / weights.sum(), 64) * length / 64
    times, wave = step * np.arange(201), fields(x, v, charges, k, 201, step).imag

    def damped(t, size, omega, gamma, phase):
        return size * np.exp(gamma * t) * np.cos(omega * t + phase)

    (_, omega, gamma, _), _ = curve_fit(damped, times[50:], wave[50:], (0.02, 1.4, -0.1, 0.0))
    assert (omega, gamma) == (pytest.approx(root.real, rel=0.01), pytest.approx(root.imag, rel=0.01))
