# SPDX-License-Identifier: BSD-3-Clause
"""The square root of a particle-mesh operator, applied to a vector: the Lanczos iteration of Brownian dynamics.

Random displacements are ``y = sqrt(A) z`` with normal random numbers ``z``. Here ``A z = interpolate(G spread(z))
+ shift z``, where G is a screened kernel, a multiplication in Fourier space. Interpolation is the adjoint of
spreading, so A is symmetric and positive. Each step of the iteration is a product with A, so particles that stay
where they are are spread 20 times: what a method prepares for their positions pays off, if the plan is kept.

    python examples/lanczos.py
    python examples/lanczos.py --backend cuda --particles 1000000 --mesh 128 --method single_mesh
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.fft
from scipy.linalg import eigh_tridiagonal

import particlemesh as pm

AXES = (-3, -2, -1)


def screened(nodes: int, fft: Any) -> np.ndarray:
    """Return G of a periodic unit cube by wave number: 1 for the longest wave, less for shorter ones."""
    whole, half = (np.asarray(f(nodes, 1 / nodes)) ** 2 for f in (fft.fftfreq, fft.rfftfreq))
    return 1 / (1 + (whole[:, None, None] + whole[:, None] + half) / 4)


class Operator:
    """A: vectors (components, particles) to vectors. With ``renew`` positions are given anew for every product."""

    def __init__(
        self, plan: pm.Plan, positions: Any, symbol: Any, fft: Any, shift: float, *, renew: bool = False
    ) -> None:
        self.plan, self.positions, self.symbol, self.fft = plan, positions, symbol, fft
        self.shift, self.renew = shift, renew
        plan.set_positions(positions)

    def __call__(self, z: Any) -> Any:
        if self.renew:
            self.plan.set_positions(self.positions)
        field = self.plan.spread(z)
        wave = self.fft.rfftn(field, axes=AXES)
        wave *= self.symbol
        return self.plan.interpolate(self.fft.irfftn(wave, field.shape[-3:], axes=AXES)) + self.shift * z


def square_root(product: Callable[[Any], Any], z: Any, steps: int) -> Any:
    """Return sqrt(A) z from the Krylov space of ``steps`` products, for any kind of array."""
    size = float((z * z).sum()) ** 0.5
    basis = [z / size]
    diagonal: list[float] = []
    beside: list[float] = []
    for step in range(steps):
        w = product(basis[-1])
        diagonal.append(float((w * basis[-1]).sum()))
        w = w - diagonal[-1] * basis[-1]
        if step > 0:
            w = w - beside[-1] * basis[-2]
        length = float((w * w).sum()) ** 0.5
        if step == steps - 1 or length <= 1e-12 * diagonal[0]:  # the space holds all that A makes of z
            break
        beside.append(length)
        basis.append(w / length)
    values, vectors = eigh_tridiagonal(diagonal, beside)
    first = vectors @ (np.sqrt(np.maximum(values, 0)) * vectors[0])  # the first column of the matrix's root
    y = basis[0] * (size * first[0])
    for factor, direction in zip(first[1:], basis[1:], strict=True):
        y = y + (size * factor) * direction
    return y


def spread_by(plan: pm.Plan) -> str:
    """Return the method that spreads: the first that ``explain`` has marked."""
    return next(line.split()[1] for line in plan.explain().splitlines() if line.startswith("*"))


def seconds(plan: pm.Plan, call: Callable[[], Any]) -> tuple[float, Any]:
    """Return how long a call and what it submitted took, and its result."""
    plan.backend.synchronize()
    start = time.perf_counter()
    result = call()
    plan.backend.synchronize()
    return time.perf_counter() - start, result


def phases(plan: pm.Plan, positions: Any, z: Any, times: int = 5) -> tuple[float, float]:
    """Return the seconds of all that positions ask for, and of one spread after that."""

    def anew() -> None:
        plan.set_positions(positions)
        plan.spread(z)

    anew()  # memory is found, kernels are compiled
    both = min(seconds(plan, anew)[0] for _ in range(times))
    once = min(seconds(plan, lambda: plan.spread(z))[0] for _ in range(times))
    return max(both - once, 0.0), once


def options(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="sqrt(A) z by Lanczos, with positions given once or for every product")
    parser.add_argument("--backend", choices=("cpu", "opencl", "cuda"), default="cpu")
    parser.add_argument("--method", default="auto", help="of spreading")
    parser.add_argument("--particles", type=int, default=30_000)
    parser.add_argument("--mesh", type=int, default=32, help="nodes along each axis")
    parser.add_argument("--window", default="bspline4")
    parser.add_argument("--steps", type=int, default=20)
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> dict[str, float]:
    """Run the iteration both ways, print a table, and return the errors that were found."""
    chosen = options(words)
    xp: Any = np
    fft: Any = scipy.fft
    if chosen.backend == "cuda":
        import cupy

        xp, fft = cupy, cupy.fft
    rng = np.random.default_rng(2015)
    positions = xp.asarray(rng.random((chosen.particles, 3)))
    z = xp.asarray(rng.standard_normal((3, chosen.particles)))  # a vector of forces for each particle
    symbol = xp.asarray(screened(chosen.mesh, scipy.fft))
    mesh = pm.Mesh((chosen.mesh,) * 3, (1.0, 1.0, 1.0))

    trials = {}
    for title, applications in (("once", chosen.steps), ("for every product", 1)):
        plan = pm.Plan(
            mesh, chosen.window, dtype="float64", components=3, applications=applications, method=chosen.method,
            backend=chosen.backend,
        )  # fmt: skip
        trials[title] = Operator(plan, positions, symbol, fft, shift=0.1, renew=applications == 1)
        trials[title](z)  # compiles
    results: dict[str, Any] = {}
    whole = dict.fromkeys(trials, np.inf)
    for _ in range(2):
        for title, product in trials.items():
            product.plan.set_positions(positions)  # nothing is left over from before
            took, results[title] = seconds(product.plan, lambda p=product: square_root(p, z, chosen.steps))
            whole[title] = min(whole[title], took)

    def apart(a: Any, b: Any) -> float:
        return float((((a - b) ** 2).sum() / (b**2).sum()) ** 0.5)

    y, kept = results["once"], trials["once"]
    errors = {
        "agreement": apart(results["for every product"], y),
        "residual": apart(square_root(kept, y, chosen.steps), kept(z)),
    }
    size = f"{chosen.particles:,} particles, 3 components, {chosen.mesh}^3 nodes, {chosen.window}"
    print(f"sqrt(A) z in {chosen.steps} steps: {size}, {kept.plan.backend.device}\n")
    heads = ("positions", "applications", "spread by", "prepare / ms", "spread / ms", "iteration / ms")
    print(f"{heads[0]:<18}{heads[1]:>12}  {heads[2]:<14}" + "".join(f"{head:>16}" for head in heads[3:]))
    for title, product in trials.items():
        times = (*phases(product.plan, positions, z), whole[title])
        row = f"{title:<18}{product.plan.applications:>12}  {spread_by(product.plan):<14}"
        print(row + "".join(f"{1e3 * t:>16.3f}" for t in times))
    print(f"\nBoth results agree to {errors['agreement']:.1e}; sqrt(A) sqrt(A) z is A z to {errors['residual']:.1e}.")
    return errors


if __name__ == "__main__":
    main()
