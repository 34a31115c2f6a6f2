# SPDX-License-Identifier: BSD-3-Clause
"""One step of Brownian dynamics, ``dx = (M F + kT div M) dt + sqrt(2 kT) M^(1/2) dW``, by each scheme."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from particlemesh.apps.brownian.noise import Noise

DISPLACEMENT, DIFFERENCE = 0, 1  # draws of random numbers


class Problem(NamedTuple):
    """What a step needs beside positions: kT, the time step, and what gives forces, velocities and noise."""

    force: Callable[[Any, int], Any] | None  # of positions and the step
    mobility: Any
    temperature: float
    time_step: float
    noise: Noise
    difference: float | None  # spacing of the random finite difference; None where M is free of divergence


def euler(problem: Problem, x: Any, step: int) -> Any:
    """Return how a step of Euler and Maruyama moves particles: forces and mobility are those at its start."""
    dt, mobility = problem.time_step, problem.mobility
    force = None if problem.force is None else problem.force(x, step)
    mobility.set_positions(x)
    moved = 0 * x if force is None else dt * mobility.velocity(force)
    if problem.temperature:
        moved = moved + math.sqrt(2 * problem.temperature * dt) * _kicks(problem, x, step)
        moved = _drifted(problem, x, moved, step)
    return moved


def midpoint(problem: Problem, x: Any, step: int) -> Any:
    """Return how a step moves particles that takes forces and mobility at its middle.

    The middle has the noise of the first half step, which is half of the variance of the whole step [delong2013]_.
    """
    dt, mobility = problem.time_step, problem.mobility
    force = None if problem.force is None else problem.force(x, step)
    mobility.set_positions(x)
    middle = x if force is None else x + dt / 2 * mobility.velocity(force)
    moved = 0 * x
    if problem.temperature:
        first, second = math.sqrt(problem.temperature * dt) * _kicks(problem, x, step, 2)
        middle, moved = middle + first, first + second
    if problem.force is not None:
        force = problem.force(middle, step)
        mobility.set_positions(middle)
        moved = moved + dt * mobility.velocity(force)
    return _drifted(problem, x, moved, step) if problem.temperature else moved


def _kicks(problem: Problem, x: Any, step: int, *batch: int) -> Any:
    """Return vectors (*batch, N, 3) with the covariance of the mobility, by its own way if it has one."""
    if hasattr(problem.mobility, "noise"):
        return problem.mobility.noise(problem.noise.generator(step, DISPLACEMENT), *batch)
    return problem.mobility.square_root(problem.noise.normal(step, DISPLACEMENT, (*batch, *x.shape)))


def _drifted(problem: Problem, x: Any, moved: Any, step: int) -> Any:
    """Add a random finite difference [delong2014]_ with the mean ``kT dt div M``, where that does not vanish."""
    spacing, mobility = problem.difference, problem.mobility
    if spacing is None:
        return moved
    w = problem.noise.normal(step, DIFFERENCE, x.shape)
    mobility.set_positions(x + spacing / 2 * w)
    ahead = mobility.velocity(w)
    mobility.set_positions(x - spacing / 2 * w)
    return moved + problem.temperature * problem.time_step / spacing * (ahead - mobility.velocity(w))


SCHEMES: dict[str, Callable[[Problem, Any, int], Any]] = {"euler": euler, "midpoint": midpoint}
