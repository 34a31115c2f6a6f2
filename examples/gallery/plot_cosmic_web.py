# SPDX-License-Identifier: BSD-3-Clause
r"""
The cosmic web
==============

Zel'dovich's approximation moves matter along straight lines, away from where the early universe was thin. You make
such a universe, measure its power spectrum early on, and draw the web of filaments that it becomes.
"""

import matplotlib.pyplot as plt
import numpy as np

import particlemesh as pm
from particlemesh.fourier import Transform, binned_power, power_spectrum

# %%
# The linear power spectrum
# -------------------------
# Lengths are in Mpc/h. The transfer function of cold dark matter is that of Bardeen et al. (1986) with
# :math:`\Gamma = 0.21`. The variance in spheres of 8 Mpc/h is :math:`0.8^2` today.


def shape(k):
    """Return the linear power spectrum up to a factor."""
    q = np.maximum(k, 1e-9) / 0.21
    polynomial = 1 + 3.89 * q + (16.1 * q) ** 2 + (5.46 * q) ** 3 + (6.71 * q) ** 4
    return k * (np.log1p(2.34 * q) / (2.34 * q)) ** 2 / np.sqrt(polynomial)


k = np.geomspace(1e-4, 20, 4000)
sphere = 3 * (np.sin(8 * k) - 8 * k * np.cos(8 * k)) / (8 * k) ** 3
variance = np.trapezoid(shape(k) * sphere**2 * k**3 / (2 * np.pi**2), np.log(k))


def linear_power(k):
    """Return the linear power spectrum today, in (Mpc/h)^3."""
    return 0.8**2 / variance * shape(k)


# %%
# A random realisation
# --------------------
# Modes have random phases and the amplitude of the spectrum, so that no chance of amplitudes hides small errors. With
# :math:`-\nabla^2 \phi = \delta` the displacement is :math:`\nabla \phi`: its divergence is minus the density contrast
# :math:`\delta`.

length, nodes = 128.0, 128
mesh = pm.Mesh((nodes,) * 3, (length,) * 3)
transform = Transform(mesh, "pcs")
noise = transform.forward(np.random.default_rng(1970).standard_normal(mesh.shape))
power = linear_power(np.sqrt(transform.k2))
contrast = transform.inverse(noise / np.abs(noise) * np.sqrt(power / length**3) * nodes**3)
potential = transform.apply(contrast, transform.green("poisson"))
displacement = transform.gradient(potential).reshape(3, -1).T
lattice = np.indices(mesh.shape).reshape(3, -1).T * mesh.spacing

# %%
# The early universe
# ------------------
# When fluctuations were a hundredth of today's, the particles' spectrum is the linear one times :math:`0.01^2`.
# Particles on a displaced lattice have no shot noise, so none is subtracted.

growth, half = 0.01, np.pi * nodes / length / 2
early = power_spectrum(lattice + growth * displacement, np.ones(len(lattice)), mesh, window="pcs")
linear = binned_power(transform, power)  # the mean over the same modes
ratio = early.power / growth**2 / linear.power

fig, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.2))
left.loglog(k, linear_power(k), label="linear theory")
left.loglog(early.k, early.power / growth**2, "o", markersize=3, label="particles, scaled")
left.set(title="Power spectrum", xlabel="k / (h/Mpc)", ylabel="P / (Mpc/h)³")
left.set(xlim=(0.03, 4), ylim=(1, 2e4))
left.legend(loc="lower left")
right.axhspan(-1, 1, color="0.92")
right.axvline(half, color="0.6", linewidth=1)
right.text(half, 2.6, " half of the highest\n wavenumber", fontsize=9, va="top")
right.plot(early.k, 100 * (ratio - 1), "C1o", markersize=3)
right.set(title="Error of the particles' power", xlabel="k / (h/Mpc)", ylabel="error / %")
right.set(xlim=(0, np.pi), ylim=(-3, 3))
plt.show()

below = early.k < half
error = np.abs(ratio[below] - 1).max()
print(f"largest error below half of the highest wavenumber: {error:.4f}, expected below 0.01")
assert error < 0.01, "the power of the particles is not that of linear theory"

# %%
# The web today
# -------------
# Where particles have crossed, Zel'dovich's approximation smears filaments out. Smoothing the displacement first keeps
# them thin. Eight shifted lattices sample it between the nodes: they are the particles of a slab of 8 Mpc/h.

factors = np.exp(-transform.k2 * 1.2**2 / 2) * transform.compensation("spread")
smooth = transform.gradient(transform.apply(potential, factors))
slab, reach = 8.0, 2 * np.abs(smooth[2]).max()
start = lattice[lattice[:, 2] < slab + reach]
picture = pm.Mesh((256, 256), (length, length))
density = np.zeros(picture.shape)
plan = pm.Plan(mesh, "pcs", components=3)
for shift in np.ndindex(2, 2, 2):
    places = start + np.array(shift) * mesh.spacing / 2 - np.array([0, 0, reach / 2])
    moved = places + plan.set_positions(places).interpolate(smooth).T
    inside = (moved[:, 2] >= 0) & (moved[:, 2] < slab)
    density += pm.spread(moved[inside, :2], np.ones(inside.sum()), picture, window="pcs")
density /= density.mean()

shown = np.log10(np.maximum(density.T, 0.05))
fig, ax = plt.subplots(figsize=(7.2, 6.2))
colours = {"cmap": "magma", "vmin": -1.0, "vmax": 1.45, "interpolation": "bicubic"}
image = ax.imshow(shown, extent=(0, length, 0, length), **colours)
ax.set(title="A slab of 8 Mpc/h", xlabel="x / (Mpc/h)", ylabel="y / (Mpc/h)")
levels = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20]
bar = fig.colorbar(image, label="density / mean density", extend="min")
bar.set_ticks(np.log10(levels), labels=levels)
plt.show()
# sphinx_gallery_thumbnail_number = 2
