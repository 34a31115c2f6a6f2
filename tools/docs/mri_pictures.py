# SPDX-License-Identifier: BSD-3-Clause
"""Draw the pictures of the tutorial on magnetic resonance imaging, into docs/pictures.

``python tools/docs/mri_pictures.py`` writes mri_phantom.svg in a few seconds. Needs matplotlib. Commit what it writes.
"""

import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from pictures import BLUE, STYLE, save

from particlemesh.apps import nufft
from particlemesh.apps.mri import density

N = 128
# Shepp and Logan's head with Toft's contrasts: intensity, half axes, centre, angle in degrees.
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


def phantom():
    """Return the head (N, N)."""
    x, y = np.meshgrid(*[(np.arange(N) - N // 2) * 2 / N] * 2, indexing="ij")
    image = np.zeros((N, N))
    for intensity, a, b, x0, y0, angle in ELLIPSES:
        c, s = np.cos(np.radians(angle)), np.sin(np.radians(angle))
        along, across = c * (x - x0) + s * (y - y0), c * (y - y0) - s * (x - x0)
        image[(along / a) ** 2 + (across / b) ** 2 <= 1] += intensity
    return image


def golden_spokes(count, readouts):
    """Return samples (count * readouts, 2) on diameters, each turned by the golden angle against the last."""
    angle = np.arange(count)[:, None] * np.pi * (np.sqrt(5) - 1) / 2
    radius = np.linspace(-np.pi, np.pi, readouts, endpoint=False)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1).reshape(-1, 2)


def conjugate_gradients(normal, right, iterations):
    """Return the approximate solutions of ``normal(x) = right`` after each iteration, from x = 0."""
    x, residual = np.zeros_like(right), right.copy()
    direction, square, solutions = right.copy(), np.vdot(right, right).real, []
    for _ in range(iterations):
        moved = normal(direction)
        step = square / np.vdot(direction, moved).real
        x = x + step * direction
        residual = residual - step * moved
        last, square = square, np.vdot(residual, residual).real
        direction = residual + square / last * direction
        solutions.append(x)
    return solutions


def main():
    """One phantom, its samples, and both reconstructions with their errors."""
    image, samples = phantom(), golden_spokes(96, 256)
    plan = nufft.Plan(2, image.shape, eps=1e-9)
    plan.setpts(*samples.T)
    values = plan.execute(image.astype(complex))
    weights = density(samples, image.shape)
    scale = 1 / (4 * image.size)  # of the normalised weights
    gridded = plan.execute_adjoint(weights * values) * scale

    def normal(x):
        return plan.execute_adjoint(weights * plan.execute(x)) * scale

    solutions = conjugate_gradients(normal, gridded, 20)
    errors = [np.linalg.norm(x - image) / np.linalg.norm(image) for x in (gridded, *solutions)]
    print(" ".join(f"{error:.3f}" for error in errors))
    figure = Figure(figsize=(8.4, 5.6), facecolor="white", layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots(2, 3).ravel()
    for axis, shown, title in (
        (axes[0], image, "phantom"),
        (axes[1], gridded.real, f"adjoint with weights: error {errors[0]:.3f}"),
        (axes[2], solutions[9].real, f"10 iterations: error {errors[10]:.3f}"),
    ):
        axis.imshow(shown.T, origin="lower", cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axis.set(xticks=[], yticks=[], title=title)
    few = samples.reshape(96, 256, 2)[:24]
    for spoke in few:
        axes[3].plot(*spoke[[0, -1]].T, color=BLUE, linewidth=0.6)
    axes[3].set(aspect="equal", title="the first 24 of 96 spokes", xlabel="radians per pixel")
    for axis, shown, title in (
        (axes[4], gridded, "its difference, ten times"),
        (axes[5], solutions[9], "its difference, ten times"),
    ):
        axis.imshow(10 * (shown.real - image).T, origin="lower", cmap="gray", vmin=-1, vmax=1, interpolation="nearest")
        axis.set(xticks=[], yticks=[], title=title)
    save(figure, "mri_phantom.svg")
    return figure


if __name__ == "__main__":
    with matplotlib.rc_context(STYLE):
        main()
