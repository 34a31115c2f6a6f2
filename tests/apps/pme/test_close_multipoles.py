# SPDX-License-Identifier: BSD-3-Clause
"""Excluded pairs at any distance keep the digits of all results: of a PME, of a batch, over ranks, of torch and JAX."""

import functools

import numpy as np
import pytest

from multipole_ewald import energy, system
from particlemesh.apps.pme import PME, DistributedPME, PMEBatch
from ranks import on_threads

BOX = np.array([[2.0, 0.0, 0.0], [0.3, 2.2, 0.0], [-0.4, 0.5, 1.9]])
SPLITS = {"gaussian": dict(splitting=3.5), "prolate": dict(bandwidth=28.0)}
FINE = dict(cutoff=1.7, shape=(48, 54, 48), window="bspline12")
PAIRS = dict(exclusions=[[0, 1], [4, 2]], factors=[0.0, 0.5])
NAMES = "dipoles", "quadrupoles", "widths"
KINDS = {"charges": 0, "dipoles": 1, "all": 3}  # how many of the names
DISTANCES = [1e-8, 3e-7, 1e-5, 1e-3, 1e-2, 0.1, 0.15, 0.3, 0.5]  # at 0.15 and 0.5 both sums have a share
TOLERANCE = {"float32": 2e-5, "float64": 1e-8}  # of a directional derivative
WEIGHTS = np.array([2.0, -0.5])  # of two systems


def numbers(distance, kind):
    """Arrays whose first two particles are so near each other, as numbers of float32; those not of the kind are 0."""
    arrays = list(system(BOX))
    arrays[4][0] = 0.1
    arrays[0][3] = arrays[0][5] + [0.15, 0.1, -0.1]  # two Gaussians that overlap
    arrays[0][1] = arrays[0][0] + distance * np.array([0.6, 0.64, 0.48])
    arrays = [a.astype("f4").astype("f8") for a in arrays]
    if distance and (arrays[0][0] == arrays[0][1]).all():  # a distance of the last bit
        arrays[0][1, 0] = np.nextafter(np.float32(arrays[0][0, 0]), np.float32(9))
    return [a if n < 2 + KINDS[kind] else 0 * a for n, a in enumerate(arrays)]


def steps():
    """Directions of arrays and of a strain."""
    rng, arrays = np.random.default_rng(7), system(BOX)
    made = [rng.normal(size=a.shape) for a in arrays] + [0.3 * rng.normal(size=(3, 3))]
    made[3] = made[3] + made[3].swapaxes(1, 2)
    made[4] = 0.1 * made[4] * (arrays[4] > 0)
    return made


@functools.cache
def exact(distance, kind):
    """The energy, its slopes along steps of each array and of a strain, and its bend along all, by plain sums."""
    arrays, along = numbers(distance, kind), steps()
    given = [a if n < 2 + KINDS[kind] or n == 5 else 0 * a for n, a in enumerate(along)]

    def at(*steps):
        x, *rest = (a + s * b for a, s, b in zip(arrays, steps, given[:5], strict=False))
        deform = np.eye(3) + steps[5] * given[5]
        return energy(BOX @ deform.T, x @ deform.T, *rest, pairs=PAIRS["exclusions"], factors=PAIRS["factors"])

    def ends(which, h):
        return [at(*(n * h * np.array(which))) for n in (-2, -1, 1, 2)]

    whole, used = at(*np.zeros(6)), [*range(2 + KINDS[kind]), 5]
    slopes = [np.array([1, -8, 8, -1]) @ ends(np.eye(6)[n], 1e-4) / 12e-4 for n in used]
    h, all_but_widths = 2e-3, np.array([1, 1, 1, 1, 0, 1.0])
    bend = (np.array([-1, 16, 16, -1]) @ ends(all_but_widths, h) - 30 * whole) / (12 * h * h)
    return whole, slopes, bend


def call(made, arrays, kind, *others, **options):
    return made(*arrays[:2], *others, **dict(zip(NAMES, arrays[2 : 2 + KINDS[kind]], strict=False)), **options)


def check(value, slopes, distance, kind, dtype, scale=1.0):
    """An energy and its slopes by the arrays of the kind, and by a strain, are those of plain sums."""
    whole, exact_slopes, _ = exact(distance, kind)
    assert value == pytest.approx(scale * whole, rel=TOLERANCE[dtype])
    along = steps()
    used = [*range(2 + KINDS[kind]), 5]
    for n, slope, expected in zip(used, slopes, exact_slopes, strict=True):
        if slope is None:
            continue
        size = np.linalg.norm(slope) * np.linalg.norm(along[n])  # what terms of the sum may have
        mine = (np.asarray(slope, np.float64) * along[n]).sum()
        assert mine == pytest.approx(scale * expected, rel=0, abs=TOLERANCE[dtype] * size), n


def of_result(result, kind, host):
    """The slopes of a result; those by widths are not among them."""
    named = [-host(result.forces), host(result.potentials), -host(result.fields)][: 2 + (KINDS[kind] > 0)]
    if KINDS[kind] > 1:
        named += [-host(result.field_gradients) / 2, None]
    return [*named, host(result.virial)]


@pytest.mark.turns(5)
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.backends("cpu", "opencl", "cuda")
def test_results_are_those_of_plain_sums(backend, kind, dtype, split):
    """A system of a batch has one such pair, and another system the same particles in a larger box."""
    pme = PME(BOX, **FINE, **SPLITS[split], **PAIRS)
    batch = PMEBatch(1.1 * BOX, 2, **FINE, **SPLITS[split])
    pairs = dict(PAIRS, exclusions=[*PAIRS["exclusions"], [6, 7]], factors=[*PAIRS["factors"], 0.0])
    for distance in DISTANCES[:: 2 if backend.name == "opencl" else 1]:  # PoCL computes slowly
        arrays = numbers(distance, kind)
        given = [backend.array(a.astype(dtype)) for a in arrays]
        result = call(pme, given, kind, fields=True)
        check(float(backend.host(result.energy)), of_result(result, kind, backend.host), distance, kind, dtype)
        both = [backend.array(np.concatenate([a, a]).astype(dtype)) for a in arrays]
        owners = backend.array(np.repeat([0, 1], 6).astype(np.int32))
        many = call(batch, both, kind, owners, boxes=np.array([BOX, 1.1 * BOX]), **pairs, fields=True)
        assert float(backend.host(many.energy)[0]) == pytest.approx(exact(distance, kind)[0], rel=TOLERANCE[dtype])
        for name, mine in vars(many).items():
            if getattr(result, name, None) is None:
                continue  # a batch has more of dipoles
            alone = backend.host(getattr(result, name))
            first = backend.host(mine)
            first = first[0] if name in ("energy", "virial") else first[:6]
            size = abs(alone).max() * (1e-5 if dtype == "float32" else 1e-9)
            np.testing.assert_allclose(first, alone, rtol=0, atol=size, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("distance", [0.0, *DISTANCES])
def test_sums_over_lists_leave_them_out(distance, dtype):
    """Sums of a list with a skin, by one polynomial in float32 and by many in float64."""
    arrays = numbers(distance, "charges")[:2]
    for split in SPLITS.values():
        plain = PME(BOX, **FINE, **split, **PAIRS)(*arrays, fields=True)
        result = PME(BOX, **FINE, **split, **PAIRS, skin=0.1)(*(a.astype(dtype) for a in arrays), fields=True)
        for name, exact in vars(plain).items():
            size = abs(exact).max() * (5e-6 if dtype == "float32" else 1e-13)
            np.testing.assert_allclose(getattr(result, name), exact, rtol=0, atol=size, err_msg=name)


# The pair 0, 1 is on one rank or on two, and so is the pair 4, 2.
@pytest.mark.turns(3)
@pytest.mark.parametrize("ends", [[6], [1, 6], [3, 3, 6], [1, 4, 6]])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("split", SPLITS)
def test_results_over_ranks_are_those_of_plain_sums(split, dtype, ends):
    """Also the shares of torch, and their second derivatives."""
    torch = pytest.importorskip("torch")
    from particlemesh.apps.pme.torch_ranks import energy as share_of

    by_x, by_q, strain = (steps()[n] for n in (0, 1, 5))

    def work(world, distance):
        mine = slice([0, *ends][world.rank], ends[world.rank])
        pme = DistributedPME(world, BOX, **FINE, **SPLITS[split], **PAIRS, threads=1)
        x, q = (a.astype(dtype) for a in numbers(distance, "charges")[:2])
        result = pme(x[mine], q[mine], fields=True)
        given = [torch.tensor(a.astype(dtype), requires_grad=True) for a in (x[mine], q[mine], BOX)]
        share = share_of(pme, *given[:2], cell=given[2])
        slopes = torch.autograd.grad(share, given, create_graph=True)
        # All ranks have the slope by the cell; positions are strained after their step.
        along = [(by_x + x @ strain.T)[mine], by_q[mine], BOX @ strain.T]
        along = [torch.tensor(a.astype(dtype)) for a in along]
        terms = [(g * a).sum() for g, a in zip(slopes, along, strict=True)]
        second = torch.autograd.grad(terms[0] + terms[1] + terms[2] / world.size, given)
        bend = [(g * a).sum().item() for g, a in zip(second, along, strict=True)]
        slopes = [s.detach().numpy().astype("f8") for s in slopes]
        bend = bend[0] + bend[1] + bend[2] / world.size + 2 * (slopes[0] * (by_x @ strain.T)[mine]).sum()
        return result, share.item(), slopes, bend

    for distance in DISTANCES:
        ranks = on_threads(len(ends), functools.partial(work, distance=distance))
        results, shares, slopes, bends = zip(*ranks, strict=True)
        of_all = [np.concatenate([f(r) for r in results]) for f in (lambda r: -r.forces, lambda r: r.potentials)]
        check(float(results[0].energy), [*of_all, results[0].virial], distance, "charges", dtype)
        whole = [np.concatenate([s[n] for s in slopes]) for n in range(2)]
        of_strain = whole[0].T @ numbers(distance, "charges")[0] + slopes[0][2].T @ BOX
        check(sum(shares), [*whole, of_strain], distance, "charges", dtype)
        expected = exact(distance, "charges")[2]
        assert sum(bends) == pytest.approx(expected, rel=max(100 * TOLERANCE[dtype], 1e-5))


@pytest.mark.turns(5)
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("library", ["torch", "jax"])
def test_slopes_of_torch_and_jax_are_those_of_plain_sums(library, kind, dtype, split):
    """Also of two systems, and second derivatives."""
    module = pytest.importorskip(library)
    pme, batch = PME(BOX, **FINE, **SPLITS[split], **PAIRS), PMEBatch(BOX, 2, **FINE, **SPLITS[split])
    pairs = np.concatenate([PAIRS["exclusions"], np.array(PAIRS["exclusions"]) + 6])
    listed, owners = dict(exclusions=pairs, factors=PAIRS["factors"] * 2), np.repeat([0, 1], 6)
    used = [*range(2 + KINDS[kind]), 5]
    along = [(0 if n == 4 else 1) * steps()[n].astype(dtype) for n in used]  # second derivatives by widths are others
    derive = (_torch if library == "torch" else _jax)(module, pme, batch, kind, dtype, listed, owners, along)
    for distance in DISTANCES[::2]:
        arrays = [a.astype(dtype) for a in (*numbers(distance, kind)[: 2 + KINDS[kind]], np.eye(3))]
        value, slopes, second, values, many = derive(arrays, [np.concatenate([a, a]) for a in arrays[:-1]])
        check(float(value), slopes, distance, kind, dtype)
        terms = [np.asarray(a, np.float64) * b for a, b in zip(second, along, strict=True)]
        size = 10 * np.sqrt(sum((t**2).sum() for t in terms)) * max(TOLERANCE[dtype], 1e-6)
        assert sum(t.sum() for t in terms) == pytest.approx(exact(distance, kind)[2], rel=0, abs=size)
        for n, weight in enumerate(WEIGHTS):
            part = [s[6 * n : 6 * n + 6] for s in many]
            check(weight * float(values[n]), [*part, None], distance, kind, dtype, weight)


def _torch(torch, pme, batch, kind, dtype, listed, owners, along):
    from particlemesh.apps.pme.torch import energy

    box, owners, along = (*map(torch.tensor, (BOX.astype(dtype), owners)), [*map(torch.tensor, along)])

    def derive(arrays, both):
        x, *rest, deform = given = [torch.tensor(a, requires_grad=True) for a in arrays]
        value = call(functools.partial(energy, pme), [x @ deform.T, *rest], kind, cell=box @ deform.T)
        slopes = torch.autograd.grad(value, given, create_graph=True)
        second = torch.autograd.grad(sum((g * s).sum() for g, s in zip(slopes, along, strict=True)), given)
        many = [torch.tensor(a, requires_grad=True) for a in both]
        values = call(functools.partial(energy, batch), many, kind, owners, **listed)
        of_many = torch.autograd.grad(values, many, torch.tensor(WEIGHTS.astype(dtype)))
        slopes, second, of_many = ([a.detach().numpy() for a in group] for group in (slopes, second, of_many))
        return value.detach(), slopes, second, values.detach(), of_many

    return derive


def _jax(jax, pme, batch, kind, dtype, listed, owners, along):
    from particlemesh.apps.pme.jax import energy

    def strained(x, *rest):
        (*rest, deform), box = rest, jax.numpy.asarray(BOX, dtype)
        return call(functools.partial(energy, pme), [x @ deform.T, *rest], kind, cell=box @ deform.T)

    def weighted(*given):
        values = call(functools.partial(energy, batch), given, kind, owners, **listed)
        return values @ WEIGHTS.astype(dtype), values

    def all_of(arrays, both):
        slopes = jax.value_and_grad(strained, range(len(arrays)))
        (value, first), (_, second) = jax.jvp(slopes, arrays, along)
        of_many, values = jax.grad(weighted, range(len(both)), has_aux=True)(*both)
        return value, first, second, values, of_many

    compiled = jax.jit(all_of)

    def derive(arrays, both):
        with jax.enable_x64(True):
            return jax.tree.map(np.asarray, compiled(arrays, both))

    return derive


@pytest.mark.turns(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("library", ["torch", "jax"])
def test_an_excluded_pair_in_one_place_is_the_limit_of_near_ones(library, kind):
    module = pytest.importorskip(library)
    pme = PME(BOX, **FINE, **SPLITS["gaussian"], **PAIRS)
    arrays = numbers(0.0, kind)[: 2 + KINDS[kind]]
    result = call(pme, arrays, kind, fields=True)
    if library == "torch":
        from particlemesh.apps.pme.torch import energy

        given = [module.tensor(a, requires_grad=True) for a in arrays]
        value = call(functools.partial(energy, pme), given, kind)
        slopes = module.autograd.grad(value, given, create_graph=True)
        second = module.autograd.grad(sum((s**2).sum() for s in slopes), given)
        assert all(bool(a.isfinite().all()) for a in second)
        value, slopes = value.item(), [s.detach().numpy() for s in slopes]
    else:
        from particlemesh.apps.pme.jax import energy

        with module.enable_x64(True):
            slopes_of = module.value_and_grad(
                lambda *a: call(functools.partial(energy, pme), a, kind), range(len(arrays))
            )
            value, slopes = module.jit(slopes_of)(*arrays)
    assert value == pytest.approx(result.energy, rel=1e-10)
    for slope, mine in zip(slopes, of_result(result, kind, np.asarray), strict=False):
        if mine is not None:
            np.testing.assert_allclose(slope, mine, rtol=0, atol=1e-9 * abs(mine).max())
    for pairs in ([[4, 2]], [[0, 1], [4, 2]]):  # of a pair that is left out, and of one that is scaled
        other = PME(BOX, **FINE, **SPLITS["gaussian"], exclusions=pairs, factors=0.5)
        with pytest.raises(Exception, match="on top of each other"):
            some = [module.numpy.asarray(a) for a in arrays] if library == "jax" else given
            float(call(functools.partial(energy, other), some, kind))  # JAX raises when the number is read
