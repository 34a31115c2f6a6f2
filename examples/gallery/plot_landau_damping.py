# SPDX-License-Identifier: BSD-3-Clause
r"""
Landau damping
==============

A plasma wave loses its energy to electrons that move with it, without any collision. A particle-in-cell simulation in
one dimension finds the frequency and the damping rate of linear theory.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import curve_fit, newton
from scipy.special import wofz

import particlemesh as pm
from particlemesh.fourier import Solver

# %%
# Linear theory
# -------------
# Times are in units of the inverse plasma frequency, lengths in Debye lengths, velocities in thermal velocities.
# The least damped wave :math:`e^{i(kx - \omega t)}` solves the dispersion relation
#
# .. math::
#
#    1 + \frac{1 + \zeta Z(\zeta)}{k^2} = 0, \qquad \zeta = \frac{\omega}{\sqrt{2} k},
#
# where :math:`Z` is the plasma dispersion function.

k = 0.5


def dispersion(omega):
    """Return the dielectric function of a Maxwellian plasma."""
    zeta = omega / (np.sqrt(2) * k)
    return 1 + (1 + zeta * 1j * np.sqrt(np.pi) * wofz(zeta)) / k**2


root = newton(dispersion, 1.4 - 0.15j)
print(f"theory: omega = {root.real:.10f}, gamma = {root.imag:.10f}")

# %%
# A quiet start
# -------------
# Random velocities would hide a small wave in noise. Here 400 beams of evenly spaced velocity carry the Maxwellian as
# the weights of their electrons. Each beam has 128 electrons, displaced so that their density is
# :math:`1 + 0.01 \cos(kx)`.

length = 2 * np.pi / k
velocities = np.linspace(-6.0, 6.0, 400)
places = (np.arange(128) + 0.5) * length / 128
maxwellian = np.exp(-(velocities**2) / 2)
moved = places - 0.01 / k * np.sin(k * places)
x, v = (a.ravel() for a in np.meshgrid(moved, velocities, indexing="ij"))
charges = -np.tile(maxwellian / maxwellian.sum(), len(places)) * length / len(places)

# %%
# The simulation
# --------------
# A :class:`~particlemesh.fourier.Solver` spreads the charges, solves Poisson's equation and interpolates the field at
# the electrons. The ions are the uniform background that it adds. Electrons move by the leapfrog scheme.

solver = Solver(pm.Mesh(32, length), "bspline4", green="poisson", compensation="continuous")
step = 0.1
times = step * np.arange(201)
wave = np.empty(len(times))
for n in range(len(times)):
    potential, slope = solver.set_positions(x).potential_and_gradient(charges)
    # The amplitude of the field follows from Gauss's law. Velocities are half a step ahead.
    wave[n] = -2 / (k * length) * charges @ np.cos(k * x)
    v += (step if n else step / 2) * slope[:, 0]
    x = (x + step * v) % length

# %%
# Frequency and damping
# ---------------------
# At time 5 the waves that are damped faster have gone. A damped cosine fits the rest.


def damped(t, amplitude, omega, gamma, phase):
    """Return a damped cosine at times t."""
    return amplitude * np.exp(gamma * t) * np.cos(omega * t + phase)


late = times >= 5
guess = (0.02, 1.5, -0.1, 0.0)
(amplitude, omega, gamma, phase), _ = curve_fit(damped, times[late], wave[late], guess)

# %%
# Where has the energy gone? The electrons remember the wave: their distribution in phase space winds up into ever finer
# stripes, which cancel in the density. Spreading the electrons onto a mesh of position and velocity shows the stripes.

phase_space = pm.Mesh((64, 200), (length, 14.0), origin=(0.0, -7.0), periodic=(True, False))
distribution = pm.spread((x, v), -charges, phase_space, window="bspline4")
distribution /= phase_space.node_volume
change = 1e3 * (distribution - distribution.mean(0))

fig, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.6), width_ratios=(1.25, 1))
left.semilogy(times, np.abs(wave), label="simulation")
label = rf"fit: $e^{{{gamma:.4f}\,t}}$".replace("-", "−")
left.semilogy(times, amplitude * np.exp(gamma * times), "--", label=label)
left.set(title="Electric field of the wave", xlabel=r"time $\times\ \omega_p$", ylim=(1e-4, 4e-2))
left.set_ylabel(r"$E\ /\ (m v_{th} \omega_p / e)$")
left.legend(loc="upper right")
limit = np.abs(change).max()
colours = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit, "interpolation": "bicubic"}
image = right.imshow(change.T, extent=(0, length, -7, 7), aspect="auto", **colours)
right.set(title=f"Electrons at time {times[-1]:.0f}", ylim=(-4, 4), xticks=(0, 4, 8, 12))
right.set(xlabel=r"position / $\lambda_D$", ylabel=r"velocity / $v_{th}$")
fig.colorbar(image, label=r"change of the distribution $\times\ 10^3$")
plt.show()

# %%
# The frequency and the damping rate agree with theory.

print(f"omega: {omega:.5f}, expected {root.real:.5f}")
print(f"gamma: {gamma:.5f}, expected {root.imag:.5f}")
assert abs(root - (1.4156618886 - 0.1533594669j)) < 1e-9, "the theory's root is another one"
assert abs(omega / root.real - 1) < 0.01, "the frequency is not that of theory"
assert abs(gamma / root.imag - 1) < 0.01, "the damping rate is not that of theory"
