# SPDX-License-Identifier: BSD-3-Clause
"""Lists with the arguments of matscipy, vesin, pymatgen, MDAnalysis, freud: against them, and against brute force."""

import collections
import itertools
import math

import numpy as np
import pytest

from images import near
from particlemesh.adapters import freud as of_freud
from particlemesh.adapters import matscipy as of_matscipy
from particlemesh.adapters import mdanalysis as of_mdanalysis
from particlemesh.adapters import pymatgen as of_pymatgen
from particlemesh.adapters import vesin as of_vesin

System = collections.namedtuple("System", "x rows pbc reach")


def needed(name):
    return pytest.importorskip(name, reason=f"{name} is not installed")


def system(seed):
    """Return points far outside of a cell of any shape, which may be thin, with some axes that repeat."""
    random = np.random.default_rng(seed)
    while True:
        rows = random.normal(size=(3, 3)) * np.exp(random.uniform(-1, 1, (3, 1)))
        if (1 / np.linalg.norm(np.linalg.inv(rows), axis=0)).min() > 0.2:
            break
    count = (0, 1, 2, 5, 9)[seed % 5]
    x = random.uniform(-2, 3, (count, 3)) @ rows
    return System(x, rows, random.random(3) < 0.6, random.uniform(0.2, 1.8))


def upright(seed):
    """Return points far outside of a box of six numbers, in float32, with a cutoff that may be beyond the box."""
    random = np.random.default_rng(seed)
    lengths = random.uniform(1.0, 6.0, 3)
    angles = np.full(3, 90.0) if seed % 2 else random.uniform(80, 100, 3)
    if seed % 4 == 1:
        lengths[random.random(3) < 0.4] = 0.0
    count = (0, 1, 2, 9, 40)[seed % 5]
    x = random.uniform(-2, 3, (count, 3)) * np.maximum(lengths, 1)
    return x.astype("f4"), np.array([*lengths, *angles], "f4"), random.uniform(0.3, 4.0)


def listed(i, j, shift):
    return sorted(zip(i.tolist(), j.tolist(), map(tuple, shift.astype(int).tolist()), strict=True))


def both_ways(pairs):
    return sorted(pairs + [(j, i, tuple(-n for n in shift)) for i, j, shift in pairs])


def from_matscipy(function, s):
    return function("ijSdD", positions=s.x, cell=s.rows, pbc=s.pbc, cutoff=s.reach)


def from_vesin(function, s):
    made = function(cutoff=s.reach, full_list=True, sorted=True)
    return made.compute(s.x, s.rows, s.pbc, "ijSdD")


def from_pymatgen(function, s):
    i, j, shift, d = function(s.x, s.x, s.reach, s.pbc.astype(np.int64), s.rows)
    other = (i != j) | shift.any(1)
    i, j, shift, d = i[other], j[other], shift[other], d[other]
    return i, j, shift, d, s.x[j] - s.x[i] + shift @ s.rows


FULL = {
    "matscipy.neighbours": (from_matscipy, "neighbour_list", of_matscipy),
    "vesin": (from_vesin, "NeighborList", of_vesin),
    "pymatgen.optimization.neighbors": (from_pymatgen, "find_points_in_spheres", of_pymatgen),
}


@pytest.mark.parametrize("host", FULL)
def test_pairs_of_random_cells_are_those_of_the_host(host, request):
    call, name, ours = FULL[host]
    theirs, mine = getattr(needed(host), name), getattr(ours, name)
    total = 0
    for seed in range(2000 if request.config.getoption("--thorough") else 100):
        s = system(seed)
        if not len(s.x) and "pymatgen" in host:
            continue  # an error in the host
        right, got = call(theirs, s), call(mine, s)
        assert listed(*right[:3]) == listed(*got[:3]), f"seed {seed}"
        assert [a.dtype for a in right] == [a.dtype for a in got] and (np.diff(got[0].astype(int)) >= 0).all()
        np.testing.assert_allclose(got[4], s.x[got[1]] - s.x[got[0]] + got[2] @ s.rows, rtol=0, atol=1e-9)
        np.testing.assert_allclose(got[3], np.linalg.norm(got[4], axis=1), rtol=1e-9)
        total += len(got[0])
    assert total > 1000


@pytest.mark.parametrize("host", FULL)
@pytest.mark.parametrize("pbc", [(True, True, True), (False, True, False), (False, False, False)])
def test_pairs_of_brute_force(host, pbc):
    random = np.random.default_rng(5)
    rows = np.array([[1.0, 0.0, 0.0], [0.3, 1.2, 0.0], [-0.2, 0.1, 0.9]])
    s = System((random.random((20, 3)) + random.integers(-2, 3, (20, 3))) @ rows, rows, np.array(pbc), 0.7)
    call, name, ours = FULL[host]
    expected = near(s.x, s.x, s.reach, rows, pbc, strict=True, turns=6)
    expected = [(i, j, shift) for i, j, shift in expected if i != j or any(shift)]
    assert listed(*call(getattr(ours, name), s)[:3]) == sorted(expected)


@pytest.mark.parametrize("host", FULL)
def test_pairs_at_the_cutoff_are_those_of_the_host(host):
    call, name, ours = FULL[host]
    x = np.array([[0.0, 0.0, 0.0], [3.0, 4.0, 0.0], [6.0, 8.0, 0.0]])
    for reach, least in ((5.0, host.startswith("pymatgen")), (np.nextafter(5.0, 6.0), True), (4.999, False)):
        s = System(x, np.eye(3) * 20, np.zeros(3, bool), reach)
        assert len(call(getattr(ours, name), s)[0]) == 4 * least
        assert len(call(getattr(needed(host), name), s)[0]) == 4 * least


# ---- matscipy ------------------------------------------------------------------------------------------------


def test_cutoffs_of_matscipy():
    theirs = needed("matscipy.neighbours").neighbour_list
    random = np.random.default_rng(1)
    x, numbers = random.random((30, 3)) * 4, random.choice([1, 6, 8], 30).astype("i4")
    cutoffs = [
        np.float32(1.25), random.uniform(0.2, 0.8, 30), {(1, 6): 1.1, ("C", "C"): 1.4}, {("U", 1): 2.0},
        collections.defaultdict(lambda: 1.3),
    ]  # fmt: skip
    for cutoff, pbc in itertools.product(cutoffs, (None, [True, False, True])):
        given = {"positions": x, "cutoff": cutoff, "numbers": numbers, "pbc": pbc, "cell": pbc and 4 * np.eye(3)}
        assert listed(*of_matscipy.neighbour_list("ijS", **given)) == listed(*theirs("ijS", **given))
    atoms = needed("ase").Atoms(numbers, x, cell=[4, 4, 4], pbc=True)
    np.testing.assert_array_equal(of_matscipy.neighbour_list("i", atoms, 1.5), theirs("i", atoms, 1.5))


def test_wrong_calls_of_matscipy_are_named():
    x = np.zeros((2, 3))
    for given, said in (
        ({"positions": x}, "cutoff is missing"),
        ({"cutoff": 1.0}, "given are neither"),
        ({"atoms": x, "positions": x, "pbc": [False] * 3, "cutoff": 1.0}, "given are atoms, positions, pbc"),
        ({"positions": x, "cutoff": 1.0, "cell": np.eye(2)}, r"cell has shape \(2, 2\)"),
    ):
        with pytest.raises(ValueError, match=said):
            of_matscipy.neighbour_list("ij", **given)
    with pytest.raises(TypeError, match=r"an ase\.Atoms is needed"):
        of_matscipy.neighbour_list("ij", x, 1.0)
    with pytest.raises(TypeError, match=r"cutoff has shape \(3,\); give one number, or one for each of 2 atoms"):
        of_matscipy.neighbour_list("ij", positions=x, cell=np.eye(3), cutoff=np.ones(3))


# ---- vesin ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["NumPy", "torch"])
@pytest.mark.parametrize("real", ["float32", "float64"])
def test_half_lists_and_types_of_vesin(kind, real):
    theirs = needed("vesin").NeighborList
    random = np.random.default_rng(3)
    rows = np.array([[2.0, 0.0, 0.0], [0.4, 2.2, 0.0], [-0.3, 0.2, 0.7]]).astype(real)
    x = (random.random((15, 3)) @ rows).astype(real)
    if kind == "torch":
        x, rows = map(needed("torch").from_numpy, (x, rows))
    mine, right = (
        made(cutoff=1.5, full_list=False, sorted=True).compute(x, rows, [True, False, True], "PSdDji", copy=True)
        for made in (of_vesin.NeighborList, theirs)
    )
    assert [(type(a), a.dtype, a.shape[1:]) for a in mine] == [(type(a), a.dtype, a.shape[1:]) for a in right]
    mine, right = ([np.asarray(a) for a in result] for result in (mine, right))
    pairs, others = (listed(result[5], result[4], result[1]) for result in (mine, right))
    assert all(i < j or (i == j and shift > (0, 0, 0)) for i, j, shift in pairs)
    assert both_ways(pairs) == both_ways(others)
    assert (mine[0] == np.stack([mine[5], mine[4]], -1)).all()
    np.testing.assert_allclose(np.sort(mine[2]), np.sort(right[2]), rtol=1e-6)


def test_wrong_calls_of_vesin_are_named():
    x = np.zeros((2, 3))
    made = of_vesin.NeighborList(cutoff=1.0, full_list=True)
    for given, said in (
        ((x, np.eye(2), True), r"\(2, 2\)"),
        ((x[0], np.eye(3), True), r"\(3,\)"),
        ((x, np.eye(3), [True] * 2), r"\(2,\)"),
        ((x, np.eye(3), True, "ix"), "letters of 'ijPSdD'"),
    ):
        with pytest.raises(ValueError, match=said):
            made.compute(*given)
    assert made.compute(x, np.eye(3), False, "") == ()
    with pytest.raises(ValueError, match="cutoff is 0"):
        of_vesin.NeighborList(cutoff=0.0, full_list=True)
    atoms = needed("ase").Atoms("H2", x)
    with pytest.raises(ValueError, match="self_interaction is True"):
        of_vesin.ase_neighbor_list("ij", atoms, 1.0, self_interaction=True)


def test_atoms_of_ase_as_in_vesin():
    atoms = needed("ase.build").bulk("NaCl", "rocksalt", a=5.6) * (2, 1, 1)
    mine, right = (f("ijS", atoms, 4.1) for f in (of_vesin.ase_neighbor_list, needed("vesin").ase_neighbor_list))
    assert listed(*mine) == listed(*right)


# ---- pymatgen ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reach", "tol"), [(1.5, 1e-8), (1.5, 0.3), (0.7, 1e-8), (1.0, 0.0)])
def test_tolerances_of_pymatgen(reach, tol):
    theirs = needed("pymatgen.optimization.neighbors").find_points_in_spheres
    random = np.random.default_rng(4)
    x, y = random.integers(-8, 9, (40, 3)) / 4, random.integers(-8, 9, (9, 3)) / 4
    given = x, y, reach, np.array([1, 0, 1]), np.diag([2.0, 3.0, 0.75]), tol
    assert listed(*theirs(*given)[:3]) == listed(*of_pymatgen.find_points_in_spheres(*given)[:3])


def test_sites_of_a_structure():
    core = needed("pymatgen.core")
    structure = core.Structure(
        core.Lattice.monoclinic(3.0, 4.0, 5.0, 100.0), ["Na", "Cl"], [[0, 0, 0], [0.4, 0.5, 0.6]]
    )
    for given in ({}, {"sites": structure[1:]}, {"exclude_self": False}):
        mine, right = of_pymatgen.get_neighbor_list(structure, 4.0, **given), structure.get_neighbor_list(4.0, **given)
        assert listed(*mine[:3]) == listed(*right[:3]) and [a.dtype for a in mine] == [a.dtype for a in right]
    with pytest.raises(TypeError, match="a Structure of pymatgen is needed"):
        of_pymatgen.get_neighbor_list([[0, 0, 0]], 4.0)
    with pytest.raises(ValueError, match=r"lattice has shape \(3,\)"):
        of_pymatgen.find_points_in_spheres([[0, 0, 0]], [[0, 0, 0]], 1.0, [True] * 3, [1, 1, 1])


# ---- MDAnalysis ----------------------------------------------------------------------------------------------


def same_pairs(mine, right, reach, least=0.0):
    """Compare pairs and distances; those at a limit may be on either side, as boxes are rounded to float32."""
    a, b = ({tuple(p): d for p, d in zip(pairs.tolist(), ds, strict=True)} for pairs, ds in (mine, right))
    assert len(a) == len(mine[0])
    for pair in a.keys() | b.keys():
        d = a.get(pair, b.get(pair))
        assert pair in a.keys() & b.keys() or min(abs(d - reach), abs(d - least)) < 1e-4
        np.testing.assert_allclose(d, b.get(pair, d), rtol=0, atol=1e-4)


@pytest.mark.parametrize("method", ["bruteforce", None])
def test_random_boxes_have_the_pairs_of_mdanalysis(method, request):
    theirs = needed("MDAnalysis.lib.distances")
    total = 0
    for seed in range(2000 if request.config.getoption("--thorough") else 60):
        x, box, reach = upright(seed)
        y, least = upright(seed + 500)[0][:7], (None, 0.4 * reach, 0.0)[seed % 3]
        if method is None and not box.all():
            continue  # an error in MDAnalysis
        given = reach, least, box, method
        i, right = theirs.self_capped_distance(x, *given)
        mine = of_mdanalysis.self_capped_distance(x, *given)
        same_pairs(mine, (np.sort(i, axis=1), right), reach, least or 0.0)
        assert mine[0].dtype == i.dtype == np.int64 and mine[1].dtype == right.dtype
        same_pairs(of_mdanalysis.capped_distance(y, x, *given), theirs.capped_distance(y, x, *given), reach, least or 0)
        total += len(mine[0])
    assert total > 1000


def test_capped_distances_of_brute_force():
    x, box, reach = upright(9)
    pairs = near(x, x, reach, np.diag(box[:3]), box[:3] > 0, turns=5)
    expected = {}
    for (i, j, _), d in pairs.items():
        expected[i, j] = min(d, expected.get((i, j), math.inf))
    mine = of_mdanalysis.capped_distance(x, x, reach, box=box)
    assert len(x) == 40 and len(mine[0]) > 500
    same_pairs(mine, (np.array([*expected]), np.array([*expected.values()])), reach)
    assert (np.diff(mine[0][:, 0]) >= 0).all()
    only = of_mdanalysis.capped_distance(x[0], x, reach, 0.0, box, return_distances=False)
    assert only.tolist() == [pair for pair in mine[0].tolist() if pair[0] == 0 and pair[1] != 0]


def test_groups_of_atoms_and_wrong_calls_of_mdanalysis():
    x = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    with pytest.raises(ValueError, match="box has shape"):
        of_mdanalysis.capped_distance(x, x, 1.0, box=[1, 2, 3])
    with pytest.raises(ValueError, match=r"shapes \(2, 2\)"):
        of_mdanalysis.self_capped_distance(x[:, :2], 1.0)
    with pytest.raises(ValueError, match="method is 'tree'"):
        of_mdanalysis.self_capped_distance(x, 1.0, method="tree")
    universe = needed("MDAnalysis").Universe.empty(2, trajectory=True)
    universe.atoms.positions = x
    assert of_mdanalysis.self_capped_distance(universe.atoms, 1.0)[0].tolist() == [[0, 1]]  # up to the cutoff
    with pytest.raises(ValueError, match="no box has these lengths"):
        of_mdanalysis.self_capped_distance(x, 1.0, box=[1, 1, 1, 60, 60, 180])


# ---- freud ---------------------------------------------------------------------------------------------------


def test_random_boxes_have_the_neighbours_of_freud(request):
    freud = needed("freud")
    total = 0
    for seed in range(1000 if request.config.getoption("--thorough") else 40):
        random = np.random.default_rng(seed)
        flat, (lx, ly, lz) = seed % 3 == 0, random.uniform(2, 6, 3)
        tilts = random.uniform(-0.8, 0.8, 3) * (seed % 2) * np.array([1, not flat, not flat])
        box = freud.box.Box(lx, ly, 0 if flat else lz, *tilts, is2D=flat)
        x, y = (box.wrap(random.uniform(-8, 8, (count, 3)) * [1, 1, not flat]) for count in (random.integers(1, 30), 5))
        rows = box.to_matrix().T[: box.dimensions, : box.dimensions]
        thin = (1 / np.linalg.norm(np.linalg.inv(rows), axis=0)).min()
        for arguments in (
            {"r_max": thin * random.uniform(0.1, 0.49)},
            {"mode": "ball", "r_max": thin * 0.45, "r_min": thin * 0.2, "exclude_ii": True},
            {"num_neighbors": int(random.integers(1, 8))},
            {"num_neighbors": 6, "exclude_ii": True},
            {"num_neighbors": 2, "r_min": 0.3},
            {"mode": "nearest", "num_neighbors": 3, "r_max": thin * 0.4},
        ):
            # The tree of freud misses some of the nearest below r_max.
            host = freud.locality.AABBQuery(box, x)
            if arguments.get("mode") == "nearest":
                host = freud.locality.LinkCell(box, x, thin * 0.3)
            for points, by_distance in ((x, False), (y, True)):
                right = host.query(points, arguments).toNeighborList(by_distance)
                made = of_freud.AABBQuery(box, x).query(points, arguments)
                mine = made.toNeighborList(by_distance)
                if len(right) and right.distances.max() >= thin * 0.499:  # freud may take images that are farther
                    (i, d), (k, far) = ((n.query_point_indices, n.distances) for n in (mine, right))
                    assert i.tolist() == k.tolist()
                    assert (d[np.lexsort((d, i))] <= far[np.lexsort((far, k))] + 1e-5).all()
                else:
                    assert mine[:].tolist() == right[:].tolist(), f"seed {seed}, {arguments}"
                    np.testing.assert_allclose(mine.vectors, right.vectors, rtol=0, atol=1e-5)
                assert len(list(made)) == len(mine) and mine.num_points == len(x)
                total += len(mine)
    assert total > 1000


def test_boxes_that_freud_refuses():
    freud = needed("freud")
    box = freud.box.Box(2.0, 3.0, 4.0, 0.3, 0.2, -0.1)
    box.periodic = [True, False, True]
    x = np.random.default_rng(1).uniform(-6, 6, (20, 3)).astype("f4")
    expected = {}
    for (i, j, _), d in near(x, x, 2.5, box.to_matrix().T, box.periodic, strict=True, turns=9).items():
        expected[i, j] = min(d, expected.get((i, j), math.inf))
    mine = of_freud.LinkCell(box, x).query(x, {"r_max": 2.5}).toNeighborList()
    assert sorted(map(tuple, mine[:].tolist())) == sorted(expected)
    np.testing.assert_allclose(mine.distances, [expected[tuple(p)] for p in mine[:].tolist()], rtol=0, atol=1e-5)


def test_wrong_queries_of_freud_are_named():
    box = needed("freud").box.Box.cube(4.0)
    made = of_freud.AABBQuery(box, np.zeros((2, 3)))
    for arguments, said in (
        ({}, "a ball needs r_max"),
        ({"mode": "ball", "num_neighbors": 2, "r_max": 1.0}, "a ball needs r_max only"),
        ({"mode": "nearest"}, "nearest need num_neighbors"),
        ({"mode": "far", "r_max": 1.0}, "mode is 'far'"),
        ({"r_max": 1.0, "radius": 1.0}, "query_args has 'radius'"),
        ({"r_max": 1.0, "r_min": 2.0}, "r_min < r_max is needed"),
    ):
        with pytest.raises(ValueError, match=said):
            made.query(np.zeros(3), arguments)
    with pytest.raises(ValueError, match=r"points have shape \(2, 2\)"):
        of_freud.AABBQuery(box, np.zeros((2, 2)))
    with pytest.raises(ValueError, match="with z of 0 in a flat box"):
        of_freud.AABBQuery(type(box).square(4.0), np.ones((2, 3)))
