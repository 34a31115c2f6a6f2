# SPDX-License-Identifier: BSD-3-Clause
"""The simulation of ``particlemesh dem``: spheres that fall, as a column or as rain. Units are those of the SI."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from particlemesh import backends
from particlemesh.apps.dem import Hertz, LinearSpring, Simulation
from particlemesh.apps.dem.contact import Contact
from particlemesh.command.consoles import check_picture, refuse_idle
from particlemesh.command.going_on import checkpoint_of

SHAPES = ("column", "rain")
CONTACTS = ("hertz", "spring")
START = ("count", "shape", "radius", "polydispersity", "seed")
LAW = ("contact", "young", "stiffness", "restitution", "friction", "density", "gravity")
OTHERS = ("time_step", "dtype", "deterministic", "method")
WIDEST = 0.9  # polydispersity
GAP = 1.04  # distance of the sites of the start, in diameters of the largest sphere
FILLED = 0.25  # part of the sites that rain fills
FALLS = 4.0  # default length of a run, in times that a sphere takes to fall down the box


class Start(NamedTuple):
    """Spheres that do not overlap, at rest in a box whose corner is at 0."""

    positions: np.ndarray  # (N, 3)
    radii: np.ndarray  # (N,)
    box: tuple[float, float, float]


def start(count: int, shape: str, radius: float, polydispersity: float, seed: int) -> Start:
    """Return the start of a run.

    A column fills the left part of a long and narrow box. Rain is anywhere in a tall one. Both sit on a lattice, off
    its sites by up to half of the gap.

    Parameters
    ----------
    count : int
    shape : {"column", "rain"}
    radius : float
        Mean radius.
    polydispersity : float
        Radii are uniform within this part above and below the mean, below 1.
    seed : int
        Of the random numbers.

    Returns
    -------
    Start

    Examples
    --------
    >>> positions, radii, box = start(1000, "column", 0.005, 0.1, seed=1)
    >>> bool((positions > radii[:, None]).all()), bool((positions + radii[:, None] < box).all())
    (True, True)
    """
    random = np.random.default_rng(seed)
    radii = radius * random.uniform(1 - polydispersity, 1 + polydispersity, count)
    widest = radius * (1 + polydispersity)
    site = 2 * widest * GAP
    if shape == "column":  # two parts wide, one deep, three high
        part = (count / 6) ** (1 / 3)
        wide, deep = max(round(2 * part), 1), max(round(part), 1)
        high = math.ceil(count / (wide * deep))
        places = np.arange(count)
        box = (3.2 * wide * site, deep * site, 1.15 * high * site)
    else:  # twice as high as wide
        sites = math.ceil(count / FILLED)
        wide = deep = max(round((sites / 2) ** (1 / 3)), 1)
        high = math.ceil(sites / (wide * deep))
        places = random.choice(wide * deep * high, count, replace=False)
        box = (wide * site, deep * site, high * site)
    corners = np.stack([places // deep % wide, places % deep, places // (wide * deep)], axis=1)
    room = site / 2 - widest
    positions = (corners + 0.5) * site + random.uniform(-room, room, (count, 3))
    return Start(positions, radii, box)


def simulation(options: Mapping[str, Any]) -> Simulation:
    """Return the simulation of a start.

    Parameters
    ----------
    options : mapping
        Those of the command by name: the arguments of `start`, and all in ``LAW`` and ``OTHERS``.

    Returns
    -------
    Simulation
    """
    begin = start(*(options[name] for name in START))
    law: Contact
    damping = {"restitution": options["restitution"], "friction": options["friction"]}
    if options["contact"] == "hertz":
        law = Hertz(young=options["young"], **damping)
    else:
        law = LinearSpring(stiffness=options["stiffness"], **damping)
    return Simulation(
        begin.positions.astype(options["dtype"]), begin.radii, density=options["density"], contact=law, box=begin.box,
        gravity=options["gravity"], backend=options["backend"] or "cpu",
        **{name: options[name] for name in OTHERS if name != "dtype"},
    )  # fmt: skip


def free_fall(simulation: Simulation) -> float:
    """Return the time in which a sphere falls down the box.

    Raises
    ------
    ValueError
        If nothing falls: there is no gravity along z, or the box has no floor or no height.
    """
    height, pull = simulation.domain.lengths[2], abs(simulation.gravity[2])
    if not (math.isfinite(height) and pull > 0):
        raise ValueError("nothing falls here: give --steps.")
    return math.sqrt(2 * height / pull)


def fastest(simulation: Simulation) -> float:
    """Return the speed after a fall down the box, or the present one where nothing falls."""
    height, pull = simulation.domain.lengths[2], abs(simulation.gravity[2])
    if math.isfinite(height) and pull > 0:
        return math.sqrt(2 * height * pull)
    return float(np.linalg.norm(simulation.velocities, axis=1).max(initial=0.0)) or 1.0


def prepare(options: Mapping[str, Any], given: set[str]) -> tuple[dict[str, Any], Simulation]:
    """Return the arguments of `collide.collide`, and the simulation, from the options of the command.

    Parameters
    ----------
    options : mapping
        By name.
    given : set of str
        Names of those that do not have their default.

    Raises
    ------
    ValueError, TypeError
        If an option is not allowed, or the backend is not available.
    ImportError
        If a library is missing for what is asked.
    """
    backend, restart = options["backend"], options["restart"]
    _check(options)
    checkpoint = checkpoint_of(options, given, (*START, *LAW, *OTHERS))
    refuse_idle(given, "young", options["contact"] == "hertz", "--contact spring takes --stiffness")
    refuse_idle(given, "stiffness", options["contact"] == "spring", "--contact hertz takes --young")
    refuse_idle(given, "every", options["trajectory"] is not None, "it needs --trajectory")
    if restart is None:
        spheres = simulation(options)
    else:
        if options["steps"] is None:
            raise ValueError("--restart needs --steps, how many more.")
        spheres = Simulation.load(restart, backend=backend)
    steps = options["steps"] or math.ceil(FALLS * free_fall(spheres) / spheres.time_step)
    work = {name: options[name] for name in ("out", "checkpoint_every", "trajectory", "every")}
    return work | {"title": title(spheres), "steps": steps, "checkpoint": checkpoint}, spheres


def title(simulation: Simulation) -> str:
    """Return what a simulation is, in one line."""
    law: Any = simulation.contact
    name = {Hertz: "Hertz contacts", LinearSpring: "linear springs"}[type(law)]
    return f"{len(simulation):,} spheres, {name}, restitution {law.restitution:g}, friction {law.friction:g}"


def _check(options: Mapping[str, Any]) -> None:
    for name, allowed in (("shape", SHAPES), ("contact", CONTACTS), ("dtype", ("float64", "float32"))):
        if options[name] not in allowed:
            raise ValueError(f"--{name} is {options[name]!r}; give {' or '.join(allowed)}.")
    for name in ("radius", "young", "stiffness", "density", "time_step"):
        if options[name] is not None and not 0 < options[name] < math.inf:
            raise ValueError(f"--{name.replace('_', '-')} is {options[name]:g}; give a positive number.")
    if not 0 <= options["polydispersity"] < WIDEST:
        raise ValueError(f"--polydispersity is {options['polydispersity']:g}; give 0 or more, below {WIDEST:g}.")
    if not 0 <= options["gravity"] < math.inf:
        raise ValueError(f"--gravity is {options['gravity']:g}; give 0 or a positive number: it points down.")
    check_picture(options["out"], ".png", ".gif")
    backend = options["backend"]
    if backend is not None:
        if backend not in backends.NAMES:
            raise ValueError(f"--backend is {backend!r}; give one of {', '.join(backends.NAMES)}.")
        reason = backends.module(backend).available()
        if reason is not None:
            raise ValueError(f"{backend} is not available: {reason}.")
