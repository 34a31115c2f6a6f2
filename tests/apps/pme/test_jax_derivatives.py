# SPDX-License-Identifier: BSD-3-Clause
"""Second derivatives in JAX are differences of first ones, in each order of modes."""

import contextlib
import functools

import numpy as np
import pytest

from multipole_ewald import system
from particlemesh.apps.pme import PME, PMEBatch

jax = pytest.importorskip("jax")

from particlemesh.apps.pme import jax as of_jax  # noqa: E402 - needs JAX

BOX = np.array([[2.0, 0.0, 0.0], [0.3, 2.2, 0.0], [-0.4, 0.5, 1.9]])
SPLITS = {"gaussian": dict(splitting=3.5), "prolate": dict(bandwidth=20.0)}
FINE = dict(cutoff=1.7, shape=(24, 27, 24), window="bspline8")
PAIRS = dict(exclusions=[[0, 1], [4, 2]], factors=[0.0, 0.5])
NAMES = "dipoles", "quadrupoles", "widths"
OWNERS, WEIGHTS = (
    np.array([0, 0, 1, 0, 1, 0, 0, 1, 1, 1], np.int32),
    np.array([2.0, -0.5, 1.0]),
)  # the last system is empty


def along(function, mode):
    """Return the change of the gradient along steps, by two derivatives in modes."""
    count = {"argnums": None}

    def of(arrays, steps):
        count["argnums"] = tuple(range(len(arrays)))
        slopes = jax.grad(function, count["argnums"])
        if mode == "forward of reverse":
            return jax.jvp(slopes, arrays, steps)[1]
        if mode == "reverse of reverse":
            dot = lambda *a: sum((s * t).sum() for s, t in zip(slopes(*a), steps, strict=True))  # noqa: E731
            return jax.grad(dot, count["argnums"])(*arrays)
        return jax.grad(lambda *a: jax.jvp(function, list(a), steps)[1], count["argnums"])(
            *arrays
        )  # reverse of forward

    return jax.jit(of)


@pytest.mark.parametrize("mode", ["forward of reverse", "reverse of reverse", "reverse of forward"])
@pytest.mark.parametrize("many", [False, True], ids=["one", "systems"])
@pytest.mark.parametrize("kind", ["charges", "all"])
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("listed", [7, 2**18])
@pytest.mark.turns(11)
def test_second_derivatives_are_differences_of_first_ones(split, kind, many, mode, listed, monkeypatch):
    """Pairs are listed seven at a time, or all at once."""
    monkeypatch.setattr(of_jax, "_MOST", listed)
    arrays, rng = list(system(BOX))[: 2 if kind == "charges" else 5], np.random.default_rng(3)
    pme = PME(BOX, **FINE, **SPLITS[split], **PAIRS)
    more, cell = {}, BOX
    if many:
        arrays = [np.concatenate([a, a[:4]]) for a in arrays]
        arrays[0] = arrays[0] + 0.02 * rng.normal(size=(10, 3))
        pme, cell = PMEBatch(BOX, 3, **FINE, **SPLITS[split]), np.array([BOX, 1.1 * BOX, BOX])
        more = dict(exclusions=[[0, 1], [4, 2]], factors=[0.0, 0.5], system=OWNERS)
    arrays.append(cell)
    steps = [rng.normal(size=a.shape) * (a != 0) for a in arrays]

    def total(x, q, *rest):
        *moments, cell = rest
        value = of_jax.energy(pme, x, q, cell=cell, **dict(zip(NAMES, moments, strict=False)), **more)
        return value @ WEIGHTS if many else value

    with jax.enable_x64(True):
        second = [np.asarray(a) for a in along(total, mode)(arrays, steps)]
        slopes, h = jax.jit(jax.grad(total, tuple(range(len(arrays))))), 1e-4

        def at(n):
            return slopes(*(a + n * h * s for a, s in zip(arrays, steps, strict=True)))

        for value, *ends in zip(second, *map(at, (-2, -1, 1, 2)), strict=True):
            difference = np.tensordot([1, -8, 8, -1], np.array(ends), 1) / (12 * h)
            np.testing.assert_allclose(value, difference, rtol=0, atol=1e-6 * abs(difference).max())
    if kind == "charges":  # second derivatives of Gaussians that overlap need float64
        single = along(total, mode)([a.astype("f4") for a in arrays], [s.astype("f4") for s in steps])
        for one, two in zip(map(np.asarray, single), second, strict=True):
            assert one.dtype == np.float32
            np.testing.assert_allclose(one, two, rtol=0, atol=1e-4 * abs(two).max())


def test_hessians_of_all_modes_agree_and_third_derivatives_are_refused():
    x, q = (a[:3] for a in system(BOX)[:2])
    pme = PME(BOX, cutoff=1.0, bandwidth=10.0, shape=12, window="bspline4", exclusions=[[0, 1]])
    energy = functools.partial(of_jax.energy, pme)
    with jax.enable_x64(True):
        hessian = jax.jit(jax.hessian(energy))
        one, moved = hessian(x, q), hessian(x + 0.1, q)
        np.testing.assert_allclose(jax.jit(jax.jacrev(jax.grad(energy)))(x, q), one, rtol=0, atol=1e-9 * abs(one).max())
        np.testing.assert_allclose(
            jax.jit(jax.jacfwd(jax.jacfwd(energy)))(x, q), one, rtol=0, atol=1e-9 * abs(one).max()
        )
        mapped = jax.jit(jax.vmap(hessian, (0, None)))(np.stack([x, x + 0.1]), q)
        np.testing.assert_allclose(mapped, np.stack([one, moved]), rtol=0, atol=1e-9 * abs(one).max())
        with pytest.raises(NotImplementedError, match="third derivatives"):
            jax.jit(jax.jacfwd(jax.hessian(energy)))(x, q)


@pytest.mark.parametrize("kind", ["charges", "all"])
def test_sums_over_pairs_get_arrays_where_they_are(kind, monkeypatch):
    """On the CPU they are read in place. On a GPU they are CuPy's, and the numbers are those of the CPU."""
    seen, sums = set(), of_jax.derivatives.pair_sums

    def noted(library, text, x, *more):
        seen.add((library.xp.__name__, type(x).__module__.partition(".")[0], bool(x.flags.owndata)))
        return sums(library, text, x, *more)

    monkeypatch.setattr(of_jax.derivatives, "pair_sums", noted)
    platforms, results = {"numpy": jax.devices("cpu")[0]}, []
    with contextlib.suppress(RuntimeError):  # there is no GPU
        platforms["cupy"] = jax.devices("cuda")[0]
    with jax.enable_x64(True):
        arrays = list(system(BOX))[: 2 if kind == "charges" else 5]
        for name, device in platforms.items():
            there = [jax.device_put(a, device) for a in arrays]
            pme = PME(BOX, **FINE, splitting=3.5, **PAIRS)

            def energy(x, *values, pme=pme):
                return of_jax.energy(pme, x, values[0], **dict(zip(NAMES, values[1:], strict=False)))

            slopes = jax.grad(energy, tuple(range(len(arrays))))
            twice = kind == "charges" and "cupy" in platforms  # compiling that takes long
            results.append(jax.tree.leaves(jax.jvp(slopes, there, there) if twice else slopes(*there)))
            assert seen == {(name, name, False)}
            seen.clear()
    for other in results:
        for a, b in zip(other, results[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-9 * abs(np.asarray(b)).max())
