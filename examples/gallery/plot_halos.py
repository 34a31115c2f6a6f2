# SPDX-License-Identifier: BSD-3-Clause
r"""
Halos and the errors of their power
===================================

Halos are a random sample of a density that you cannot see. You make a catalogue whose power spectrum is known. Then you
measure the spectrum with its shot noise and its errors, and see by how many errors the two differ.
"""

import matplotlib.pyplot as plt
import numpy as np

import particlemesh as pm
from particlemesh.fourier import Transform, binned_power, power_spectrum

# %%
# A lognormal density
# -------------------
# Lengths are in Mpc/h. The density contrast is :math:`e^{g - \sigma^2 / 2} - 1` with Gaussian :math:`g` of variance
# :math:`\sigma^2`: it is above -1 everywhere. Its correlations :math:`\xi` are those wanted if :math:`g` has
# :math:`\ln(1 + \xi)`. The spectrum falls as that of cold dark matter does, with a bias of 2.

length, nodes, count = 600.0, 96, 60_000
mesh = pm.Mesh((nodes,) * 3, (length,) * 3)
transform = Transform(mesh)


def spectrum_of(k):
    """Return the power in (Mpc/h)^3."""
    return 1.6e5 * (k / 0.02) / (1 + (k / 0.02) ** 2) ** 1.2 * np.exp(-((k / 0.6) ** 2))


power = spectrum_of(np.sqrt(transform.k2))
power.flat[0] = 0.0
to_modes = nodes**3 / mesh.box.volume
correlation = transform.inverse(power.astype(complex) * to_modes)
gaussian = transform.forward(np.log1p(correlation)).real / to_modes
random = np.random.default_rng(5)
noise = transform.forward(random.standard_normal(mesh.shape))
field = transform.inverse(noise * np.sqrt(np.maximum(gaussian, 0) * to_modes))
density = np.exp(field - field.var() / 2)

# %%
# The catalogue
# -------------
# Each cell has a Poisson number of halos, at random places in it. That smooths the density by a cell.

halos = random.poisson(count * density / density.sum())
corners = np.stack(
    np.unravel_index(np.repeat(np.arange(nodes**3), halos.ravel()), mesh.shape), axis=1
)
positions = (corners + random.random(corners.shape)) * mesh.spacing

# %%
# The measurement
# ---------------
# Shot noise is subtracted, and errors are :math:`P \sqrt{2 / \mathrm{modes}}`. The spectrum of the model
# is averaged over the same modes.

edges = np.linspace(0.015, 0.24, 16)
measured = power_spectrum(positions, None, mesh, edges=edges)
smoothing = np.prod(
    np.broadcast_arrays(
        *(np.sinc(k * length / nodes / (2 * np.pi)) for k in mesh.wavenumbers(real=True))
    ),
    0,
)
model = binned_power(transform, power * smoothing**2, edges=edges)
signal = measured.power - measured.shot_noise
deviations = (signal - model.power) / measured.error

fig, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.6), width_ratios=(1, 1.3))
slab = positions[:, 2] < 60
left.plot(*positions[slab, :2].T, ".", markersize=1.5, color="0.2")
left.set(aspect="equal", xlim=(0, length), ylim=(0, length), title="Halos of a slab of 60 Mpc/h")
left.set(xlabel="x / (Mpc/h)", ylabel="y / (Mpc/h)")
right.errorbar(measured.k, signal, measured.error, fmt="o", markersize=3, label="halos")
right.plot(model.k, model.power, color="C3", label="model")
right.plot(measured.k, measured.shot_noise, "--", color="0.5", label="shot noise, subtracted")
right.set(yscale="log", title="Power spectrum", xlabel="k / (h/Mpc)", ylabel="P / (Mpc/h)³")
right.legend(loc="upper right")
plt.show()

spread = np.sqrt(np.mean(deviations**2))
print(f"{len(positions)} halos differ from the model by {spread:.2f} errors, expected 1 within 0.4")
assert abs(spread - 1) < 0.4, "errors are not those of the measured power"
