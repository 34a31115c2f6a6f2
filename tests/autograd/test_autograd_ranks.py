# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives over ranks are those of one device: the adjoint of an exchange is the reverse exchange."""

import numpy as np
import pytest

import particlemesh as pm
from differentiating import Jax, in_both, in_each
from particlemesh import distributed as pmd
from ranks import on_threads

MESH = pm.Mesh((6, 5, 7), (1.0, 1.2, 0.9))
EVEN = pm.Mesh((6, 8), (1.0, 1.2))
COUNT = 12
# Ranks, mesh, cuts and options; the first of several ranks has no particles.
CASES = {
    "one": (1, MESH, "blocks", {}),
    "slabs": (2, EVEN, "slabs", {}),
    "blocks": (3, MESH, "blocks", dict(ghosts="particles")),
    "empty parts": (4, pm.Mesh((3, 8), (1.0, 1.0)), "slabs", {}),
}


def drawn(mesh, *shape, seed=1):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape) if shape else rng.random((COUNT, mesh.ndim)) * mesh.box.lengths


def mine_of(world):
    first = 0 if world.size == 1 else world.rank - 1
    return np.arange(COUNT)[first :: max(world.size - 1, 1)] if first >= 0 else np.arange(0)


def nodes_of(part):
    return (..., *(slice(a, a + n) for a, n in zip(part.lower, part.shape, strict=True)))


def over_ranks(library, mesh, world, window, cuts="blocks", **options):
    kind = library.module("autograd.{}").OverRanks
    return kind(pmd.Domain(mesh, world.size, cuts), world, window, threads=1, **options)


def losses_of(calls, transform, weights):
    """Losses with and without slopes; ``weights`` are those of this rank's nodes and particles."""
    here, on_nodes, at_particles = weights

    def once(x, values, field):
        return twice(x, values, field) + (calls.gradient(field, x) ** 3).sum()

    def twice(x, values, field):
        spreads = calls.spread(x, values)
        loss = (transform(spreads) * on_nodes).sum() + (here * spreads**2).sum()
        return loss + (calls.interpolate(field, x) ** 2 * at_particles).sum()

    return once, twice


class Local:
    """The verbs of `OverRanks` on one device."""

    def __init__(self, library, mesh, **kind):
        functions = library.module("autograd.{}")
        self.spread = lambda x, values: functions.spread(x, values, mesh, **kind)
        self.interpolate = lambda field, x: functions.interpolate(field, x, mesh, **kind)
        self.gradient = lambda field, x: functions.gradient(field, x, mesh, **kind)


@in_each(2)
@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_one_device(name, library):
    size, mesh, cuts, options = CASES[name]
    library, kind, axes = library(), dict(window="bspline5"), tuple(range(-mesh.ndim, 0))
    whole = drawn(mesh), drawn(mesh, 2, COUNT), drawn(mesh, *mesh.shape)
    weights = drawn(mesh, *mesh.shape, seed=2), drawn(mesh, *mesh.shape, seed=3), drawn(mesh, COUNT, seed=4)
    directions = [drawn(mesh, *a.shape, seed=5) for a in whole]
    k2 = [2 * np.pi * np.fft.fftfreq(n, 1 / n) for n in mesh.shape[:-1]] + [np.arange(mesh.shape[-1] // 2 + 1) * 2.0]
    factors = np.exp(-0.05 * sum(k**2 for k in np.meshgrid(*k2, indexing="ij")))

    def results(calls, transform, arrays, weights, directions):
        once, twice = losses_of(calls, transform, map(library.array, weights))
        first = [library.host(a) for a in library.slopes(once, arrays)[1]]
        forward = library.changes(twice, arrays, directions) if library.name == "jax" else None
        return [*first, *library.twice(twice, arrays, directions)[1]], forward

    with library.wide():
        fft = library.xp.fft

        def smooth(spreads):
            modes = fft.rfftn(spreads, None, axes)
            return fft.irfftn(modes**2 * library.array(factors), mesh.shape, axes)

        expected, change = results(Local(library, mesh, **kind), smooth, whole, weights, directions)

    def work(world):
        with library.wide():
            ranks = over_ranks(library, mesh, world, cuts=cuts, **kind, **options)
            some, nodes = mine_of(world), nodes_of(ranks.part)
            held = library.array(factors[tuple(slice(*r) for r in ranks.modes)])

            def smooth(spreads):
                return ranks.inverse(ranks.forward(spreads) ** 2 * held)

            cut = some, (slice(None), some), nodes
            arrays, along = ([a[c] for a, c in zip(given, cut, strict=True)] for given in (whole, directions))
            here, on_nodes, at = weights
            got, forward = results(ranks, smooth, arrays, (here[nodes], on_nodes[nodes], at[some]), along)
            for one, of_all, c in zip(got, expected, cut * 3, strict=True):
                assert one.shape == of_all[c].shape and one.dtype == of_all.dtype
                np.testing.assert_allclose(one, of_all[c], rtol=1e-10, atol=1e-10)
            return forward

    changes = on_threads(size, work)
    assert change is None or sum(changes) == pytest.approx(change, rel=1e-10)


@in_both
def test_differences(library):
    library = library()
    with library.wide():
        ranks = over_ranks(library, EVEN, pmd.World(), "bspline4")
        x, values = drawn(EVEN)[:3], drawn(EVEN, 3)
        field, vectors = drawn(EVEN, *EVEN.shape), drawn(EVEN, 3, 2)
        modes = np.asarray(ranks.forward(library.array(field)))
        for call, arrays, order in (
            (ranks.spread, (x, values), 2), (ranks.interpolate, (field, x), 2), (ranks.gradient, (field, x), 1),
            (ranks.spread_gradient, (x, vectors), 1), (ranks.forward, (field,), 2), (ranks.inverse, (modes,), 2),
            (ranks.total, (values,), 2), (ranks.shared, (modes,), 1),
        ):  # fmt: skip
            library.check(call, arrays, order)


@in_both
def test_what_is_refused(library):
    library, world = library(), pmd.World()
    domain = pmd.Domain(EVEN, 1, per_rank=2)
    with pytest.raises(ValueError, match="2 parts for each rank"):
        library.module("autograd.{}").OverRanks(domain, world)
    with library.wide():
        ranks, field = over_ranks(library, EVEN, world, "bspline6"), library.array(drawn(EVEN, *EVEN.shape))
        with pytest.raises(NotImplementedError, match="third derivatives"):
            library.twice(lambda x: ranks.gradient(field, x).sum(), [drawn(EVEN)], [drawn(EVEN)])

        def gone(x):
            return over_ranks(library, EVEN, world, "cic").spread(x, library.array(drawn(EVEN, COUNT))).sum()

        with pytest.raises(RuntimeError, match="keep it until all derivatives"):
            library.slopes(gone, [drawn(EVEN)])

    def work(world):
        with library.wide():
            ranks = over_ranks(library, EVEN, world, "cic")
            bad = np.full((1, 2), float("nan") if world.rank else 0.5)
            with pytest.raises(ValueError if world.rank else pmd.RankError, match="position"):
                ranks.spread(library.array(bad), library.array(np.ones(1)))

    on_threads(2, work)


@in_both
def test_sums_over_ranks_and_shared_arrays(library):
    """A square of a sum over ranks, of numbers times a factor that all have: 2 s a on each rank, and 2 s^2 / factor."""
    library = library()

    def work(world):
        with library.wide():
            ranks = over_ranks(library, EVEN, world, "cic")
            given = np.arange(3.0) + world.rank, np.array(2.0)

            def total(numbers, factor):
                return ranks.total(numbers.sum() * ranks.shared(factor))

            def square(*given):
                return total(*given) ** 2 / world.size

            def again(numbers, factor):
                return library.slopes(square, (numbers, factor), [1])[1][0] ** 2 / world.size

            (by_numbers, by_factor), (second,) = library.slopes(square, given)[1], library.slopes(again, given, [1])[1]
            return total(*map(library.array, given)).item(), by_numbers.tolist(), by_factor.item(), second.item()

    # The sum of all losses is (18 f)^2. Its slope by f is 2 (18^2) f, whose square has the slope 8 (18^4) f.
    assert on_threads(3, work) == [(36.0, [144.0] * 3, 1296.0, 8.0 * 18**4 * 2)] * 3


LONELY = {
    "spread": (lambda ranks, x, v, zeros: ranks.spread(x, v), (1, 0), "positions"),
    "values": (lambda ranks, x, v, zeros: ranks.spread(x, v), (0, 1), "values"),
    "both": (lambda ranks, x, v, zeros: ranks.spread(x, v), (1, 1), "positions and values"),
    "interpolate": (lambda ranks, x, v, zeros: ranks.interpolate(zeros, x), (1, 0), "positions"),
    "forward": (lambda ranks, x, v, zeros: ranks.forward(zeros + v.sum()), (0, 1), "field"),
    "total": (lambda ranks, x, v, zeros: ranks.total(v), (0, 1), "share"),
    "shared": (lambda ranks, x, v, zeros: ranks.shared(v), (0, 1), "array"),
    "cell": (
        lambda ranks, x, v, zeros: ranks.potential(x, v, cell=x[:, 0] + 1, green="ewald", alpha=3.0), (1, 0),
        "positions and cell",
    ),
}  # fmt: skip


@in_both
@pytest.mark.parametrize("name", LONELY)
def test_ranks_whose_inputs_need_other_derivatives_raise(name, library):
    call, needs, words = LONELY[name]
    library, some = library(), [n for n, need in enumerate(needs) if need]

    def work(world):
        ranks = over_ranks(library, pm.Mesh((4, 4), (1.0, 1.0)), world, "tsc")
        given = np.full((2, 2), 0.5, np.float32), np.ones(2, np.float32)
        zeros = library.array(np.zeros(ranks.part.shape, np.float32))

        def loss(*given):
            return (abs(call(ranks, *given, zeros)) ** 2).sum()

        with pytest.raises(ValueError, match=library.lonely.format(words)):
            library.slopes(loss, given, some) if world.rank else loss(*map(library.array, given))
        loss(*map(library.array, given))
        slopes = library.slopes(loss, given, some)[1]
        return [str(slope.dtype).removeprefix("torch.") for slope in slopes]

    assert on_threads(2, work) == [["float32"] * len(some)] * 2


def test_ranks_that_take_other_second_derivatives_raise():
    library = Jax()

    def work(world):
        ranks = over_ranks(library, EVEN, world, "bspline4")
        x, values = np.full((2, 2), 0.5, np.float32), np.ones(2, np.float32)

        def slopes(*given):
            return sum((a**2).sum() for a in library.slopes(lambda *g: (ranks.spread(*g) ** 2).sum(), given)[1])

        text = "by positions and values, and on rank 1 positions and values, then values:"
        with pytest.raises(ValueError, match=text):
            library.slopes(slopes, (x, values), [1]) if world.rank else slopes(x, values)

    on_threads(2, work)


REFUSED = {
    "jit": lambda jax, f, x: jax.jit(f)(x),
    "jit of grad": lambda jax, f, x: jax.jit(jax.grad(f))(x),
    "grad of jit": lambda jax, f, x: jax.grad(jax.jit(f))(x),
    "jit of a linear part": lambda jax, f, x: jax.jit(jax.linearize(f, x)[1])(x),
    "vmap": lambda jax, f, x: jax.vmap(f)(jax.numpy.stack([x, x])),
    "hessian": lambda jax, f, x: jax.hessian(f)(x),
    "scan": lambda jax, f, x: jax.lax.scan(lambda total, _: (total + f(x), None), 0.0, None, length=2),
    "cond": lambda jax, f, x: jax.lax.cond(x.shape[0] > 0, f, f, x),
    "shard_map": lambda jax, f, x: jax.shard_map(
        f, mesh=jax.sharding.Mesh(jax.devices()[:1], ("i",)), in_specs=jax.sharding.PartitionSpec(),
        out_specs=jax.sharding.PartitionSpec(),
    )(x),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_compiled_programs_refuse_calls_over_ranks(name):
    """Every rank raises before it sends a message in the program, and goes on."""
    library = Jax()

    def work(world):
        ranks = over_ranks(library, EVEN, world, "bspline4")
        x = library.array(np.full((2 + world.rank, 2), 0.5, np.float32))
        modes = ranks.forward(library.xp.zeros(ranks.part.shape))
        for call in (
            lambda x: (ranks.spread(x, library.xp.ones(len(x))) ** 2).sum(),
            lambda x: ranks.total((x**2).sum()),
            lambda x: (ranks.inverse(modes + x[0, 0]) ** 2).sum(),
        ):
            with pytest.raises(NotImplementedError, match="Compile the parts between the calls, and differentiate out"):
                REFUSED[name](library.jax, call, x)
        return float(ranks.total(library.xp.float32(1.0)))

    assert on_threads(2, work) == [2.0, 2.0]


def test_a_rank_that_compiles_a_call_alone_keeps_nobody_waiting():
    library = Jax()

    def work(world):
        ranks, x = over_ranks(library, EVEN, world, "bspline4"), library.array(np.full((3, 2), 0.5, np.float32))

        def call(x):
            return (ranks.spread(x, library.xp.ones(len(x))) ** 2).sum()

        with pytest.raises(ValueError, match="rank 0 derivatives are by inputs of a compiled .* and on rank 1 nothing"):
            (call if world.rank else library.jax.jit(call))(x)
        return float(ranks.total(library.xp.float32(1.0)))

    assert on_threads(2, work) == [2.0, 2.0]


def test_checkpoints_of_jax():
    """`jax.checkpoint` makes the calls again, in the same order on all ranks."""
    library = Jax()

    def work(world):
        with library.wide():
            ranks, x = over_ranks(library, EVEN, world, "bspline4"), drawn(EVEN, seed=world.rank)

            def loss(x):
                return (ranks.inverse(ranks.forward(ranks.spread(x, library.xp.ones(len(x)))) ** 2) ** 2).sum()

            once, again = (library.slopes(of, [x])[1][0] for of in (loss, library.jax.checkpoint(loss)))
            np.testing.assert_allclose(once, again, rtol=1e-12)

    on_threads(2, work)
