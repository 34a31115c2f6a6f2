# SPDX-License-Identifier: BSD-3-Clause
r"""
Magnetic resonance imaging on spirals
=====================================

A scanner measures the Fourier transform of a head along spirals. The phantom's transform is known exactly.
So the samples are those of the continuous object, and each image can be compared with the best one that the spirals
allow.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import j1

from particlemesh.apps import nufft
from particlemesh.apps.mri import density

# %%
# The phantom of Shepp and Logan
# ------------------------------
# It is a sum of ten ellipses: intensity, half axes, centre, and angle in degrees. Lengths are in units of half of the
# field of view. The transform of an ellipse is a Bessel function.

ELLIPSES = [
    (1.0, 0.69, 0.92, 0.0, 0.0, 0.0),
    (-0.8, 0.6624, 0.874, 0.0, -0.0184, 0.0),
    (-0.2, 0.11, 0.31, 0.22, 0.0, -18.0),
    (-0.2, 0.16, 0.41, -0.22, 0.0, 18.0),
    (0.1, 0.21, 0.25, 0.0, 0.35, 0.0),
    (0.1, 0.046, 0.046, 0.0, 0.1, 0.0),
    (0.1, 0.046, 0.046, 0.0, -0.1, 0.0),
    (0.1, 0.046, 0.023, -0.08, -0.605, 0.0),
    (0.1, 0.023, 0.023, 0.0, -0.606, 0.0),
    (0.1, 0.023, 0.046, 0.06, -0.605, 0.0),
]
pixels = 128


def transform(kx, ky):
    """Return the Fourier transform of the phantom; wavenumbers are in radians per pixel."""
    total, unit = 0.0, pixels / 2
    for intensity, a, b, x, y, angle in ELLIPSES:
        cosine, sine = np.cos(np.radians(angle)), np.sin(np.radians(angle))
        along, across = cosine * kx + sine * ky, cosine * ky - sine * kx
        q = np.maximum(unit * np.hypot(a * along, b * across), 1e-9)
        shift = np.exp(-1j * unit * (kx * x + ky * y))
        total = total + intensity * 2 * np.pi * a * b * unit**2 * j1(q) / q * shift
    return total


# %%
# Sixteen spirals
# ---------------
# Each spiral makes five turns from the centre to the highest wavenumber, :math:`\pi` per pixel. Its angle grows evenly
# in time, so that samples are dense in the middle. Together the spirals have 80 turns. A round field of view of 128
# pixels needs 64, and this one is square.

leaves, readouts = 16, 2048
time = (np.arange(readouts) + 0.5) / readouts
angle = 2 * np.pi * (5 * time + np.arange(leaves)[:, None] / leaves)
kx, ky = (np.pi * time * np.cos(angle)).ravel(), (np.pi * time * np.sin(angle)).ravel()
measured = transform(kx, ky)

# %%
# Three images
# ------------
# The adjoint of the transform sums the samples at each pixel. Weights make up for the density of samples. Conjugate
# gradients solve the least squares problem with these weights: a transform and an adjoint in each iteration.

plan = nufft.Plan(2, (pixels, pixels), eps=1e-9)
plan.setpts(kx, ky)
weights = density(np.stack([kx, ky], axis=-1), (pixels, pixels)) / (4 * pixels**2)
unweighted = plan.execute_adjoint(measured) / len(measured)
weighted = plan.execute_adjoint(weights * measured)


def normal(flat):
    """Transform an image, weight its samples, and transform back."""
    return plan.execute_adjoint(weights * plan.execute(flat.reshape(pixels, pixels))).ravel()


operator = LinearOperator((pixels**2, pixels**2), matvec=normal, dtype=complex)
solution, _ = cg(operator, weighted.ravel(), rtol=0.0, maxiter=10)
solved = solution.reshape(pixels, pixels)

# %%
# The spirals reach wavenumbers below :math:`\pi`. The best image has the phantom's transform there and nothing beyond.
# Its ripples along edges are what a scanner with these spirals sees.

k = 2 * np.pi * (np.arange(pixels) - pixels // 2) / pixels
grid = np.meshgrid(k, k, indexing="ij")
reached = np.hypot(*grid) < np.pi
best = np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(np.where(reached, transform(*grid), 0.0))))


def within_reach(image):
    """Return an image without the wavenumbers that no spiral reaches."""
    return np.fft.ifft2(np.fft.fft2(image) * np.fft.ifftshift(reached))


def error(image):
    """Return the relative difference from the best image."""
    return np.linalg.norm(within_reach(image) - best) / np.linalg.norm(best)


fig, axes = plt.subplots(2, 3, figsize=(7.2, 5.1))
axes = axes.ravel()
path = np.stack([kx, ky]).reshape(2, leaves, readouts)
axes[0].plot(*path[:, 1:].swapaxes(1, 2), color="0.8", linewidth=0.5)
axes[0].plot(*path[:, 0], linewidth=1.2)
axes[0].set(title="sixteen spirals", aspect="equal", xlim=(-3.15, 3.15), ylim=(-3.15, 3.15))
for ax, image, title in (
    (axes[1], unweighted, "adjoint, no weights"),
    (axes[2], weighted, f"weights: error {100 * error(weighted):.1f} %"),
    (axes[3], best, "best image"),
    (axes[4], within_reach(solved), f"10 iterations: error {100 * error(solved):.1f} %"),
):
    highest = np.abs(image).max() if image is unweighted else 0.5
    ax.imshow(image.real.T, cmap="gray", vmin=0, vmax=highest)
    ax.set(title=title)
difference = (within_reach(solved) - best).real
axes[5].imshow(difference.T, cmap="gray", vmin=-0.01, vmax=0.01)
axes[5].set(title="difference, 25 times")
for ax in axes:
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
plt.show()

total, exact = solved.real.sum(), transform(0.0, 0.0).real
print(f"sum over all pixels: {total:.3f}, expected {exact:.3f}")
print(f"error after 10 iterations: {error(solved):.4f}, expected below 0.01")
assert abs(total / exact - 1) < 1e-3, "the image's intensity is not that of the phantom"
assert error(solved) < 0.01, "the image is not the best one that the spirals allow"
