# SPDX-License-Identifier: BSD-3-Clause
"""Public calls that take arrays or flags, each with arguments that are right: laws of arguments go through them."""

import functools
import importlib
import inspect

import numpy as np

import particlemesh as pm
import particlemesh.distributed as pmd
from pair_sums import VALUES
from particlemesh import fourier, kernels
from particlemesh.apps import brownian, dem, files, nufft, pme

RNG = np.random.default_rng(1)
X, V, T = RNG.random((20, 3)), RNG.normal(size=(20, 3)), RNG.normal(size=(20, 3, 3))
Q = np.cos(np.arange(20.0))
C, REACH = Q + 1j, Q**2 / 10
BOX, FOUR, TWENTY = (1.0,) * 3, (4.0,) * 3, (20.0,) * 3
MESH = pm.Mesh((8,) * 3, BOX)
FIELD, OUT = RNG.random(MESH.shape), np.zeros(MESH.shape)
CPU, NAMED = kernels.backend("cpu"), dict(backend="cpu", dtype="float64")
RANKS = dict(domain=pmd.Domain(MESH, 1), world=pmd.World())
SPHERES = dict(radii=0.1, velocities=V, density=Q**2 + 0.1, contact=dem.LinearSpring(stiffness=10.0), time_step=1e-3)
EWALD = dict(accuracy=1e-2, cutoff=1.0, **NAMED)


def coulomb(k2):
    return 1 / k2


def mri():
    return importlib.import_module("particlemesh.apps.mri")


# How an object of each class is made.
OBJECTS = {
    "Plan": lambda: pm.Plan(MESH, "cic").set_positions(X),
    "UniformGrid": lambda: pm.UniformGrid(BOX, shape=(4,) * 3).build(X, REACH),
    "SkinList": lambda: pm.SkinList("ij", BOX, REACH, 0.1),
    "Mesh": lambda: MESH,
    "Box": lambda: MESH.box,
    "fourier.Solver": lambda: fourier.Solver(MESH, "cic", **NAMED).set_positions(X),
    "fourier.VectorSolver": lambda: fourier.VectorSolver(MESH, "cic", green=coulomb).set_positions(X),
    "fourier.Transform": lambda: fourier.Transform(MESH, "cic"),
    "fourier.Halves": lambda: fourier.Halves(CPU, (4,) * 3, "float64", "fft"),
    "distributed.Plan": lambda: pmd.Plan(window="cic", **RANKS).set_positions(X),
    "distributed.UniformGrid": lambda: pmd.UniformGrid(radius=0.2, **RANKS).build(X),
    "distributed.FFT": lambda: pmd.FFT(**RANKS),
    "distributed.Solver": lambda: pmd.Solver(**RANKS).set_positions(X),
    "distributed.VectorSolver": lambda: pmd.VectorSolver(**RANKS).set_positions(X),
    "apps.nufft.Plan": lambda: nufft.Plan(1, (8,) * 3),
    "apps.nufft.DistributedPlan": lambda: nufft.DistributedPlan(pmd.World(), 1, (8,) * 3),
    "apps.brownian.RPY": lambda: brownian.RPY(TWENTY, accuracy=1e-2).set_positions(20 * X),
    "apps.brownian.DistributedRPY": lambda: brownian.DistributedRPY(pmd.World(), TWENTY, accuracy=1e-2).set_positions(
        20 * X
    ),
    "apps.brownian.BrownianDynamics": lambda: brownian.BrownianDynamics(20 * X, spheres(), time_step=0.1),
    "apps.brownian.DistributedBrownianDynamics": lambda: brownian.DistributedBrownianDynamics(
        pmd.World(), 20 * X, brownian.Drag(), time_step=0.1
    ),
    "apps.dem.Simulation": lambda: dem.Simulation(20 * X, **SPHERES),
    "apps.dem.DistributedSimulation": lambda: dem.DistributedSimulation(pmd.World(), 20 * X, **SPHERES),
    "apps.pme.PME": lambda: pme.PME(FOUR, **EWALD),
    "apps.pme.PMEBatch": lambda: pme.PMEBatch(FOUR, 2, **EWALD),
    "apps.pme.DistributedPME": lambda: pme.DistributedPME(pmd.World(), FOUR, accuracy=1e-2, cutoff=1.0),
    "apps.pme.Dispersion": lambda: pme.Dispersion(FOUR, **EWALD),
    "apps.pme.InducedDipoles": lambda: pme.InducedDipoles(pme.PME(FOUR, **EWALD), 1e-2),
    "apps.pme.ChargeEquilibration": lambda: pme.ChargeEquilibration(pme.PME(FOUR, **EWALD), 1e-2),
    "apps.mri.MRIParticlemesh": lambda: mri().MRIParticlemesh(X[:, :2], (4, 4)),
}


def spheres():
    return OBJECTS["apps.brownian.RPY"]()


def spread_integers(_, values=Q, accumulate=False):
    plan = OBJECTS["Plan"]()
    return plan.spread_integers(values, plan.bounds(Q), out=np.zeros(MESH.shape, np.int64), accumulate=accumulate)


def written(folder, field=FIELD, **flags):
    files.write_field(folder / "f.npz", field, MESH, **flags)


def table(folder, a=Q, overwrite=False):
    with files.writing_table(folder / "t.csv", overwrite) as rows:
        rows.append({"a": a})


def of_file(function, *arguments, **given):
    """Return a call for the particles of a file."""

    def call(folder, **flags):
        np.savez(folder / "x.npz", positions=X)
        with files.open_particles(folder / "x.npz") as particles:
            result = function(particles, *arguments, **given, **flags)
            return list(result) if inspect.isgenerator(result) else result

    return call


# By public name: the arguments, or a function of a folder and of changed arguments.
CALLS = {
    "Plan": dict(mesh=MESH, window="cic"),
    "Plan.set_positions": dict(positions=X),
    "Plan.spread": dict(values=Q, out=OUT),
    "Plan.spread_gradient": dict(vectors=V, out=OUT),
    "Plan.spread_hessian": dict(tensors=T, out=OUT),
    "Plan.spread_integers": spread_integers,
    **{f"Plan.{verb}": dict(field=FIELD)
       for verb in ("interpolate", "gradient", "hessian", "value_and_gradient", "value_gradient_hessian")},
    "Plan.lost": dict(values=Q),
    "UniformGrid": dict(box=BOX, shape=(4,) * 3),
    "UniformGrid.build": dict(positions=X, radii=REACH),
    "UniformGrid.build_keys": dict(keys=np.arange(4), n=4),
    "UniformGrid.pairs": dict(radius=REACH),
    "UniformGrid.count": dict(radius=REACH),
    "UniformGrid.neighbours": dict(points=X, radius=0.1),
    "UniformGrid.nearest": dict(k=1, radius=0.1, points=X),
    "UniformGrid.stream": dict(radius=0.1, function=VALUES, values=Q),
    "neighbour_list": dict(quantities="ij", positions=X, box=BOX, radius=REACH),
    "SkinList": dict(quantities="ij", box=BOX, radius=REACH, skin=0.1),
    "SkinList.__call__": dict(positions=X),
    "spread": dict(positions=X, values=Q, mesh=MESH),
    **{verb: dict(field=FIELD, positions=X, mesh=MESH) for verb in ("interpolate", "gradient", "hessian")},
    "locate": dict(positions=X, mesh=MESH),
    "Box.fold": dict(positions=X),
    "Box.fractional": dict(positions=X),
    "Mesh.nodes": dict(axis=0),
    "Mesh.wavenumbers": {},
    "Mesh.compensation": dict(window="cic"),
    "fourier.mode_numbers": dict(modes=4),
    "fourier.Bands": dict(backend=CPU, nodes=(4, 4), modes=(3, 3)),
    "fourier.Halves.half": dict(whole=np.zeros((1, 4, 4, 4), complex)),
    "fourier.Halves.whole": dict(half=np.zeros((1, 5, 5, 3), complex)),
    "fourier.Solver": dict(mesh=MESH, window="cic"),
    "fourier.Solver.reserve": dict(count=40),
    "fourier.Solver.set_positions": dict(positions=X),
    "fourier.Solver.potential": dict(values=Q),
    "fourier.Solver.moment_fields": dict(fields=RNG.random((10, *MESH.shape))),
    "fourier.VectorSolver.set_positions": dict(positions=X),
    "fourier.VectorSolver.field": dict(vectors=V.T),
    "fourier.Transform": dict(mesh=MESH),
    "fourier.Transform.compensation": dict(use="power"),
    "fourier.Transform.modes": dict(positions=X, values=Q),
    "fourier.Transform.forward": dict(field=FIELD),
    "fourier.power_spectrum": dict(positions=X, values=Q**2, mesh=MESH, edges=np.arange(1.0, 40.0)),
    "fourier.survey_spectrum": dict(galaxies=(X, None, 40.0), randoms=(X, None, 40.0), mesh=MESH),
    "fourier.correlation_function": dict(positions=X, values=Q**2, mesh=MESH),
    "kernels.take": dict(array=X, shape=(None, 3), what="x"),
    "kernels.give": dict(out=None, like=kernels.take(X, (None, 3), "x"), shape=(4,)),
    "distributed.FFT": RANKS,
    "distributed.FFT.forward": dict(field=FIELD),
    "distributed.Remap": dict(source=RANKS["domain"], target=RANKS["domain"], world=RANKS["world"]),
    "distributed.Plan": dict(window="cic", **RANKS),
    "distributed.Plan.set_positions": dict(positions=X),
    "distributed.Plan.spread": dict(values=Q, out=OUT),
    "distributed.Plan.spread_gradient": dict(vectors=V, out=OUT),
    "distributed.Plan.spread_hessian": dict(tensors=T, out=OUT),
    "distributed.Plan.interpolate": dict(field=FIELD),
    "distributed.Solver": RANKS,
    "distributed.Solver.set_positions": dict(positions=X),
    "distributed.Solver.moment_fields": dict(fields=RNG.random((10, *MESH.shape))),
    "distributed.VectorSolver": RANKS,
    "distributed.VectorSolver.set_positions": dict(positions=X),
    "distributed.VectorSolver.field": dict(vectors=V.T),
    "distributed.power_spectrum": dict(positions=X, values=Q**2, edges=np.arange(1.0, 40.0), **RANKS),
    "distributed.UniformGrid": dict(radius=0.2, **RANKS),
    "distributed.UniformGrid.build": dict(positions=X),
    "distributed.UniformGrid.pairs": {},
    "apps.nufft.nufft1d1": dict(x=X[:, 0], c=C, n_modes=8),
    "apps.nufft.nufft1d2": dict(x=X[:, 0], f=C[:8]),
    "apps.nufft.nufft1d3": dict(x=X[:, 0], c=C, s=Q),
    "apps.brownian.RPY.set_positions": dict(positions=20 * X),
    "apps.brownian.RPY.velocity": dict(forces=V),
    "apps.brownian.RPY.square_root": dict(z=V),
    "apps.brownian.BrownianDynamics": dict(positions=20 * X, mobility=brownian.Drag(), time_step=0.1),
    "apps.brownian.BrownianDynamics.run": dict(steps=1),
    "apps.brownian.DistributedBrownianDynamics": dict(
        world=RANKS["world"], positions=20 * X, mobility=brownian.Drag(), time_step=0.1
    ),
    "apps.brownian.DistributedBrownianDynamics.run": dict(steps=1),
    "apps.brownian.DistributedRPY.set_positions": dict(positions=20 * X),
    "apps.brownian.DistributedRPY.velocity": dict(forces=V),
    "apps.brownian.DistributedRPY.square_root": dict(z=V),
    "apps.dem.Simulation": dict(positions=20 * X, **SPHERES | dict(radii=REACH + 0.1)),
    "apps.dem.Simulation.run": dict(steps=1),
    "apps.dem.DistributedSimulation": dict(world=RANKS["world"], positions=20 * X, **SPHERES | dict(radii=REACH + 0.1)),
    "apps.dem.DistributedSimulation.run": dict(steps=1),
    "apps.pme.PME": dict(box=FOUR, exclusions=np.array([[0, 1], [2, 3]])),
    "apps.pme.PME.__call__": dict(
        positions=4 * X, charges=Q, dipoles=V, quadrupoles=T + T.swapaxes(1, 2), widths=REACH
    ),
    "apps.pme.PME.reserve": dict(count=20),
    "apps.pme.DistributedPME": dict(world=RANKS["world"], box=FOUR),
    "apps.pme.DistributedPME.__call__": dict(positions=4 * X, charges=Q),
    "apps.pme.PMEBatch": dict(box=FOUR, systems=2),
    "apps.pme.PMEBatch.__call__": dict(
        positions=4 * X, charges=Q, system=np.arange(20) % 2, dipoles=V, quadrupoles=T + T.swapaxes(1, 2), widths=REACH
    ),
    "apps.pme.PMEBatch.reserve": dict(count=20),
    "apps.pme.slab_correction": dict(positions=4 * X, charges=Q, box=FOUR),
    "apps.pme.Dispersion": dict(box=FOUR, **EWALD),
    "apps.pme.Dispersion.__call__": dict(positions=4 * X, coefficients=Q),
    "apps.pme.InducedDipoles.__call__": dict(positions=4 * X, charges=Q, polarizabilities=1e-4 * Q**2, dipoles=V),
    "apps.pme.ChargeEquilibration.__call__": dict(positions=4 * X, electronegativities=Q, hardness=40 + Q**2),
    "apps.files.check_field": lambda folder, **flags: files.check_field(folder / "f.npz", MESH, **flags),
    "apps.files.check_table": lambda folder, **flags: files.check_table(folder / "t.csv", **flags),
    "apps.files.write_bonds": lambda folder, **flags: files.write_bonds(
        folder / "b.xyz", X, pm.Box((1.0,) * 3), [0], [1], **flags
    ),
    "apps.files.write_field": written,
    "apps.files.write_field_parts": lambda folder, field=FIELD, **flags: files.write_field_parts(
        folder / "f.h5", field, **RANKS, **flags
    ),
    "distributed.World.alike": lambda _, **flags: RANKS["world"].alike(lambda: ("a sum", 2), **flags),
    "apps.files.writing_table": table,
    "apps.files.interpolate_particles": of_file(files.interpolate_particles, OUT, MESH, "cic"),
    "apps.files.particles_spectrum": of_file(files.particles_spectrum, MESH),
    "apps.files.particles_pairs": of_file(files.particles_pairs, MESH.box, 0.1),
    "apps.mri.density": dict(samples=X[:, :2], shape=(4, 4), iterations=2),
    "apps.mri.MRIParticlemesh": dict(samples=X[:, :2], shape=(4, 4)),
    "apps.mri.MRIParticlemesh.update_samples": dict(new_samples=X[:, :2]),
}  # fmt: skip


def parameters_of(name):
    """Return the parameters of a module's public calls and of the methods of its classes, each with the call's name."""
    module = importlib.import_module(f"particlemesh.{name}".removesuffix("."))
    public = getattr(module, "__all__", [n for n, thing in vars(module).items() if is_own(thing, module)])
    calls = {n: getattr(module, n) for n in public if callable(getattr(module, n))}
    for label, thing in list(calls.items()):
        if inspect.isclass(thing):
            verbs = (n for n in dir(thing) if not n.startswith("_") or (n == "__call__" and n in vars(thing)))
            calls |= {f"{label}.{n}": getattr(thing, n) for n in verbs if inspect.isfunction(getattr(thing, n))}
    for label, function in calls.items():
        if inspect.isclass(function) and issubclass(function, Exception):
            continue
        if function.__module__.startswith("particlemesh"):
            for parameter in inspect.signature(function).parameters.values():
                yield f"{name}.{label}".removeprefix("."), parameter


def is_own(thing, module):
    """Return whether a module without ``__all__`` defines something public."""
    named = getattr(thing, "__name__", "_")
    return getattr(thing, "__module__", None) == module.__name__ and not named.startswith("_")


def bound(name, folder):
    """Return the call of a public name, whose arguments may be changed."""
    if callable(CALLS[name]):
        return functools.partial(CALLS[name], folder)
    path, _, verb = name.rpartition(".")
    owner = OBJECTS[path]() if path in OBJECTS else importlib.import_module(f"particlemesh.{path}".removesuffix("."))
    return functools.partial(getattr(owner, verb), **CALLS[name])


def arrays_of(name):
    """Return the numbers that a call takes, by argument."""
    given = CALLS[name]
    if callable(given):
        given = {p.name: p.default for p in inspect.signature(given).parameters.values()}
    return {n: a for n, a in given.items() if isinstance(a, np.ndarray) and n != "out"}
