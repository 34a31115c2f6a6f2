# SPDX-License-Identifier: BSD-3-Clause
"""``particlemesh dem``: spheres that fall, as a column or as rain. Units are those of the SI."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from particlemesh.apps.dem import Hertz, LinearSpring, Simulation
from particlemesh.apps.dem.contact import Contact
from particlemesh.apps.dem.record import Recorder
from particlemesh.apps.progress import quantity
from particlemesh.command import consoles, pictures
from particlemesh.command.consoles import Saving, checkpoint_of

SHAPES = ("column", "rain")
START = ("count", "shape", "radius", "polydispersity", "seed")
LAW = ("contact", "young", "stiffness", "restitution", "friction", "density", "gravity")
OTHERS = ("time_step", "dtype", "deterministic", "method")
WIDEST = 0.9  # polydispersity
GAP = 1.04  # distance of the sites of the start, in diameters of the largest sphere
FILLED = 0.25  # part of the sites that rain fills
FALLS = 4.0  # default length of a run, in times that a sphere takes to fall down the box
MOST_STEPS = 10**12
ROWS, POINTS = 10, 60  # rows that are printed, points of the curves of energy
PIECE = 100  # steps between two looks at the clock
PAUSE = 0.5  # seconds between two updates of energy and contacts in the progress bar
HEAD = f"{'step':>10}{'time / s':>12}{'kinetic / J':>13}{'total / J':>13}{'contacts':>12}{'particles/s':>14}"


class Start(NamedTuple):
    """Spheres that do not overlap, at rest in a box whose corner is at 0."""

    positions: np.ndarray  # (N, 3)
    radii: np.ndarray  # (N,)
    box: tuple[float, float, float]


def start(count: int, shape: str, radius: float, polydispersity: float, seed: int) -> Start:
    """Return the start of a run.

    A column fills the left part of a long and narrow box. Rain is anywhere in a tall one. Both sit on a lattice, off
    its sites by up to half of the gap. Radii are uniform, up to a part of the mean above and below it.


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
    """Return the simulation of a start, from the options of the command by name."""
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
    """Return the time in which a sphere falls down the box; an error if there is no gravity or no finite height."""
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


def prepare(options: Mapping[str, Any], given: set[str]) -> tuple[Simulation, Saving, int]:
    """Return the simulation, its checkpoints and the number of steps, from the options of the command."""
    consoles.check_choice("shape", options["shape"], SHAPES)
    consoles.check_choice("contact", options["contact"], ("hertz", "spring"))
    consoles.check_choice("dtype", options["dtype"], ("float64", "float32"))
    consoles.check_positive(options, "radius", "young", "stiffness", "density", "time_step")
    if not 0 <= options["polydispersity"] < WIDEST:
        raise ValueError(f"--polydispersity is {options['polydispersity']:g}; give 0 or more, below {WIDEST:g}.")
    if not 0 <= options["gravity"] < math.inf:
        raise ValueError(f"--gravity is {options['gravity']:g}; give 0 or a positive number: it points down.")
    consoles.check_ending(options["out"], ".png", ".gif")
    consoles.check_backend(options["backend"])
    stored = (*START, *LAW, *OTHERS)
    checkpoint = checkpoint_of(options, given, stored)
    consoles.refuse_idle(given, "young", options["contact"] == "hertz", "--contact spring takes --stiffness")
    consoles.refuse_idle(given, "stiffness", options["contact"] == "spring", "--contact hertz takes --young")
    consoles.refuse_idle(given, "every", options["trajectory"] is not None, "it needs --trajectory")
    if options["restart"] is None:
        spheres = simulation(options)
    else:
        if options["steps"] is None:
            raise ValueError("--restart needs --steps, the number of further steps.")
        spheres = Simulation.load(options["restart"], backend=options["backend"])
    steps = options["steps"] or FALLS * free_fall(spheres) / spheres.time_step
    if steps > MOST_STEPS:
        raise ValueError(
            f"4 falls take {steps:.3g} steps of {spheres.time_step:g} s: give --steps, or a larger --time-step."
        )
    again = consoles.again(options, given, stored)
    return spheres, Saving(spheres, checkpoint, options["checkpoint_every"], again), math.ceil(steps)


def run(console: Any, spheres: Simulation, saving: Saving, steps: int, options: Mapping[str, Any]) -> None:
    """Run a simulation, print its energy, contacts and speed, and draw it."""
    law: Any = spheres.contact
    name = {Hertz: "Hertz contacts", LinearSpring: "linear springs"}[type(law)]
    title = f"{len(spheres):,} spheres, {name}, restitution {law.restitution:g}, friction {law.friction:g}"
    console.print(f"{title}\n{steps:,} steps of {spheres.time_step:.4g} s on {spheres.backend}\n")
    trajectory, out = options["trajectory"], options["out"]
    if trajectory is not None:
        trajectory.parent.mkdir(parents=True, exist_ok=True)
    film = pictures.Film(out, spheres, fastest(spheres), steps) if consoles.can_draw() else None
    with Run(console, spheres, film, steps, saving, trajectory, options["every"]) as progress:
        console.print(HEAD, style="bold")
        with saving.stoppable("dem", progress.end) as interrupted:
            progress.go(interrupted)
    if saving.path is not None:
        console.print(f"\ncheckpoint: {saving.path}", markup=False, soft_wrap=True)
    consoles.picture(console, out, lambda: film.save(progress.energies, title))  # type: ignore[union-attr]


class Run(Recorder):
    """Steps of a simulation, and all that is done between them: rows, renderings, checkpoints and frames of a file."""

    def __init__(
        self, console: Any, simulation: Simulation, film: pictures.Film | None, steps: int, saving: Saving,
        trajectory: Path | None, every: int,
    ) -> None:  # fmt: skip
        super().__init__(simulation, steps, every, trajectory, console)
        self.console, self.film, self.saving, self.first = console, film, saving, simulation.step
        self.energies: list[tuple[float, Any]] = []  # with their times
        self.points = {self.first + round(steps * n / POINTS) for n in range(POINTS + 1)} if film else set[int]()
        self.rows = {self.first + round(steps * n / ROWS) for n in range(1, ROWS + 1)}
        self._seconds, self._row = 0.0, (0.0, self.first)  # within steps; those and the step of the last row

    def go(self, interrupted: Callable[[], bool]) -> None:
        """Make the steps, or those until Ctrl-C."""
        simulation = self.simulation
        self._between()
        while simulation.step < self.end and not interrupted():
            before, clock = simulation.step, time.perf_counter()
            simulation.run(min(PIECE, self._next() - before))
            self._seconds += time.perf_counter() - clock
            self.update_progress(simulation.step - before)
            self._between()

    def _next(self) -> int:
        """Return the next step with something to do."""
        step, saves = self.simulation.step, self.saving.every
        later = [n for n in self.rows | self.points | (self.film.steps if self.film else set()) if n > step]
        return min([*later, step + self.left, *([step - step % saves + saves] if saves else [])])

    def _between(self) -> None:
        """Do what is due between two steps."""
        simulation, step = self.simulation, self.simulation.step
        self.write()
        if step in self.points:
            self.energies.append((simulation.time, simulation.energy))
        if self.film and step in self.film.steps:
            self.film.shoot(simulation)
        if step in self.rows:
            seconds, before = self._row
            rate = (step - before) * len(simulation) / max(self._seconds - seconds, 1e-9)
            self._row = self._seconds, step
            energy = simulation.energy
            kinetic, contacts = energy.translation + energy.rotation, len(simulation.contacts.i)
            self.console.print(
                f"{step:>10,}{simulation.time:>12.4g}{kinetic:>13.4g}{energy.total:>13.4g}{contacts:>12,}"
                f"{quantity(rate):>14}"
            )
        if step > self.first:
            self.saving.due()
