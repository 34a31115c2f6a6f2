# SPDX-License-Identifier: BSD-3-Clause
"""No argument is ignored in silence: one that matters only beside another is refused without it."""

import inspect

import numpy as np
import pytest

import particlemesh as pm
import particlemesh.distributed as pmd
from pair_sums import VALUES
from particlemesh import fourier
from particlemesh.apps import brownian, dem, nufft, pme
from public_calls import (
    BOX,
    EWALD,
    FOUR,
    MESH,
    OBJECTS,
    RANKS,
    SPHERES,
    TWENTY,
    C,
    Q,
    V,
    X,
    parameters_of,
)

MODULES = ["", "fourier", "distributed", *(f"apps.{n}" for n in ("brownian", "dem", "pme", "nufft", "mri")),
           "autograd.torch", "autograd.jax"]  # fmt: skip
MODULE_NEEDS = {"apps.mri": "mrinufft", "autograd.torch": "torch", "autograd.jax": "jax"}
LINE, BIN = (1.0, 0.0, 0.0), dict(edges=np.arange(1.0, 40.0))
SYSTEM, HALVES = np.zeros(20, int), np.ones((2, 3))
GPU = dict(threads=2, backend="cuda")  # refused before a device is looked for


def grid(**options):
    return pm.UniformGrid(BOX, shape=(4,) * 3, **options)


def of(name, verb="__call__"):
    """Return a verb of an object of a class, which is made in the call."""
    return lambda *arguments, **options: getattr(OBJECTS[name](), verb)(*arguments, **options)


def recorded(library, verb, *arguments):
    """Return a call of a function that torch or JAX records, which gets positions first."""

    def call(**options):
        array = pytest.importorskip({"torch": "torch", "jax": "jax.numpy"}[library])
        module = pytest.importorskip(f"particlemesh.autograd.{library}")
        given = [array.asarray(a) if isinstance(a, np.ndarray) else a for a in (*arguments, *options.values())]
        getattr(module, verb)(*given[: len(arguments)], **dict(zip(options, given[len(arguments) :], strict=True)))

    return call


def over_ranks(library, **options):
    """Call the potential over ranks with arrays of torch or JAX."""
    array = pytest.importorskip({"torch": "torch", "jax": "jax.numpy"}[library])
    module = pytest.importorskip(f"particlemesh.autograd.{library}")
    module.OverRanks(pmd.Domain(MESH, 1), pmd.World()).potential(array.asarray(X), array.asarray(Q), **options)


# By public name and argument: a call that has the argument and lacks what it matters with, and words of the error.
NEED_A_PARTNER = {
    ("Mesh", "periodic"): (lambda: pm.Mesh((8,) * 3, MESH.box, periodic=True), "True beside a Box"),
    ("Mesh", "origin"): (lambda: pm.Mesh((8,) * 3, MESH.box, origin=BOX), "origin is .* beside a Box"),
    ("Plan", "threads"): (lambda: pm.Plan(MESH, **GPU), "threads is 2 and backend is 'cuda'"),
    ("Plan.set_positions", "system"): (lambda: of("Plan", "set_positions")(X, system=SYSTEM), "with systems="),
    ("Plan.set_positions", "boxes"): (lambda: of("Plan", "set_positions")(X, boxes=HALVES), "boxes.*with systems="),
    ("UniformGrid", "cell_size"): (lambda: grid(cell_size=0.1), "either cell_size.* or shape"),
    ("UniformGrid", "periodic"): (lambda: pm.UniformGrid(MESH.box, shape=4, periodic=True), "True beside a Box"),
    ("UniformGrid", "threads"): (lambda: grid(**GPU), "threads is 2 and backend is 'cuda'"),
    ("UniformGrid.build", "system"): (lambda: grid().build(X, system=SYSTEM), "with systems="),
    ("UniformGrid.build", "boxes"): (lambda: grid().build(X, boxes=HALVES), "boxes.*with systems="),
    ("UniformGrid.nearest", "system"): (lambda: grid().build(X).nearest(1, 0.1, system=SYSTEM), "with systems="),
    ("UniformGrid.neighbours", "system"): (lambda: grid().build(X).neighbours(X, 0.1, system=SYSTEM), "with systems="),
    ("UniformGrid.overlaps", "shape"): (lambda: grid().build(X).overlaps(shape="box"), "no radii"),
    ("UniformGrid.pairs", "width"): (lambda: grid().build(X).pairs(0.1, width=9), "width is 9 and format is 'csr'"),
    ("UniformGrid.pairs", "capacity"): (
        lambda: grid().build(X).pairs(0.1, format="dense", capacity=9), "capacity is 9 and format is 'dense'"),
    ("UniformGrid.stream", "values"): (
        lambda: grid().build(X).stream(0.1, pm.PairFunction(function=VALUES.function, results=1), Q), "values"),
    ("SkinList", "width"): (lambda: pm.SkinList("j", BOX, 0.1, 0.1, width=9), "width is 9 .*UniformGrid as box"),
    ("SkinList", "boxes"): (lambda: pm.SkinList("j", BOX, 0.1, 0.1, boxes=HALVES), "but not system"),
    ("SkinList", "periodic"): (
        lambda: pm.SkinList("j", MESH.box, 0.1, 0.1, periodic=True), "True beside a Box"),
    ("SkinList", "threads"): (lambda: pm.SkinList("j", BOX, 0.1, 0.1, **GPU), "threads is 2 and backend is"),
    ("SkinList.__call__", "box"): (
        lambda: pm.SkinList("j", BOX, 0.1, 0.1, system=SYSTEM, boxes=HALVES)(X, box=BOX), "give boxes"),
    ("SkinList.__call__", "boxes"): (lambda: pm.SkinList("j", BOX, 0.1, 0.1)(X, boxes=HALVES), "no systems"),
    ("neighbour_list", "periodic"): (
        lambda: pm.neighbour_list("ij", X, MESH.box, 0.1, periodic=True), "True beside a Box"),
    ("neighbour_list", "boxes"): (lambda: pm.neighbour_list("ij", X, BOX, 0.1, boxes=HALVES), "but not system"),
    ("neighbour_list", "threads"): (lambda: pm.neighbour_list("ij", X, BOX, 0.1, **GPU), "threads is 2 and backend is"),
    ("kaiser_bessel", "beta"): (lambda: pm.kaiser_bessel(6, beta=3.0, sigma=2.0), "beta is 3.0 and sigma is 2.0"),
    **{(name, argument): (lambda call=call, given=given: call(**given), words)
       for name, call in (("fourier.Solver", lambda **k: fourier.Solver(MESH, **k)),
                          ("distributed.Solver", lambda **k: pmd.Solver(**RANKS, **k)),
                          ("distributed.VectorSolver", lambda **k: pmd.VectorSolver(**RANKS, **k)),
                          ("fourier.VectorSolver", lambda **k: fourier.VectorSolver(MESH, **k)),
                          ("fourier.Transform.green", lambda **k: fourier.Transform(MESH).green(**k)))
       for argument, given, words in (("kappa", dict(kappa=1.0), "green='poisson' has no kappa"),
                                      ("alpha", dict(alpha=1.0), "green='poisson' has no alpha"),
                                      ("of", dict(of="k"), "of is 'k' beside green='poisson'"))},
    ("fourier.Solver", "slope"): (lambda: fourier.Solver(MESH, slope=np.exp), "slope is for a function green"),
    ("fourier.Solver", "margin"): (lambda: fourier.Solver(MESH, margin=8), "margin is 8 and every axis is periodic"),
    ("distributed.Solver", "slope"): (lambda: pmd.Solver(**RANKS, slope=np.exp), "slope is for a function green"),
    ("distributed.power_spectrum", "line_of_sight"): (
        lambda: pmd.power_spectrum(X, Q**2, **RANKS, line_of_sight=LINE, **BIN), "line_of_sight is for mu_bins"),
    ("fourier.Transform", "threads"): (lambda: fourier.Transform(MESH, **GPU), "threads is 2 and backend is 'cuda'"),
    ("fourier.Transform.compensation", "kind"): (
        lambda: fourier.Transform(MESH).compensation("power", kind="discrete"), "use='power'.*leave out kind"),
    ("fourier.Transform.compensation", "interlaced"): (
        lambda: fourier.Transform(MESH).compensation("spread", interlaced=True), "use='spread'.*leave out interlaced"),
    ("fourier.power_spectrum", "line_of_sight"): (
        lambda: fourier.power_spectrum(X, Q**2, MESH, line_of_sight=LINE, **BIN), "line_of_sight is for mu_bins"),
    ("fourier.binned_power", "line_of_sight"): (
        lambda: fourier.binned_power(fourier.Transform(MESH), np.ones((8, 8, 5)), line_of_sight=LINE, **BIN),
        "line_of_sight is for mu_bins"),
    ("fourier.Solver.set_positions", "system"): (
        lambda: of("fourier.Solver", "set_positions")(X, system=SYSTEM), "with systems="),
    ("fourier.Solver.set_positions", "boxes"): (
        lambda: of("fourier.Solver", "set_positions")(X, boxes=HALVES), "boxes.*with systems="),
    ("distributed.Plan", "threads"): (lambda: pmd.Plan(**RANKS, **GPU), "threads is 2 and backend is 'cuda'"),
    ("distributed.UniformGrid.pairs", "width"): (
        lambda: of("distributed.UniformGrid", "pairs")(width=9), "width is 9 and format is 'csr'"),
    ("apps.brownian.RPY", "threads"): (lambda: brownian.RPY(TWENTY, **GPU), "threads is 2 and backend is 'cuda'"),
    ("apps.brownian.RPY.square_root", "waves"): (
        lambda: of("apps.brownian.RPY", "square_root")(V, waves=Q), "waves are given with method='lanczos'"),
    ("apps.brownian.DistributedRPY.square_root", "waves"): (
        lambda: of("apps.brownian.DistributedRPY", "square_root")(V, waves=Q), "waves are given with method='lanczos'"),
    ("apps.brownian.BrownianDynamics", "difference"): (
        lambda: brownian.BrownianDynamics(20 * X, brownian.Drag(), time_step=0.1, difference=1e-3),
        "difference is 0.001, and the divergence of Drag vanishes"),
    ("apps.brownian.DistributedBrownianDynamics", "difference"): (
        lambda: brownian.DistributedBrownianDynamics(
            pmd.World(), 20 * X, brownian.Drag(), time_step=0.1, difference=1e-3),
        "difference is 0.001, and the divergence of Drag vanishes"),
    ("apps.brownian.DistributedBrownianDynamics.run", "every"): (
        lambda: of("apps.brownian.DistributedBrownianDynamics", "run")(2, every=2), "every is 2.*give trajectory="),
    ("apps.brownian.BrownianDynamics.run", "every"): (
        lambda: of("apps.brownian.BrownianDynamics", "run")(2, every=2), "every is 2.*give trajectory="),
    ("apps.dem.Simulation", "periodic"): (
        lambda: dem.Simulation(20 * X, **SPHERES, periodic=True), "periodic and of infinite length"),
    ("apps.dem.relaxed_positions", "periodic"): (
        lambda: dem.relaxed_positions(20 * X, 0.1, periodic=True), "periodic and of infinite length"),
    ("apps.dem.Rectangle", "spin"): (
        lambda: dem.Rectangle((0, 0, 0), (1, 0, 0), (0, 1, 0), spin=1.0), "no axis to turn about"),
    ("apps.dem.Simulation", "threads"): (
        lambda: dem.Simulation(20 * X, **SPHERES, threads=2, backend="opencl"), "threads is 2 and backend is 'opencl'"),
    ("apps.dem.DistributedSimulation", "periodic"): (
        lambda: dem.DistributedSimulation(pmd.World(), 20 * X, **SPHERES, periodic=True),
        "periodic and of infinite length"),
    **{(f"apps.dem.{name}.run", "every"): (
        lambda name=name: of(f"apps.dem.{name}", "run")(2, every=2), "every is 2.*give trajectory=")
       for name in ("Simulation", "DistributedSimulation")},
    **{(f"apps.pme.{name}", "threads"): (lambda make=make: make(**GPU), "threads is 2 and backend")
       for name, make in (("PME", lambda **k: pme.PME(FOUR, **k)), ("PMEBatch", lambda **k: pme.PMEBatch(FOUR, 2, **k)),
                          ("Dispersion", lambda **k: pme.Dispersion(FOUR, **k)))},
    **{(f"apps.pme.{kind}", "bandwidth"): (
        lambda make=make: make(bandwidth=9.0, splitting=1.0), "bandwidth is 9.0 and splitting is 1.0")
       for kind, make in (("PME", lambda **k: pme.PME(FOUR, **k)),
                          ("DistributedPME", lambda **k: pme.DistributedPME(pmd.World(), FOUR, **k)),
                          ("PMEBatch", lambda **k: pme.PMEBatch(FOUR, 2, **k)))},
    ("apps.pme.PME", "factors"): (lambda: pme.PME(FOUR, factors=0.5), "factors is 0.5 and exclusions are not given"),
    ("apps.pme.DistributedPME", "factors"): (
        lambda: pme.DistributedPME(pmd.World(), FOUR, factors=0.5), "factors is 0.5 and exclusions are not given"),
    ("apps.pme.PME", "skin"): (lambda: pme.PME(FOUR, skin=0.1, deterministic=True), "leave out skin, or deterministic"),
    ("apps.pme.PME", "gradient"): (
        lambda: pme.PME(FOUR, **EWALD, gradient="ik")(4 * X, Q, dipoles=V), "gradient is 'ik', and dipoles"),
    ("apps.pme.PMEBatch.__call__", "factors"): (
        lambda: of("apps.pme.PMEBatch")(4 * X, Q, np.arange(20) % 2, factors=0.5), "factors is 0.5 and exclusions"),
    ("apps.pme.Dispersion", "mixing"): (
        lambda: pme.Dispersion(FOUR, **EWALD, mixing="lorentz-berthelot")(4 * X, Q**2),
        "mixing is 'lorentz-berthelot', of sigma and epsilon"),
    ("apps.pme.Dispersion.__call__", "factors"): (
        lambda: of("apps.pme.Dispersion")(4 * X, Q**2, factors=0.5), "factors is 0.5 and exclusions are not given"),
    **{("apps.pme.Dispersion.__call__", name): (
        lambda name=name: of("apps.pme.Dispersion")(4 * X, **{name: Q**2}), "either coefficients, or sigma and epsilon")
       for name in ("sigma", "epsilon")},
    ("apps.nufft.nufft1d1", "n_modes"): (
        lambda: nufft.nufft1d1(X[:, 0], C, 8, out=np.zeros(9, complex)), "n_modes do not match"),
    **{(f"apps.nufft.{kind}.setpts", name): (
        lambda name=name, make=make: make().setpts(X[:, 0], **{name: X[:, 1]}),
        "`y` was" if name == "y" else "`z` was" if name == "z" else "s, t and u are frequencies of type 3")
       for name in "yzstu"
       for kind, make in (("Plan", lambda: nufft.Plan(1, (8,))),
                          ("DistributedPlan", lambda: nufft.DistributedPlan(pmd.World(), 1, (8,))))},
    **{(f"autograd.{library}.potential", name): (
        lambda library=library, name=name: recorded(library, "potential", X, Q, MESH)(**{name: 1.0}),
        f"green='poisson' has no {name}") for library in ("torch", "jax") for name in ("kappa", "alpha")},
    **{(f"autograd.{library}.OverRanks.potential", name): (
        lambda library=library, name=name: over_ranks(library, **{name: 1.0}), f"green='poisson' has no {name}")
       for library in ("torch", "jax") for name in ("kappa", "alpha")},
    **{(f"autograd.{library}.neighbour_list", "boxes"): (
        lambda library=library: recorded(library, "neighbour_list", "ij", X, BOX, 0.1)(boxes=HALVES), "but not system")
       for library in ("torch", "jax")},
}  # fmt: skip

EVERYWHERE = {
    "accumulate", "applications", "backend", "check", "components", "deterministic", "dtype", "eps", "interpolation",
    "isign", "method", "out", "window",
}  # fmt: skip
# By public name: arguments that change an object or a result by themselves.
USED_ALONE = """
Box: origin periodic
Mesh: offset ghosts
PairFunction: source function results values parameters
Plan: order systems options
UniformGrid: shape levels queries systems
Window: cite value_error derivative_error
fitted: degree normalise derivative derivative_tol name cite
kaiser_bessel prolate: sigma tol
neighbour_list: half system most sort_by of
SkinList: half system exact
autograd.torch.neighbour_list autograd.jax.neighbour_list: capacity half periodic system
autograd.jax.kept_list: box boxes capacity
Mesh.compensation: kind power real
Mesh.nodes Mesh.part: ghosts
Mesh.wavenumbers fourier.Transform: real
Plan.bounds Plan.spread_integers: derivative
Plan.empty_field: layout
Plan.locate: strays positions
Plan.lost: outside
UniformGrid.build UniformGrid.reserve: radii
UniformGrid.count Window.derivative Window.derivative_weights fourier.ProlateGreen.potential: order
UniformGrid.nearest: points
neighbour_matrix: columns fill
UniformGrid.neighbours UniformGrid.overlaps: quantities
UniformGrid.pairs: half order format quantities
fourier.Bands: factors order real threads
fourier.Halves: threads
fourier.Solver: green zero compensation gradient interlaced
fourier.VectorSolver: green zero onto forms compensation
fourier.binned_power: flipped shot_noise autos edges mu_bins multipoles
fourier.mode_numbers: order half
fourier.power_spectrum: interlaced compensation other edges mu_bins multipoles
fourier.correlation_function: interlaced compensation other edges
fourier.survey_spectrum: power multipoles observer line_of_sight interlaced compensation edges
fourier.Bands.to_modes fourier.Bands.to_nodes: sign
fourier.Halves.half fourier.Halves.whole: conjugate
fourier.Solver.reserve: channels virial
fourier.Solver.moment_fields: virial
fourier.Transform.compensation: use
fourier.Transform.green: green zero compensation
fourier.Transform.modes: interlaced
distributed.FFT: real parts numbers threads
distributed.Domain: parts per_rank
distributed.Plan: world ghosts options
distributed.Route: per_rank particles count
distributed.Solver: world green zero compensation gradient interlaced parts
distributed.Solver.moment_fields: virial
distributed.VectorSolver: world green zero onto forms compensation parts
distributed.power_spectrum: world interlaced compensation other edges mu_bins multipoles
distributed.UniformGrid: cell_size
distributed.World: communicator transport
distributed.Domain.balanced: particle node
distributed.FFT.inverse: norm
distributed.Domain.parts: rank
distributed.Plan.balanced: node particle
distributed.Route.back distributed.Route.send: axis
distributed.UniformGrid.count: radius
distributed.UniformGrid.pairs: radius half order format quantities
distributed.UniformGrid.stream: values meanwhile
distributed.World.agree: error call kind
distributed.World.agreement: call
distributed.World.alike: check
distributed.World.allreduce: op
distributed.World.exchange: meanwhile since
apps.brownian.RPY: radius viscosity accuracy splitting cutoff shape vectors
apps.brownian.DistributedRPY: radius viscosity accuracy splitting cutoff shape vectors parts threads
apps.brownian.WCA: epsilon sigma
apps.brownian.BrownianDynamics: forces temperature integrator seed shear_rate
apps.brownian.Drag: radius viscosity box
apps.brownian.DistributedBrownianDynamics: forces temperature integrator seed
apps.brownian.FreeRPY: radius viscosity threads
apps.brownian.FreeRPY.square_root: tolerance
apps.brownian.HarmonicBonds: length box
apps.brownian.RPY.noise apps.brownian.RPY.square_root apps.brownian.DistributedRPY.noise: tolerance
apps.brownian.DistributedRPY.square_root: tolerance
apps.brownian.DistributedBrownianDynamics.run: progress trajectory
apps.brownian.BrownianDynamics.run apps.dem.Simulation.run apps.dem.DistributedSimulation.run: progress trajectory
apps.dem.Hertz: poisson restitution friction
apps.dem.LinearSpring: tangential restitution friction
apps.dem.Simulation apps.dem.DistributedSimulation: velocities spins walls box gravity time_step overlaps
apps.dem.DistributedSimulation: threads
apps.dem.Simulation.insert apps.dem.DistributedSimulation.insert: velocities spins overlaps
apps.dem.relaxed_positions: walls box overlap most
apps.dem.Plane apps.dem.Rectangle apps.dem.Disc apps.dem.Cylinder apps.dem.Cone: velocity contact
apps.dem.Plane apps.dem.Disc apps.dem.Cylinder apps.dem.Cone: spin
apps.dem.Disc: hole
apps.pme.PME: accuracy cutoff splitting shape coulomb_constant exclusions
apps.pme.DistributedPME: accuracy cutoff splitting shape coulomb_constant exclusions gradient threads parts
apps.pme.ChargeEquilibration: tolerance iterations
apps.pme.Dispersion: accuracy cutoff splitting shape shift
apps.pme.InducedDipoles: tolerance thole iterations
apps.pme.PMEBatch: accuracy cutoff splitting shape coulomb_constant
apps.pme.slab_correction: axis coulomb_constant fields
apps.pme.PME.__call__: dipoles quadrupoles widths virial fields error
apps.pme.PME.core apps.pme.DistributedPME.core apps.pme.Dispersion.core apps.pme.PMEBatch.core: fourth
apps.pme.PME.reserve: sets virial dipoles quadrupoles
apps.pme.ChargeEquilibration.__call__: widths total guess virial
apps.pme.Dispersion.__call__: coefficients exclusions
apps.pme.InducedDipoles.__call__: dipoles field guess virial
apps.pme.PMEBatch.__call__: dipoles quadrupoles widths boxes exclusions fields virial
apps.pme.PMEBatch.reserve: quadrupoles virial
apps.nufft.Plan: n_trans
apps.nufft.DistributedPlan: n_trans parts
apps.nufft.Plan.setpts apps.nufft.DistributedPlan.setpts: x
apps.mri.density: iterations oversampling normalise
apps.mri.OffResonance: maps accuracy segments interpolator
apps.mri.MRIParticlemesh: density n_coils n_batchs n_trans smaps squeeze_dims
apps.mri.MRIParticlemesh.adj_op: img
apps.mri.MRIParticlemesh.make_autograd: wrt_data wrt_traj paired_batch
apps.mri.MRIParticlemesh.op: ksp
apps.mri.MRIParticlemesh.to_images: weighted
apps.mri.MRIParticlemesh.update_samples: unsafe
autograd.torch.spread autograd.torch.interpolate autograd.torch.gradient autograd.torch.spread_gradient
    autograd.jax.spread autograd.jax.interpolate autograd.jax.gradient autograd.jax.spread_gradient: cell
autograd.torch.potential autograd.jax.potential: cell green zero compensation interlaced system moments
autograd.torch.OverRanks.potential autograd.jax.OverRanks.potential: cell green zero compensation
apps.nufft.nufft2d1 apps.nufft.nufft3d1: n_modes
"""
PLAIN = ("Pairs", "Status", "Result", "neighbor_list")  # ends of names: rows of results, and another spelling


def alone():
    """Return the public names and arguments of the table."""
    rows = USED_ALONE.replace("\n    ", " ").strip().splitlines()
    split = [[part.split() for part in row.split(": ")] for row in rows]
    return {(name, argument) for names, arguments in split for name in names for argument in arguments}


@pytest.mark.parametrize(("name", "argument"), NEED_A_PARTNER)
def test_an_argument_without_its_partner_is_refused(name, argument):
    call, words = NEED_A_PARTNER[name, argument]
    with pytest.raises((TypeError, ValueError), match=words):
        call()


@pytest.mark.parametrize("module", MODULES)
def test_every_optional_argument_is_in_one_list(module):
    if module in MODULE_NEEDS:
        pytest.importorskip(MODULE_NEEDS[module])
    there = {
        (name, parameter.name)
        for name, parameter in parameters_of(module)
        if parameter.default is not inspect.Parameter.empty and not name.endswith(PLAIN)
    }
    listed = alone() | set(NEED_A_PARTNER)
    missing = {pair for pair in there - listed if pair[1] not in EVERYWHERE}
    assert not missing, (
        "try each: does it change an object or a result by itself, or is it refused without its partner?"
    )
    assert not alone() & set(NEED_A_PARTNER)
    here = {pair for pair in listed if pair[0].rpartition(".")[0] == module or pair[0].startswith(f"{module}.")}
    assert not {pair for pair in here if module} - there, "such arguments are no more"
