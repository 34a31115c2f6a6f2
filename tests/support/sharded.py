# SPDX-License-Identifier: BSD-3-Clause
"""A program: functions of JAX on two devices by ``shard_map`` beside the same on one; prints their differences.

Arguments are names of cases.
"""

import json
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import particlemesh as pm
from particlemesh.apps.pme import PME, InducedDipoles, PMEBatch
from particlemesh.apps.pme import jax as electrostatics
from particlemesh.autograd import jax as transfer
from particlemesh.autograd.jax_nufft import nufft1, nufft2

EACH, WHOLE = P("i"), P()
MESH = pm.Mesh((6, 7, 8), (2.0, 2.2, 1.9))
BOX = np.array([[2.0, 0.0, 0.0], [0.3, 2.2, 0.0], [-0.4, 0.5, 1.9]])
rng = np.random.default_rng(0)
HALF = 12  # particles of a device
SITES = np.stack(np.meshgrid(*[np.arange(3) / 3] * 3, indexing="ij"), -1).reshape(-1, 3)
FRACTIONS = np.concatenate([rng.permutation(SITES)[:HALF] + rng.uniform(0, 0.1, (HALF, 3)) for _ in range(2)])
X, Q, F = FRACTIONS @ BOX, rng.normal(size=2 * HALF), rng.normal(size=MESH.shape)
V, POINTS, MU = rng.normal(size=(2 * HALF, 3)), rng.uniform(-3, 3, 2 * HALF), rng.normal(size=(2 * HALF, 3))
MODES = rng.normal(size=9) + 1j * rng.normal(size=9)
OPTIONS = dict(cutoff=0.9, bandwidth=12.0, shape=(16, 18, 16), window="bspline6")
SYSTEM = np.tile(np.repeat([0, 1], HALF // 2), 2).astype(np.int32)

one = PME(BOX, **OPTIONS, exclusions=[[0, 1], [4, 2]])
many = PMEBatch(BOX, 2, **OPTIONS)
model = InducedDipoles(PME(BOX, **OPTIONS), 1e-9)


def energy(x, q, cell=None, **more):
    return electrostatics.energy(one, x, q, cell=cell, **more)


def potential(x, q, cell=None):
    return transfer.potential(x, q, MESH, cell=cell, green="ewald", alpha=3.0)


def distances(x):
    return (transfer.neighbour_list("D", x, BOX, 0.8, capacity=400)[0] ** 2).sum()


def twice(x, v):
    """A product of second derivatives with steps."""
    return jax.jvp(jax.grad(lambda x: energy(x, jnp.ones(HALF))), (x,), (v,))[1]


# What each device makes of its arrays, and which arrays are parts; the others all have.
RESULTS = {
    "spread": (lambda x, q: transfer.spread(x, q, MESH)[None], (X, Q), "xx"),
    "interpolate": (lambda f, x: transfer.interpolate(f, x, MESH), (F, X), "-x"),
    "gradient": (lambda f, x: transfer.gradient(f, x, MESH), (F, X), "-x"),
    "spread_gradient": (lambda x, v: transfer.spread_gradient(x, v, MESH)[None], (X, V), "xx"),
    "potential": (potential, (X, Q), "xx"),
    "energy": (lambda x, q: energy(x, q)[None], (X, Q), "xx"),
    "forces": (jax.grad(energy), (X, Q), "xx"),
    "forces for charges of all": (jax.grad(energy), (X, Q[:HALF]), "x-"),
    "second derivatives": (twice, (X, V), "xx"),
    "systems": (lambda x, q, s: electrostatics.energy(many, x, q, s), (X, Q, SYSTEM), "xxx"),
    "type 1": (lambda x, q: nufft1(x, q + 0j, 9)[None], (POINTS, Q), "xx"),
    "type 2": (lambda x, m: nufft2(x, m), (POINTS, MODES), "x-"),
}
# What each device adds to a sum, which is differentiated by its arrays of reals.
SUMS = {
    "interpolation": (
        lambda f, x, q, c: (transfer.interpolate(f, x, MESH, cell=c) * q).sum(), (F, X, Q, BOX), "-xx-",
    ),
    "spreading": (lambda x, q, f: (transfer.spread(x, q, MESH) * f).sum(), (X, Q, F), "xx-"),
    "charges of all": (lambda x, q: (transfer.spread(x, q, MESH) ** 2).sum(), (X, Q[:HALF]), "x-"),
    "potentials": (lambda x, q, c: (q * potential(x, q, c)).sum(), (X, Q, BOX), "xx-"),
    "energies": (energy, (X, Q, BOX), "xx-"),
    "energies of dipoles": (lambda x, q, mu: energy(x, q, dipoles=mu), (X, Q, MU), "xxx"),
    "induced dipoles": (
        lambda x, q, a: electrostatics.induced_dipoles(model, x, q, a)[0], (X, Q, np.full(HALF, 0.02)), "xx-",
    ),
    "distances": (distances, (X,), "x"),
}  # fmt: skip


def differences(function, arrays, parts, summed):
    """The largest relative difference of a result on two devices from that of the same on one."""
    arrays, devices = [jnp.asarray(a) for a in arrays], jax.sharding.Mesh(np.array(jax.devices()), ("i",))
    assert devices.size == 2
    specs, which = tuple(EACH if part == "x" else WHOLE for part in parts), tuple(range(len(arrays)))

    def halves(arrays):
        return [
            [jnp.split(a, 2)[k] if part == "x" else a for a, part in zip(arrays, parts, strict=True)] for k in (0, 1)
        ]

    if summed:
        call = jax.value_and_grad(lambda *a: jax.lax.psum(function(*a), "i"), which)
        outs, alone = (WHOLE, specs), jax.jit(jax.value_and_grad(function, which))
        (one, first), (two, second) = (alone(*half) for half in halves(arrays))
        joined = (
            jnp.concatenate(both) if part == "x" else sum(both)
            for *both, part in zip(first, second, parts, strict=True)
        )
        expected = one + two, tuple(joined)
    else:
        call, outs, alone = function, EACH, jax.jit(function)
        expected = jnp.concatenate([alone(*half) for half in halves(arrays)])
    result = jax.jit(jax.shard_map(call, mesh=devices, in_specs=specs, out_specs=outs))(*arrays)
    errors = jax.tree.map(lambda a, b: float(abs(a - b).max() / abs(b).max()), result, expected)
    return max(jax.tree.leaves(errors))


def main():
    jax.config.update("jax_enable_x64", True)
    answers = {}
    for summed, cases in enumerate((RESULTS, SUMS)):
        for name in cases.keys() & set(sys.argv[1:]):
            try:
                answers[name] = differences(*cases[name], summed)
            except Exception as error:
                answers[name] = f"{type(error).__name__}: {error}"[:800]
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
