# SPDX-License-Identifier: BSD-3-Clause
"""Functions and objects of ASE by our search: against ASE itself on random cells, and against brute force."""

import itertools

import numpy as np
import pytest

import particlemesh as pm
from grid_cases import rounding
from images import near
from particlemesh.adapters import ase as ours

ase = pytest.importorskip("ase", reason="ase is not installed")
theirs = pytest.importorskip("ase.neighborlist", reason="ase is not installed")


def listed(i, j, shift):
    return sorted(zip(i.tolist(), j.tolist(), map(tuple, shift.tolist()), strict=True))


def cell_of(random):
    """Return a cell of any shape and handedness, thin ones too, with a volume."""
    while True:
        rows = random.normal(size=(3, 3)) * np.exp(random.uniform(-1, 1, (3, 1)))
        heights = 1 / np.linalg.norm(np.linalg.inv(rows), axis=0)
        if heights.min() > 0.15:
            return rows


def same_as_ase(seed):
    """Compare a random call; return how many pairs it lists."""
    random = np.random.default_rng(seed)
    count, rows, pbc = random.integers(0, 9), cell_of(random), random.random(3) < 0.6
    x = random.uniform(-2, 3, (count, 3)) @ rows
    numbers, selves = random.choice([1, 6, 8], count), bool(random.random() < 0.5)
    reach = random.uniform(0.2, 1.5)
    table = {(1, 8): reach, ("C", "C"): 0.7 * reach, (8, 8): 0.9 * reach}
    cutoff = [reach, random.uniform(0.0, 0.7 * reach, count), table][seed % 3]
    given = pbc, rows, x, cutoff, numbers, selves
    right, mine = (f("ijSDd", *given) for f in (theirs.primitive_neighbor_list, ours.primitive_neighbor_list))
    assert listed(*right[:3]) == listed(*mine[:3]), f"seed {seed}"
    assert [a.dtype for a in mine] == [np.int64] * 3 + [np.float64] * 2
    assert (np.diff(mine[0]) >= 0).all()
    np.testing.assert_allclose(mine[3], x[mine[1]] - x[mine[0]] + mine[2] @ rows, rtol=0, atol=1e-9)
    np.testing.assert_allclose(mine[4], np.linalg.norm(mine[3], axis=1), rtol=1e-12, atol=1e-12)
    return len(mine[0])


def test_random_cells_have_the_pairs_of_ase(request):
    quick = not request.config.getoption("--thorough")
    assert sum(map(same_as_ase, range(60 if quick else 10_000))) > 300


def list_like_ase(backend, seed):
    """Compare a list by a backend, in either precision, with ASE's of the same numbers; return its pairs.

    Cells are skewed, thin, large or small beside the radius; atoms are none, one, some, and far outside.
    """
    random = np.random.default_rng(seed)
    real = np.dtype(random.choice(["f4", "f8"]))
    rows, pbc = cell_of(random), tuple(bool(p) for p in random.random(3) < 0.6)
    count = int(random.choice([0, 1, 2, 9, 30]))
    far = np.where(pbc, random.choice([0, 2, 40]), random.choice([0, 2]))
    x = (random.uniform(-far, 1 + far, (count, 3)) @ rows).astype(real)
    box = pm.Box(rows, periodic=pbc)
    images = np.linalg.norm(box.inverse, axis=1)[np.array(pbc)]
    radius = float(random.uniform(0.05, 2.0)) * min(1.0, 2 / images.max(initial=1.0))
    band = rounding(box, x, radius)
    i, j, shift, distance = theirs.primitive_neighbor_list("ijSd", pbc, rows, x.astype("f8"), radius + band)
    possible = set(listed(i, j, shift))
    sure = distance < radius - band
    arrays = pm.neighbour_list("ijS", backend.array(x), rows, radius, periodic=pbc)
    mine = listed(*map(backend.host, arrays))
    assert len(set(mine)) == len(mine), f"seed {seed}"
    assert set(listed(i[sure], j[sure], shift[sure])) <= set(mine) <= possible, f"seed {seed}"
    return len(mine)


def test_random_cells_on_every_backend_have_the_pairs_of_ase(backend, request):
    most = 1_000 if backend.name == "cuda" else 10_000
    cases = range(most if request.config.getoption("--thorough") else 15)
    assert sum(list_like_ase(backend, seed) for seed in cases) > 150


@pytest.mark.parametrize("pbc", [(True, True, True), (False, True, False), (False, False, False)])
def test_all_pairs_of_brute_force(pbc):
    random = np.random.default_rng(5)
    rows = np.array([[1.0, 0.0, 0.0], [0.3, 1.2, 0.0], [-0.2, 0.1, 0.9]])
    x = (random.random((30, 3)) + random.integers(-3, 4, (30, 3))) @ rows
    expected = near(x, x, 0.8, rows, pbc, strict=True, turns=8)
    mine = ours.primitive_neighbor_list("ijS", pbc, rows, x, 0.8, self_interaction=True)
    assert listed(*mine) == sorted((i, j, s) for i, j, s in expected)
    scaled = np.linalg.solve(rows.T, x.T).T
    again = ours.primitive_neighbor_list("ijS", pbc, rows, scaled, 0.8, None, True, use_scaled_positions=True)
    assert listed(*again) == listed(*mine)


def test_distances_are_below_every_kind_of_cutoff():
    atoms = ase.Atoms("OH", [[0, 0, 0], [3.0, 4.0, 0]])
    for low, high in ((5.0, 5.001), ([2.0, 3.0], [2.0, 3.001]), ({("H", "O"): 5.0}, {("H", "O"): 5.001})):
        assert len(ours.neighbor_list("i", atoms, low)) == len(theirs.neighbor_list("i", atoms, low)) == 0
        assert len(ours.neighbor_list("i", atoms, high)) == len(theirs.neighbor_list("i", atoms, high)) == 2
    twins = ase.Atoms("H2", [[0, 0, 0]] * 2)
    for cutoff in (0.0, [0.0, 0.0]):
        assert len(ours.neighbor_list("i", twins, cutoff, True)) == len(theirs.neighbor_list("i", twins, cutoff, True))


def test_first_neighbors():
    random = np.random.default_rng(2)
    for count in (1, 5, 40):
        first = np.sort(random.integers(0, count, random.integers(0, 60)))
        np.testing.assert_array_equal(ours.first_neighbors(count, first), theirs.first_neighbors(count, first))


@pytest.mark.filterwarnings("ignore:Use, e.g.")  # two properties are deprecated in ASE
@pytest.mark.parametrize(("selves", "both"), [*itertools.product([False, True], repeat=2)])
def test_lists_that_stay_are_those_of_ase(selves, both):
    random = np.random.default_rng(7)
    rows, pbc = np.array([[2.0, 0.1, 0.0], [0.3, 2.2, 0.0], [0.0, 0.1, 1.9]]), (True, False, True)
    atoms = ase.Atoms("H12", random.random((12, 3)) @ rows, cell=rows, pbc=pbc)
    radii = random.uniform(0.3, 0.6, 12)
    mine, right = (
        module.NeighborList(radii, 0.1, True, self_interaction=selves, bothways=both) for module in (ours, theirs)
    )
    for step, moved in enumerate((0.0, 0.02, 0.15)):
        atoms.positions += moved / np.sqrt(3)
        assert mine.update(atoms) == right.update(atoms)
        assert mine.nupdates == right.nupdates == (1, 1, 2)[step]
        assert (mine.nneighbors, mine.npbcneighbors) == (right.nneighbors, right.npbcneighbors)
    for atom in range(12):
        for a, b in zip(mine.get_neighbors(atom), right.get_neighbors(atom), strict=True):
            assert not both or a.tolist() == b.tolist()
            assert a.dtype == b.dtype
    pairs, others = (
        {(i, j, *s) for i in range(12) for j, s in zip(*(a.tolist() for a in made.get_neighbors(i)), strict=True)}
        for made in (mine, right)
    )
    turned = {(j, i, -a, -b, -c) for i, j, a, b, c in others}
    assert pairs | {(j, i, -a, -b, -c) for i, j, a, b, c in pairs} == others | turned
    dense = mine.get_connectivity_matrix(sparse=False)
    np.testing.assert_array_equal(dense, mine.get_connectivity_matrix().toarray())
    np.testing.assert_array_equal(dense | dense.T, (m := right.get_connectivity_matrix(sparse=False)) | m.T)
    assert mine.get_connectivity_matrix().dtype == dense.dtype == np.int8
    assert [a.tolist() for a in mine.nl.neighbors] == [mine.get_neighbors(i)[0].tolist() for i in range(12)]
    assert sum(map(len, mine.nl.displacements)) == len(mine.nl.pair_first)


@pytest.mark.parametrize("name", ["bothways", "self_interaction"])
def test_what_is_set_is_obeyed_from_the_next_update_on(name):
    x, box = np.random.default_rng(5).random((20, 3)), ([True] * 3, np.eye(3))
    made = ours.NewPrimitiveNeighborList(np.full(20, 0.1), skin=0.0, sorted=True, self_interaction=False)
    made.update(*box, x)
    setattr(made, name, False)  # as it is
    assert not made.update(*box, x)
    setattr(made, name, True)
    with pytest.raises(RuntimeError, match="Must call update"):
        len(made.pair_first)
    assert made.update(*box, x) and not made.update(*box, x)
    options = {"self_interaction": False} | {name: True}
    anew = ours.NewPrimitiveNeighborList(np.full(20, 0.1), skin=0.0, sorted=True, **options)
    anew.update(*box, x)
    for one, other in ((made.pair_first, anew.pair_first), (made.offset_vec, anew.offset_vec)):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(TypeError, match=f"{name} is 1; give True or False"):
        setattr(made, name, 1)


def test_a_list_follows_cell_axes_and_number_of_atoms():
    made = ours.NewPrimitiveNeighborList([0.3, 0.3], skin=0.0, self_interaction=False)
    x = np.array([[0.0, 0.0, 0.0], [0.9, 0.0, 0.0]])
    assert made.update([True] * 3, np.eye(3), x) and len(made.pair_first) == 1
    assert not made.update([True] * 3, np.eye(3), x)
    assert made.update([False] * 3, np.eye(3), x) and not len(made.pair_first)
    assert made.update([True] * 3, np.eye(3), x) and made.update([True] * 3, 0.95 * np.eye(3), x)
    with pytest.raises(ValueError, match="Wrong number of cutoff radii: 2 for 1 atoms"):
        made.update([True] * 3, np.eye(3), x[:1])
    none = ours.PrimitiveNeighborList([])
    assert none.update([True] * 3, np.eye(3), np.zeros((0, 3))) and none.nneighbors == 0


ATOMS, EYE, YES = ase.Atoms("OH", [[0, 0, 0], [1, 0, 0]]), np.eye(3), [True] * 3
LIST = ours.PrimitiveNeighborList
ERRORS = [
    (lambda: ours.neighbor_list("ix", ATOMS, 1.0), ValueError, "quantities is 'ix'"),
    (lambda: ours.neighbor_list("", ATOMS, 1.0), ValueError, "at least one letter"),
    (lambda: ours.neighbor_list("i", ATOMS, -1.0), ValueError, "a finite number of at least zero"),
    (lambda: ours.neighbor_list("i", ATOMS, [1.0]), ValueError, "radius"),
    (lambda: ours.neighbor_list("i", ATOMS, 1.0, 1), TypeError, "self_interaction is 1; give True or False"),
    (lambda: ours.neighbor_list("i", ATOMS.positions, 1.0), TypeError, r"an ase\.Atoms is needed"),
    (lambda: ours.primitive_neighbor_list("i", YES, EYE, [[0] * 3], {(1, 1): 1.0}), TypeError, "numbers is missing"),
    (lambda: ours.primitive_neighbor_list("i", YES, EYE[:2], [[0] * 3], 1.0), ValueError, r"cell has shape \(2, 3\)"),
    (lambda: ours.primitive_neighbor_list("i", YES, 0 * EYE, [[0] * 3], 1.0), ValueError, "lattice vector 0 is zero"),
    (lambda: LIST([1.0]).get_neighbors(0), RuntimeError, r"Must call update\(atoms\) first"),
    (lambda: LIST([1.0], sorted="no"), TypeError, "sorted is 'no'; give True or False"),
    (lambda: LIST([1.0], bothways=1), TypeError, "bothways is 1; give True or False"),
    (lambda: ours.NeighborList([1.0]).update(EYE), TypeError, r"an ase\.Atoms is needed"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_what_is_not_allowed_is_named(number):
    call, error, message = ERRORS[number]
    with pytest.raises(error, match=message):
        call()


def test_atoms_that_are_not_there_are_refused():
    made = LIST([0.6, 0.6], skin=0.0, self_interaction=False)
    made.update(ATOMS.pbc, ATOMS.cell, ATOMS.positions)
    assert made.get_neighbors(-2)[0].tolist() == [1]
    for atom in (2, -3):
        with pytest.raises(IndexError, match="there are 2 atoms"):
            made.get_neighbors(atom)
