# SPDX-License-Identifier: BSD-3-Clause
r"""
Two streams of electrons
========================

Two beams that cross each other make a wave that grows until it traps their electrons. You find its growth rate by
particle-in-cell in one dimension. One form of the force conserves momentum, the other energy.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import newton

import particlemesh as pm
from particlemesh.fourier import Solver

# %%
# Linear theory
# -------------
# Times are in units of the inverse plasma frequency of both beams together. The beams have velocities 1 and -1. A wave
# :math:`e^{i(kx - \omega t)}` of cold beams solves
#
# .. math::
#
#    1 = \frac{1}{2} \left[ \frac{1}{(\omega - k)^2} + \frac{1}{(\omega + k)^2} \right].
#
# It grows fastest at :math:`k = \sqrt{3/8}`, with the rate :math:`\gamma = 1 / \sqrt{8}`.

k = np.sqrt(3 / 8)
beams = np.array([1.0, -1.0])
gamma = newton(lambda g: 1 - 0.5 * (1 / (1j * g - k * beams) ** 2).sum().real, 0.3)
print(f"theory: gamma = {gamma:.8f}, expected {1 / np.sqrt(8):.8f}")

# %%
# A start in the growing wave
# ---------------------------
# An electron of beam s is displaced by :math:`\xi_s = E / (\omega - k s)^2` in the field E of the wave. With this start
# no other wave is there, and the field grows from the first step on. Each beam has 512 electrons.

length, count = 2 * np.pi / k, 512
places = (np.arange(count) + 0.5) * length / count
rates = 1j * gamma - k * beams[:, None]
shift = 1e-3 * np.exp(1j * k * places) / rates**2
start = (places + shift.real).ravel() % length
speeds = (beams[:, None] + (-1j * rates * shift).real).ravel()
charges = np.full(2 * count, -length / (2 * count))  # of density -1, as masses are of density 1
masses = -charges

# %%
# Two forms of the force
# ----------------------
# ``gradient="ik"``, the default, takes the field's slope on the mesh and interpolates it. This conserves **momentum**,
# and no electron pulls itself. ``gradient="window"`` takes the slope of the interpolated potential. This is the
# derivative of an **energy**, which only the time step changes. ``compensation="continuous"`` suits the smooth density
# of beams.
#
# A solver warns of ``"window"`` with point charges, since each charge then pulls itself. Here 16 electrons share a
# node: the force of one on itself is small beside that of the wave.

mesh, step = pm.Mesh(64, length), 0.05
times, trapped = step * np.arange(701), 440


def simulate(solver):
    """Return the field, total momentum and total energy at all times, and electrons once they are trapped."""
    x, v = start.copy(), speeds.copy()
    field, momentum, energy = (np.empty(len(times)) for _ in range(3))
    for n in range(len(times)):
        potential, slope = solver.set_positions(x).potential_and_gradient(charges)
        half = step / 2 * slope[:, 0]  # charge / mass is -1
        v += half
        field[n] = 2 / (k * length) * abs(charges @ np.exp(-1j * k * x))
        momentum[n], energy[n] = masses @ v, (masses @ v**2 + charges @ potential) / 2
        if n == trapped:
            vortex = x.copy(), v.copy()
        v += half
        x = (x + step * v) % length
    return field, momentum, energy, vortex


results = {}
for form in ("ik", "window"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        solver = Solver(mesh, "bspline4", compensation="continuous", gradient=form)
    results[form] = simulate(solver)

# %%
# The growth rate
# ---------------
# While the field is small it grows by the rate of theory. Then the wave traps the electrons, and the beams roll up.

fig, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.4))
for form, line in (("ik", "-"), ("window", "--")):
    left.semilogy(times, results[form][0], line, label=f'gradient="{form}"')
left.semilogy(
    times, results["ik"][0][0] * np.exp(gamma * times), ":", color="0.5", label="linear theory"
)
left.set(
    title="Electric field of the wave",
    xlabel=r"time $\times\ \omega_p$",
    ylabel="field",
    ylim=(5e-4, 60),
)
left.legend(loc="upper left")
x, v = results["ik"][3]
for beam, colour in ((slice(None, count), "C0"), (slice(count, None), "C1")):
    right.plot(x[beam], v[beam], ".", color=colour, markersize=2)
right.set(
    title=f"Electrons at time {times[trapped]:.0f}",
    xlabel="position",
    ylabel="velocity",
    xlim=(0, length),
)
plt.show()

# %%
# With both forms the rate is that of theory to a percent. One conserves momentum to rounding. The other conserves
# energy far better; a shorter time step would improve it further.

for form, (field, momentum, energy, _) in results.items():
    early = (field > 2e-3) & (field < 2e-2) & (times < 15)
    rate = np.polyfit(times[early], np.log(field[early]), 1)[0]
    print(f"{form}: growth rate {rate:.5f}, expected {gamma:.5f}")
    print(
        f"{form}: largest total momentum {abs(momentum).max():.1e}, change of energy {np.ptp(energy) / energy[0]:.1e}"
    )
    assert abs(rate / gamma - 1) < 0.01, "the growth rate is not that of theory"
assert abs(results["ik"][1]).max() < 1e-12, "the momentum has changed"
energies = [np.ptp(results[form][2]) for form in ("window", "ik")]
assert energies[0] < energies[1] / 3, "the energy has changed as much as with the other form"
