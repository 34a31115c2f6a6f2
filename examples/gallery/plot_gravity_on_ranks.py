# SPDX-License-Identifier: BSD-3-Clause
r"""
Gravity on many processes
=========================

A universe of cold dark matter collapses into halos and filaments, in steps of the scale factor. The program is the same
for one process and for many: particles live on the process that owns the space around them. It prints the growth of the
longest waves beside linear theory, and what is left of the momentum.

Here one process ran it. Two do so with ``mpiexec -n 2 python -m mpi4py plot_gravity_on_ranks.py mpi``, and print the
same checksum: the tests run both.
"""

import itertools
import sys
import zlib

import matplotlib.pyplot as plt
import numpy as np

import particlemesh as pm
from particlemesh import distributed as pmd
from particlemesh.fourier import Transform

if sys.argv[1:] == ["mpi"]:
    from mpi4py import MPI

    world = pmd.World(MPI.COMM_WORLD)
else:
    world = pmd.World()

# %%
# The start
# ---------
# Lengths are in Mpc/h, and waves have the power spectrum of Bardeen et al. (1986) with :math:`\Gamma = 0.21`. Each
# process makes the same small universe and takes its share of the particles: the modes of this one fit into any memory.
# At scale factor :math:`a` Zel'dovich moves a particle by :math:`a` times its displacement.

length, nodes, first, last, steps = 96.0, 64, 0.05, 1.0, 30
mesh = pm.Mesh((nodes,) * 3, (length,) * 3)
transform = Transform(mesh, "pcs")
k = np.sqrt(transform.k2)
q = np.maximum(k, 1e-9) / 0.21
polynomial = 1 + 3.89 * q + (16.1 * q) ** 2 + (5.46 * q) ** 3 + (6.71 * q) ** 4
power = 2.2e6 * k * (np.log1p(2.34 * q) / (2.34 * q)) ** 2 / np.sqrt(polynomial)  # (Mpc/h)^3, today
noise = transform.forward(np.random.default_rng(1983).standard_normal(mesh.shape))
contrast = transform.inverse(noise / np.abs(noise) * np.sqrt(power / length**3) * nodes**3)
potential = transform.apply(contrast, transform.green("poisson"))
displacement = transform.gradient(potential).reshape(3, -1).T
lattice = np.indices(mesh.shape).reshape(3, -1).T * mesh.spacing

mine = slice(world.rank, None, world.size)
x = mesh.box.fold(lattice[mine] + first * displacement[mine])
p = first**1.5 * displacement[mine]  # a² dx/dt, with times in units of 1 / H today

# %%
# Steps
# -----
# In a flat universe of matter :math:`H = a^{-3/2}`. With :math:`\nabla^2 \phi = \delta` the motion is
#
# .. math::
#
#    \frac{dp}{da} = -\frac{3}{2} a^{-1/2} \nabla \phi, \qquad \frac{dx}{da} = a^{-3/2} p
#
# Kicks and drifts use the exact integrals of both factors. ``Solver`` gives slopes of the potential of charges, whose
# sign is the other one: gravity attracts. Slopes of modes pull no particle by itself. After each drift ``route.send``
# hands over the particles that have left their process; all others stay. ``deterministic`` makes sums that no cut of
# space changes.

domain = pmd.Domain(mesh, world.size)
solver = pmd.Solver(domain, world, "pcs", gradient="ik", deterministic=True)


def sums(*numbers):
    """Return sums over all processes."""
    return world.allreduce(np.array(numbers, float))


def pulled(x, p):
    """Return the particles at their owners, and how they are pulled there."""
    solver.set_positions(x)
    pull = solver.gradient(np.full(len(x), mesh.node_volume))  # of the mean density 1
    return solver.plan.route.send(x, p, pull)


def projected(x):
    """Return the density of a slab of 16 Mpc/h on a picture, of all processes."""
    inside = x[x[:, 2] < 16.0, :2]
    picture = pm.Mesh((96, 96), (length, length))
    density = world.allreduce(pm.spread(inside, np.ones(len(inside)), picture, window="pcs"))
    return np.log10(np.maximum(density / density.mean(), 0.05))


def spectrum(x):
    """Return the power spectrum of all particles."""
    return pmd.power_spectrum(x, np.ones(len(x)), domain, world, window="pcs")


x, p, pull = pulled(x, p)
pictures, spectra, moved = [projected(x)], [spectrum(x)], 0
scale = np.linspace(np.sqrt(first), np.sqrt(last), steps + 1) ** 2
for a, b in itertools.pairwise(scale):
    middle = (a + b) / 2
    p = p + 3 * (np.sqrt(middle) - np.sqrt(a)) * pull
    x = mesh.box.fold(x + 2 * (1 / np.sqrt(a) - 1 / np.sqrt(b)) * p)
    x, p, pull = pulled(x, p)
    moved += solver.plan.route.moved
    p = p + 3 * (np.sqrt(b) - np.sqrt(middle)) * pull
pictures.append(projected(x))
spectra.append(spectrum(x))

# %%
# The web
# -------
# Lines are borders between processes, of which a single one has none.

if world.rank == 0:
    fig, axes = plt.subplots(1, 2, figsize=(7.2, 3.6), sharey=True)
    for ax, shown, a in zip(axes, pictures, (first, last), strict=True):
        look = {"cmap": "magma", "vmin": -1.0, "vmax": 1.6, "interpolation": "bicubic"}
        image = ax.imshow(shown.T, extent=(0, length, 0, length), **look)
        ax.set(title=f"a = {a:g}", xlabel="x / (Mpc/h)")
        for part in domain.parts() if world.size > 1 else ():
            low, high = (np.array(ends[:2]) * length / nodes for ends in part)
            ax.add_patch(plt.Rectangle(low, *(high - low), fill=False, color="w", linewidth=0.8))
    axes[0].set(ylabel="y / (Mpc/h)")
    levels = [0.1, 0.3, 1, 3, 10, 30]
    bar = fig.colorbar(image, ax=axes, label="density / mean density", extend="min", shrink=0.85)
    bar.set_ticks(np.log10(levels), labels=levels)
    plt.show()

# %%
# What is known
# -------------
# The longest waves grow in proportion to the scale factor, the shortest much faster. Forces on the mesh add up to
# nothing, so that the momentum stays zero. The checksum does not depend on the order of particles, and each one
# changes it.

early, late = spectra
growth = np.sqrt(late.power[0] / early.power[0])
momentum = np.abs(sums(*p.sum(0))).max() / sums(np.abs(p).sum())[0]
bits = sum(zlib.crc32(row.tobytes()) for row in np.hstack([x, p]))
checksum, moves, count = map(int, sums(bits, moved, len(x)))
if world.rank == 0:
    print(f"processes: {world.size}; particles: {count:,}; moves between processes: {moves:,}")
    print(f"growth of the longest waves: {growth:.3f}, expected {last / first:.3f} within 5 %")
    print(f"momentum left over: {momentum:.1e}, expected below 1e-10")
    print(f"checksum of places and momenta: {checksum}")
assert abs(growth * first / last - 1) < 0.05, "long waves do not grow as linear theory says"
assert momentum < 1e-10, "the forces do not add up to zero"
