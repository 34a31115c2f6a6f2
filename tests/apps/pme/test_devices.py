# SPDX-License-Identifier: BSD-3-Clause
"""Steps of all calculations by kernels: equal to the CPU's, without allocation and waits, in a CUDA graph."""

import dataclasses

import numpy as np
import pytest

from particlemesh.apps.pme import PME, Dispersion, PMEBatch, Result
from pme_cases import TRICLINIC, close, random_charges
from quiet import quiet

COARSE = dict(cutoff=1.4, splitting=2.0, shape=(12, 15, 16), window="bspline5")
PAIRS = dict(exclusions=[(0, 1), (5, 7), (9, 3), (0, 2)], factors=[0.0, 0.5, 0.8333, 0.0])
OF_SYSTEMS = dict(exclusions=[(0, 1), (5, 7), (50, 53), (60, 99)], factors=[0.0, 0.5, 0.8333, 0.0])
COUNTS = (50, 0, 7, 43)
OWNERS = np.repeat(np.arange(4), COUNTS).astype(np.int32)
SIZES = np.array([1.0, 1.1, 0.95, 1.2])
KINDS = ("charges", "without virial", "dipoles", "all pairs", "wells", "coefficients", "systems", "mixed systems")


class Case:
    """A calculation, its arguments on the host, positions first, and the options of its calls."""

    def __init__(self, kind, dtype="float64"):
        x, q = random_charges(50)
        rng, self.reserve, self.options, self.names = np.random.default_rng(2), {}, {}, ()
        if "systems" in kind:
            sizes = SIZES if "mixed" in kind else np.ones(4)
            parts = [random_charges(n, seed=k) for k, n in enumerate(COUNTS) if n]
            x = np.concatenate([a for a, _ in parts]) * sizes[OWNERS][:, None]
            q, owners, self.options = np.concatenate([b for _, b in parts]), OWNERS, dict(OF_SYSTEMS)
            x[1] = x[0]  # an excluded pair may lie in one place
            if "mixed" in kind:
                order = rng.permutation(len(x))
                x, q, owners = x[order], q[order], owners[order]
                self.options["exclusions"] = np.argsort(order)[np.array(OF_SYSTEMS["exclusions"])]
                self.options["boxes"] = sizes[:, None, None] * TRICLINIC
            self.arrays = x, q, owners
            self.make = lambda **more: PMEBatch(TRICLINIC, 4, **COARSE, coulomb_constant=1.7, **more)
        elif kind in ("wells", "coefficients"):
            self.options = dict(PAIRS)
            sigma, epsilon = rng.uniform(0.2, 0.35, 50), rng.uniform(0.5, 2, 50)
            self.arrays = (x, sigma, epsilon) if kind == "wells" else (x, 2 * np.sqrt(epsilon) * sigma**3)
            self.names = ("sigma", "epsilon") if kind == "wells" else ("coefficients",)
            mixing = "lorentz-berthelot" if kind == "wells" else "geometric"
            self.make = lambda **more: Dispersion(TRICLINIC, **COARSE, mixing=mixing, shift=True, **more)
        else:
            pairs, mu = {} if kind == "all pairs" else PAIRS, np.sin(np.arange(150.0)).reshape(50, 3) * 0.3
            if kind == "dipoles":
                x[1] = x[0]
            with_dipoles = kind in ("dipoles", "all pairs")
            self.arrays = (x, q, mu) if with_dipoles else (x, np.stack([q, np.sin(np.arange(50.0))]))
            self.names, self.reserve = ("charges", "dipoles"), dict(dipoles=with_dipoles)
            if kind == "without virial":
                self.options = dict(virial=False)
            self.make = lambda **more: PME(TRICLINIC, **COARSE, **pairs, coulomb_constant=1.7, **more)
        self.arrays = tuple(a.astype(dtype) if a.dtype.kind == "f" else a for a in self.arrays)

    def on(self, backend, dtype):
        made = self.make(dtype=dtype, backend=backend.name)
        sets = {"sets": 2} if isinstance(made, PME) and self.arrays[1].ndim == 2 else {}
        return made.reserve(len(self.arrays[0]), **sets, **self.reserve)

    def call(self, made, arrays=None, **more):
        x, *others = self.arrays if arrays is None else arrays
        named = dict(zip(self.names, others, strict=False))
        positional = () if named else others
        return made(x, *positional, **named, **self.options, **more)


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_equal_the_cpu(backend, kind, dtype):
    case = Case(kind, dtype)
    expected, made = case.call(case.make()), case.on(backend, dtype)
    arrays = [backend.array(a) for a in case.arrays]
    result = case.call(made, arrays)
    assert type(result) is type(expected)
    tolerance = 2e-5 if dtype == "float32" else 1e-11
    close(result, expected, tolerance, backend.host)
    names = [field.name for field in dataclasses.fields(result) if getattr(result, field.name) is not None]
    for name in names:
        assert backend.host(getattr(result, name)).dtype == getattr(expected, name).dtype
        backend.library.clear(getattr(result, name))
    strided = [arrays[0], *(backend.array(a, "strided") for a in case.arrays[1:])]
    again = case.call(made, arrays if "systems" in kind else strided, check=False, out=result)
    assert all(getattr(again, name) is getattr(result, name) for name in names)
    close(result, expected, tolerance, backend.host)
    made.check()
    host = case.call(case.make(backend=backend.name))  # host arrays go to a named backend and back
    assert isinstance(host.forces, np.ndarray)
    close(host, expected, tolerance)


def at(*place):
    """Return a function that puts a number at a place of an array."""

    def put(array, number=np.nan):
        array[place] = number

    return put


def twins(i, j):
    """Return a function that puts particle i in the place of j."""

    def put(x):
        x[i] = x[j]

    return put


def grown(chosen):
    def put(array):
        array[..., chosen] = 1e200

    return put


TWINS, ENERGY = "on top of each other: 4 is in the place", "the energy is not finite: charges are too large"
CHARGE, NUMBER = (
    "charges are not finite; the first is that of particle {}",
    "numbers are not finite; the first is that of",
)
WRONG = [  # kind, array, what is wrong, the error, that of a later check if it is another
    ("charges", 0, twins(4, 9), TWINS, None), ("charges", 1, at(..., [7, 11]), CHARGE.format(7) + r"\.", None),
    ("charges", 1, grown(slice(None)), ENERGY, None), ("all pairs", 0, twins(4, 9), TWINS, None),
    ("all pairs", 1, at(slice(21, None)), CHARGE.format(21), None), ("all pairs", 1, grown(slice(None)), ENERGY, None),
    ("all pairs", 2, at([7, 11], 2), r"dipoles are not finite; the first is that of particle 7\.", None),
    ("all pairs", 0, at(5), "5", "5"), ("dipoles", 0, twins(7, 5), "on top of each other: 5 is", None),
    ("systems", 1, at([55, 70]), CHARGE.format("55 of system 2"), None),
    ("mixed systems", 1, at(55), CHARGE.format("55 of system"), None),
    ("systems", 0, twins(52, 56), "particle 52 of system 2 lies where another one lies", None),
    ("systems", 1, grown(OWNERS == 3), "the energy of system 3 is not finite", None),
    ("systems", 0, at(slice(60, 62), 1), "positions of 2 of 100 .*; the first is particle 60 of system 3", "60"),
    ("wells", 0, twins(1, 30), "particle 1 lies where another one", None),
    ("wells", 1, lambda sigma: at(7)(sigma, -1.0), "epsilon of particle 7 is negative", None),
    ("wells", 2, lambda epsilon: at(7)(epsilon, -1.0), "epsilon of particle 7 is negative", None),
    ("wells", 2, at(7), "epsilon has 1 elements that are not finite; the first is 7", NUMBER),
    ("coefficients", 1, at(7), "coefficients has 1 elements that are not finite; the first is 7", NUMBER),
]  # fmt: skip


@pytest.mark.backends("cpu", "opencl", "cuda")
@pytest.mark.parametrize(("kind", "which", "spoil", "said", "later"), WRONG)
def test_errors_name_the_particle_at_once_and_later(backend, kind, which, spoil, said, later):
    case = Case(kind)
    made, right = case.make(dtype="float64", backend=backend.name), case.arrays
    wrong = [a.copy() for a in right]
    spoil(wrong[which])
    arrays = [backend.array(a) for a in wrong]
    with np.errstate(all="ignore"):
        with pytest.raises(ValueError, match=said):
            case.call(made, arrays)
        case.call(made, arrays, check=False)
    with pytest.raises(ValueError, match=later or said):
        made.check()
    close(case.call(made, [backend.array(a) for a in right]), case.call(case.make()), 1e-11, backend.host)
    made.check()


@pytest.mark.backends("cpu", "opencl", "cuda")
def test_pairs_of_two_systems_are_refused_at_once_and_later(backend):
    case = Case("systems")
    made, arrays = case.make(dtype="float64", backend=backend.name), [backend.array(a) for a in case.arrays]
    case.options = dict(exclusions=[(0, 1), (99, 3)])
    said = r"pair \[3, 99\], whose particles are in the systems 0 and 3"
    with pytest.raises(ValueError, match=said):
        case.call(made, arrays)
    case.call(made, arrays, check=False)
    with pytest.raises(ValueError, match=said):
        made.check()


@pytest.mark.parametrize("kind", ["charges", "wells", "mixed systems"])
def test_use_before_the_first_call_and_outputs_of_any_strides(kind):
    case = Case(kind)
    made = case.make()
    with pytest.raises(RuntimeError, match=f"this {type(made).__name__} has made no step yet"):
        made.check()
    with pytest.raises(ValueError, match=rf"give {type(made).__name__} backend= and dtype="):
        made.reserve(10)
    with pytest.raises(TypeError, match="give a Result"):
        case.call(made, out=case.arrays[1])
    with pytest.raises(TypeError, match="give dtype='float64'"):
        case.call(case.make(dtype="float32"))
    single = [a.astype("f4") if a.dtype.kind == "f" else a for a in case.arrays]
    assert case.call(case.make(dtype="float64"), single).forces.dtype == np.float32
    first = case.call(made)
    out = Result(*(None if a is None else np.empty((*np.shape(a), 2))[..., 1] for a in vars(first).values()))
    assert case.call(made, out=out).forces is out.forces
    close(out, first, 1e-14)
    made.check()
    assert made.nbytes > 0


@pytest.mark.backends("opencl", "cuda")
def test_calls_of_one_object_do_not_disturb_each_other(backend):
    case, charges = Case("dipoles"), Case("charges")
    made = case.on(backend, "float64")
    arrays = [backend.array(a) for a in case.arrays]
    first = backend.host(case.call(made, arrays).forces)
    plain = charges.call(made, [backend.array(a) for a in charges.arrays], virial=False)
    expected = dataclasses.replace(charges.call(charges.make()), virial=None)
    close(plain, expected, 1e-11, backend.host)
    again = backend.host(case.call(made, arrays).forces)  # a GPU adds in any order
    np.testing.assert_allclose(again, first, rtol=0, atol=1e-12 * abs(first).max())


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("kind", KINDS)
def test_a_reserved_step_neither_allocates_nor_waits(backend, kind):
    case = Case(kind, "float32")
    made, arrays = case.on(backend, "float32"), [backend.array(a) for a in case.arrays]
    memory = {name: array.size for name, array in made._core._memory.items()}
    out = case.call(made, arrays)
    case.call(made, arrays, check=False, out=out)  # results of an earlier call are the first dense ones
    assert {name: array.size for name, array in made._core._memory.items()} == memory
    with quiet(backend):
        for _ in range(3):
            case.call(made, arrays, check=False, out=out)
    case.call(made, arrays, check=False, out=out)
    close(out, case.call(case.make()), 2e-5, backend.host)


@pytest.mark.backends("cuda")
@pytest.mark.parametrize("kind", KINDS)
def test_a_cuda_graph_captures_a_step(backend, kind):
    cupy, case = backend.cupy, Case(kind, "float32")
    made, arrays = case.on(backend, "float32"), [cupy.asarray(a) for a in case.arrays]
    stream, pool = cupy.cuda.Stream(non_blocking=True), cupy.get_default_memory_pool()
    cupy.cuda.Device().synchronize()
    x = case.arrays[0]
    with stream:
        out = case.call(made, arrays)
        for _ in range(2):
            case.call(made, arrays, check=False, out=out)
        stream.synchronize()
        used = pool.used_bytes()
        stream.begin_capture()
        case.call(made, arrays, check=False, out=out)
        graph = stream.end_capture()
        assert pool.used_bytes() <= used  # garbage of other tests may go meanwhile
        moved = x + np.sin(np.arange(x.size, dtype="f4")).reshape(x.shape) / 50
        moved[(x == x[0]).all(1)] = moved[0]  # an excluded pair stays in one place: near it, float32 has few digits
        arrays[0].set(moved, stream=stream)
        graph.launch(stream)
        stream.synchronize()
    close(out, case.call(case.make(), (moved, *case.arrays[1:])), 2e-5, lambda a: a.get())
    made.check()
    branch, made._core.branch = made._core.branch, None
    assert branch is not None
    alone = case.call(made, arrays)
    exact = alone.forces.get()
    np.testing.assert_allclose(out.forces.get(), exact, rtol=0, atol=1e-5 * abs(exact).max())
