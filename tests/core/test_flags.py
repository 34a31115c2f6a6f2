# SPDX-License-Identifier: BSD-3-Clause
"""A flag is True or False: "no" is not taken for yes."""

import importlib
import inspect
import tempfile
from pathlib import Path

import numpy as np
import pytest

import particlemesh as pm
import particlemesh.distributed as pmd
from particlemesh import fourier, kernels
from particlemesh.apps import brownian, dem, files, pme

X = np.random.default_rng(2).random((20, 3))
BOX = (1.0, 1.0, 1.0)
MESH = pm.Mesh((4, 4, 4), BOX)
OUT = np.zeros(MESH.shape)
CPU = kernels.backend("cpu")
NAMED = dict(backend="cpu", dtype="float64")
TRANSFORM = fourier.Transform(MESH, "cic")


def plan():
    made = pm.Plan(MESH, "cic")
    made.set_positions(X)
    return made


def integers(**options):
    made, values = plan(), np.ones(20)
    return made.spread_integers(values, made.bounds(values), out=np.zeros(MESH.shape, np.int64), **options)


def grid(**options):
    return pm.UniformGrid(BOX, shape=(4, 4, 4), **options).build(X)


def ranks(verb, **options):
    """Make a thing of one rank."""
    domain, world = pmd.Domain(MESH, 1), pmd.World()
    return verb(domain, domain, world, **options) if verb is pmd.Remap else verb(domain, world, **options)


def rank_plan(**options):
    return ranks(pmd.Plan, window="cic", **options)


def bands(**options):
    return fourier.Bands(CPU, (4, 4), (3, 3), **options)


def halves(verb, **options):
    shape = (1, 5, 5, 3) if verb == "whole" else (1, 4, 4, 4)
    return getattr(fourier.Halves(CPU, (4, 4, 4), "float64", "fft"), verb)(np.zeros(shape, complex), **options)


def solver(**options):
    return fourier.Solver(MESH, "cic", **options)


def spheres():
    return brownian.RPY((20.0,) * 3, accuracy=1e-2).set_positions(20 * X)


def grains(**options):
    return dem.Simulation(
        20 * X, 0.1, density=1.0, contact=dem.LinearSpring(stiffness=10.0), time_step=0.001, **options
    )


def charges():
    return pme.PME((4.0,) * 3, accuracy=1e-2, cutoff=1.0, **NAMED)


def atoms(**options):
    return pme.Dispersion((4.0,) * 3, accuracy=1e-2, cutoff=1.0, **options)


def file_of(name):
    return Path(tempfile.mkdtemp()) / name


def write_table(overwrite):
    with files.writing_table(file_of("t.csv"), overwrite) as rows:
        rows.append({"a": np.arange(3.0)})


def interpolated(gradient):
    np.savez(path := file_of("x.npz"), positions=X)
    with files.open_particles(path) as particles:
        return list(files.interpolate_particles(particles, OUT, MESH, "cic", gradient=gradient))


def spectrum(interlaced):
    np.savez(path := file_of("x.npz"), positions=X)
    with files.open_particles(path) as particles:
        return files.particles_spectrum(particles, MESH, interlaced=interlaced)


def pairs(half):
    np.savez(path := file_of("x.npz"), positions=X)
    with files.open_particles(path) as particles:
        return list(files.particles_pairs(particles, MESH.box, 0.1, half=half))


def steps(progress):
    brownian.BrownianDynamics(20 * X, spheres(), time_step=0.1).run(1, progress=progress)


def vectors():
    return fourier.VectorSolver(MESH, "cic", green=lambda k2: 1 / k2)


def density(normalise):
    pytest.importorskip("mrinufft")
    from particlemesh.apps import mri

    return mri.density(X[:, :2], (4, 4), 2, normalise=normalise)


def images(**options):
    pytest.importorskip("mrinufft")
    from particlemesh.apps import mri

    return mri.MRIParticlemesh(X[:, :2], (4, 4), **options)


CALLS = {
    ("Plan", "deterministic"): lambda f: pm.Plan(MESH, "cic", deterministic=f),
    ("Plan.set_positions", "check"): lambda f: plan().set_positions(X, check=f),
    ("Plan.lost", "outside"): lambda f: plan().lost(np.ones(20), outside=f),
    ("Plan.spread", "accumulate"): lambda f: plan().spread(np.ones(20), out=OUT, accumulate=f),
    ("Plan.spread_gradient", "accumulate"): lambda f: plan().spread_gradient(X, out=OUT, accumulate=f),
    ("Plan.spread_hessian", "accumulate"): lambda f: plan().spread_hessian(np.ones((20, 3, 3)), out=OUT, accumulate=f),
    ("Plan.spread_integers", "accumulate"): lambda f: integers(accumulate=f),
    ("UniformGrid", "deterministic"): lambda f: grid(deterministic=f),
    ("UniformGrid", "queries"): lambda f: grid(queries=f),
    ("UniformGrid", "grow"): lambda f: grid(method="fixed", capacity=20, grow=f),
    ("UniformGrid.build", "check"): lambda f: grid().build(X, check=f),
    ("UniformGrid.build_keys", "check"): lambda f: grid().build_keys(np.arange(4), 4, check=f),
    ("UniformGrid.pairs", "half"): lambda f: grid().pairs(0.1, half=f),
    ("UniformGrid.pairs", "check"): lambda f: grid().pairs(0.1, check=f, capacity=4000),
    ("UniformGrid.count", "check"): lambda f: grid().count(0.1, check=f),
    ("neighbour_list", "half"): lambda f: pm.neighbour_list("ij", X, BOX, 0.1, half=f),
    ("Mesh.nodes", "ghosts"): lambda f: MESH.nodes(0, ghosts=f),
    ("Mesh.wavenumbers", "real"): lambda f: MESH.wavenumbers(real=f),
    ("Mesh.compensation", "real"): lambda f: MESH.compensation("cic", real=f),
    ("spread", "deterministic"): lambda f: pm.spread(X, np.ones(20), MESH, deterministic=f),
    ("locate", "check"): lambda f: pm.locate(X, MESH, check=f),
    ("fourier.mode_numbers", "half"): lambda f: fourier.mode_numbers(4, half=f),
    ("fourier.Bands", "real"): lambda f: bands(real=f),
    ("fourier.Halves.half", "conjugate"): lambda f: halves("half", conjugate=f),
    ("fourier.Halves.whole", "conjugate"): lambda f: halves("whole", conjugate=f),
    ("fourier.Solver", "interlaced"): lambda f: solver(interlaced=f),
    ("fourier.Solver.reserve", "virial"): lambda f: solver(**NAMED).reserve(4, virial=f),
    ("fourier.Solver.set_positions", "check"): lambda f: solver().set_positions(X, check=f),
    ("fourier.VectorSolver.set_positions", "check"): lambda f: vectors().set_positions(X, check=f),
    ("fourier.Transform", "real"): lambda f: fourier.Transform(MESH, real=f),
    ("fourier.Transform.compensation", "interlaced"): lambda f: TRANSFORM.compensation("power", interlaced=f),
    ("fourier.Transform.modes", "interlaced"): lambda f: TRANSFORM.modes(X, np.ones(20), interlaced=f),
    ("fourier.power_spectrum", "interlaced"): lambda f: fourier.power_spectrum(X, np.ones(20), MESH, interlaced=f),
    ("kernels.take", "upload"): lambda f: kernels.take(X, (None, 3), "x", upload=f),
    ("kernels.take", "batch"): lambda f: kernels.take(X, (None, 3), "x", batch=f),
    ("kernels.take", "real"): lambda f: kernels.take(X, (None, 3), "x", real=f),
    ("kernels.take", "dense"): lambda f: kernels.take(X, (None, 3), "x", dense=f),
    ("kernels.give", "dense"): lambda f: kernels.give(None, kernels.take(X, (None, 3), "x"), (4,), dense=f),
    ("distributed.FFT", "real"): lambda f: ranks(pmd.FFT, real=f),
    ("distributed.FFT", "deterministic"): lambda f: ranks(pmd.FFT, deterministic=f),
    ("distributed.FFT", "check"): lambda f: ranks(pmd.FFT, check=f),
    ("distributed.Remap", "check"): lambda f: ranks(pmd.Remap, check=f),
    ("distributed.Plan", "deterministic"): lambda f: rank_plan(deterministic=f),
    ("distributed.Plan", "check"): lambda f: rank_plan(check=f),
    ("distributed.Plan.set_positions", "check"): lambda f: rank_plan().set_positions(X, check=f),
    ("distributed.Plan.spread", "accumulate"): lambda f: (
        rank_plan().set_positions(X).spread(np.ones(20), out=OUT, accumulate=f)
    ),
    ("distributed.Plan.spread_gradient", "accumulate"): lambda f: (
        rank_plan().set_positions(X).spread_gradient(X, out=OUT, accumulate=f)
    ),
    ("distributed.Plan.spread_hessian", "accumulate"): lambda f: (
        rank_plan().set_positions(X).spread_hessian(np.ones((20, 3, 3)), out=OUT, accumulate=f)
    ),
    ("distributed.UniformGrid", "check"): lambda f: ranks(pmd.UniformGrid, radius=0.2, check=f),
    ("distributed.UniformGrid.pairs", "half"): lambda f: ranks(pmd.UniformGrid, radius=0.2).build(X).pairs(half=f),
    ("apps.brownian.RPY.velocity", "check"): lambda f: spheres().velocity(X, check=f),
    ("apps.brownian.RPY.square_root", "check"): lambda f: spheres().square_root(X, check=f),
    ("apps.brownian.BrownianDynamics.run", "progress"): steps,
    ("apps.dem.Simulation", "deterministic"): lambda f: grains(deterministic=f),
    ("apps.dem.Simulation.run", "progress"): lambda f: grains().run(1, progress=f),
    ("apps.pme.PME", "deterministic"): lambda f: pme.PME((4.0,) * 3, deterministic=f),
    ("apps.pme.PMEBatch", "deterministic"): lambda f: pme.PMEBatch((4.0,) * 3, 2, deterministic=f),
    ("apps.pme.PME.reserve", "virial"): lambda f: charges().reserve(20, virial=f),
    ("apps.pme.PME.reserve", "dipoles"): lambda f: charges().reserve(20, dipoles=f),
    ("apps.pme.PME.__call__", "virial"): lambda f: charges()(4 * X, X[:, 0], virial=f),
    ("apps.pme.PME.__call__", "check"): lambda f: charges()(4 * X, X[:, 0], check=f),
    ("apps.pme.PMEBatch.__call__", "check"): lambda f: pme.PMEBatch((4.0,) * 3, 2, accuracy=1e-2, cutoff=1.0)(
        4 * X, X[:, 0], np.arange(20) % 2, check=f
    ),
    ("apps.pme.Dispersion", "shift"): lambda f: atoms(shift=f),
    ("apps.pme.Dispersion.__call__", "check"): lambda f: atoms()(4 * X, X[:, 0], check=f),
    ("apps.files.check_field", "overwrite"): lambda f: files.check_field(file_of("f.npz"), MESH, overwrite=f),
    ("apps.files.check_table", "overwrite"): lambda f: files.check_table(file_of("t.csv"), f),
    ("apps.files.write_field", "overwrite"): lambda f: files.write_field(file_of("f.npz"), OUT, MESH, overwrite=f),
    ("apps.files.writing_table", "overwrite"): write_table,
    ("apps.files.interpolate_particles", "gradient"): interpolated,
    ("apps.files.particles_spectrum", "interlaced"): spectrum,
    ("apps.files.particles_pairs", "half"): pairs,
    ("apps.mri.density", "normalise"): density,
    ("apps.mri.MRIParticlemesh", "squeeze_dims"): lambda f: images(squeeze_dims=f),
    ("apps.mri.MRIParticlemesh.update_samples", "unsafe"): lambda f: images().update_samples(X[:, :2], unsafe=f),
}
MODULES = ["", "fourier", "kernels", "distributed", *(f"apps.{n}" for n in ("brownian", "dem", "pme", "files", "mri"))]
# Of mri-nufft, whose meaning these flags have, and of plans, which the test above makes.
OTHERS = {
    ("kernels.coordinates", "upload"), ("kernels.Operand", "upload"), ("kernels.indices", "upload"),
    ("apps.pme.PME.chosen", "on_gpu"), ("Status", "non_finite_values"),
    ("Plan.locate", "check"), ("Plan.take", "check"), ("fourier.Transform.spectra", "interlaced"),
    ("apps.mri.MRIParticlemesh.to_images", "weighted"),
    ("apps.mri.MRIParticlemesh.pipe", "normalize"), ("apps.mri.MRIParticlemesh.make_linops", "cupy"),
    *(("apps.mri.MRIParticlemesh.make_autograd", n) for n in ("wrt_data", "wrt_traj", "paired_batch")),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=".".join)
def test_what_is_neither_true_nor_false_is_refused(call):
    for bad in ("no", "yes", "", None, 0, 1, 1.0, [], [True], np.array([True]), np.int64(1)):
        with pytest.raises(TypeError, match=rf"{call[1]} is .*; give True or False"):
            CALLS[call](bad)
    for good in (True, False, np.True_, np.False_):
        CALLS[call](good)


def flags_of(name):
    """Return the flags of a module's public calls and of the methods of its classes."""
    module = importlib.import_module(f"particlemesh.{name}".removesuffix("."))
    calls = {n: getattr(module, n) for n in module.__all__ if callable(getattr(module, n))}
    for label, thing in list(calls.items()):
        if inspect.isclass(thing):
            public = (n for n in dir(thing) if not n.startswith("_") or (n == "__call__" and n in vars(thing)))
            calls |= {f"{label}.{n}": getattr(thing, n) for n in public if inspect.isfunction(getattr(thing, n))}
    for label, call in calls.items():
        if inspect.isclass(call) and issubclass(call, Exception):
            continue
        if call.__module__.startswith("particlemesh"):
            for parameter in inspect.signature(call).parameters.values():
                if parameter.annotation in {"bool", bool}:
                    yield f"{name}.{label}".removeprefix("."), parameter.name


@pytest.mark.parametrize("name", MODULES)
def test_no_flag_of_a_public_call_is_forgotten(name):
    if name == "apps.mri":
        pytest.importorskip("mrinufft")
    flags = set(flags_of(name))
    assert flags
    known = CALLS.keys() | OTHERS | {("neighbor_list", "half")}  # another name of neighbour_list
    assert flags <= known, flags - known
