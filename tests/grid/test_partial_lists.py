# SPDX-License-Identifier: BSD-3-Clause
"""Lists with the rows of some particles: those rows of the whole list, and nothing else."""

import numpy as np
import pytest

import particlemesh as pm

COUNT, SYSTEMS = 300, 4
RNG = np.random.default_rng(4)
X = RNG.random((COUNT, 3))
CLUSTERED = np.concatenate([0.02 * RNG.random((COUNT - 3, 3)), 90 * RNG.random((3, 3))])
RADII = RNG.uniform(0.05, 0.12, COUNT)
UNEVEN = np.where(np.arange(COUNT) < 5, 0.3, 0.004)
SKEWED = [[1.0, 0.0, 0.0], [0.3, 0.9, 0.0], [-0.2, 0.1, 1.1]]
SYSTEM = RNG.integers(0, SYSTEMS, COUNT)
CASES = {
    "periodic": (X, (1.0,) * 3, 0.2, {}), "half": (X, (1.0,) * 3, 0.2, {"half": True}),
    "open": (X, (1.0,) * 3, 0.2, {"periodic": False}), "skewed": (X, SKEWED, 0.2, {"half": True}),
    "small box": (0.3 * X, (0.3,) * 3, 0.35, {}), "radii": (X, (1.0,) * 3, RADII, {}),
    "uneven radii": (X, (1.0,) * 3, UNEVEN, {}), "clustered": (CLUSTERED, (1.0,) * 3, 0.004, {"periodic": False}),
    "systems": (X, (1.0,) * 3, 0.25, {"system": SYSTEM, "boxes": RNG.uniform(0.8, 1.0, (SYSTEMS, 3))}),
    "nearest": (X, (1.0,) * 3, 0.2, {"most": 3}), "by j": (X, (1.0,) * 3, 0.2, {"sort_by": "j"}),
    "by distance": (X, (1.0,) * 3, 0.2, {"sort_by": "d"}), "line": (X[:, :1], (1.0,), 0.01, {"half": True}),
}  # fmt: skip
CHOSEN = {
    "some": np.array([7, 250, 3, 251, 252, 7]), "mask": RNG.random(COUNT) < 0.3, "none": np.zeros(0, int),
    "all": np.arange(COUNT),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("which", CHOSEN)
def test_rows_are_those_of_the_whole_list(backend, case, which):
    if backend.name != "cpu" and which in ("none", "all"):
        pytest.skip("devices choose from the whole list, whatever is chosen")
    x, box, radius, options = CASES[case]
    of = CHOSEN[which]
    letters = "ijSdn" if options.get("sort_by") == "j" else "ijSdns"
    i, j, shift, d, *counted = pm.neighbour_list(letters, x, box, radius, **options)
    n = counted[0]
    mask = np.zeros(COUNT, bool)
    mask[of] = True
    given = radius if np.ndim(radius) == 0 else backend.array(radius)
    if "system" in options:
        options = options | {"system": backend.array(SYSTEM)}
    made = pm.neighbour_list(letters, backend.array(x), box, given, **options, of=of)
    made = [backend.host(a) for a in made]
    keep = mask[i]
    ordered = options.get("most") or options.get("sort_by")
    lists = [a[keep] for a in (i, j, shift, d)], made[:4]
    if not ordered:  # of a row, pairs may come in any order
        lists = [[a[np.lexsort((*b[2].T, b[1], b[0]))] for a in b] for b in lists]
    for expected, got in zip(*lists, strict=True):
        assert expected.dtype == got.dtype
        np.testing.assert_array_equal(got, expected) if expected.dtype.kind == "i" else np.testing.assert_allclose(
            got, expected, rtol=0, atol=1e-13
        )
    np.testing.assert_array_equal(made[4], np.where(mask, n, 0))
    if len(made) > 5:
        np.testing.assert_array_equal(made[5], np.concatenate([[0], np.cumsum(made[4])]))


def test_single_letters_need_no_indices():
    d = pm.neighbour_list("d", X, (1.0,) * 3, 0.2, of=[5])
    i, whole = pm.neighbour_list("id", X, (1.0,) * 3, 0.2)
    np.testing.assert_array_equal(np.sort(d), np.sort(whole[i == 5]))


@pytest.mark.parametrize(
    ("of", "words"),
    [([1, COUNT], r"of\[1\] is 300"), ([-1], r"of\[0\] is -1"), ([0.5], "dtype float64"), (np.ones(3, bool), "mask")],
)
def test_wrong_choices_are_named(of, words):
    with pytest.raises((TypeError, ValueError), match=words):
        pm.neighbour_list("ij", X, (1.0,) * 3, 0.1, of=of)


def test_torch_differentiates_rows():
    torch = pytest.importorskip("torch")
    x = torch.tensor(X, requires_grad=True)
    of = torch.tensor([5, 9])
    (pm.neighbour_list("d", x, (1.0,) * 3, 0.2, of=of) ** 2).sum().backward()
    i, j, vector = pm.neighbour_list("ijD", X, (1.0,) * 3, 0.2)
    expected, keep = np.zeros_like(X), np.isin(i, of)
    np.add.at(expected, i[keep], -2 * vector[keep])
    np.add.at(expected, j[keep], 2 * vector[keep])
    np.testing.assert_allclose(x.grad, expected, atol=1e-13)


@pytest.mark.parametrize("kind", ["periodic", "open", "mixed"])
def test_a_cutoff_of_each_system_is_that_of_half_of_it_for_each_particle(kind):
    cutoffs = np.array([0.15, 0.3, 0.0, 0.22])
    flags = {"periodic": True, "open": False, "mixed": np.arange(12).reshape(4, 3) % 3 > 0}[kind]
    lengths = np.array([[1.0, 0.9, 0.8]] * SYSTEMS) * np.linspace(0.9, 1.1, SYSTEMS)[:, None]
    system = np.where(SYSTEM == 2, 1, SYSTEM)  # one system has no particles, and none are in order
    x = X * lengths[system]
    options = {"periodic": flags, "system": system, "boxes": lengths}
    i, j, shift, d = pm.neighbour_list("ijSd", x, (1.0,) * 3, cutoffs[system] / 2, **options)
    assert (d <= cutoffs[system[i]]).all()
    for s in range(SYSTEMS):
        mine = np.flatnonzero(system == s)
        each = flags if isinstance(flags, bool) else tuple(flags[s].tolist())
        one = pm.neighbour_list("ijS", x[mine], tuple(lengths[s]), cutoffs[s], periodic=each)
        chosen = system[i] == s
        made = {(a, b, *c) for a, b, c in zip(i[chosen], j[chosen], shift[chosen].tolist(), strict=True)}
        assert made == {(mine[a], mine[b], *c) for a, b, c in zip(*one[:2], one[2].tolist(), strict=True)}
        assert len(made) == chosen.sum()
