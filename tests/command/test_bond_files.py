# SPDX-License-Identifier: BSD-3-Clause
"""Pairs that ``particlemesh neighbours`` writes for other programs: as bonds, and as lists of edges."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import particlemesh as pm
from particlemesh.apps import files
from particlemesh.command import cli

ROWS = np.array([[4.0, 0.0, 0.0], [0.5, 5.0, 0.0], [0.0, -0.4, 6.0]])
X = np.random.default_rng(11).random((300, 3)) @ ROWS


@pytest.fixture(autouse=True)
def few(tmp_path, monkeypatch):
    """Go to a folder with a file of particles, and return its name."""
    monkeypatch.chdir(tmp_path)
    np.savez("few.npz", positions=X, box=ROWS)
    return "few.npz"


def run(*words, code=0):
    result = CliRunner().invoke(cli.app, ["neighbours", *map(str, words)])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def expected(radius, letters="ij", **options):
    return pm.neighbour_list(letters, X, pm.Box(ROWS), radius, half=True, **options)


@pytest.mark.parametrize("chunk", [100, 100_000])
def test_bonds_in_gsd_are_the_pairs(few, chunk):
    gsd = pytest.importorskip("gsd.hoomd", reason="gsd is not installed")
    output = run(few, "--radius", 0.6, "--out", "b.gsd", "--chunk", chunk)
    with gsd.open("b.gsd") as file:
        (shot,) = file
        group, box, x = shot.bonds.group, shot.configuration.box, shot.particles.position
    assert sorted(map(tuple, group.tolist())) == sorted(zip(*(a.tolist() for a in expected(0.6)), strict=True))
    assert len(group) > 100 and f"pairs {len(group)} within 0.6, each pair once" in output
    assert "particles and bonds" in output and shot.bonds.types == ["bond"] and not shot.bonds.typeid.any()
    np.testing.assert_allclose(box, [4, 5, 6, 0.1, 0, -0.4 / 6], rtol=1e-6)
    vector = x[group[:, 1]].astype(float) - x[group[:, 0]]
    turns = np.linalg.solve(ROWS.T, vector.T).round().T
    assert np.linalg.norm(vector - turns @ ROWS, axis=1).max() < 0.6 + 1e-5
    again = files.read_particles("b.gsd")
    np.testing.assert_allclose(again.positions, X, atol=1e-5)


def test_bonds_in_extended_xyz_are_those_of_ase(few):
    io = pytest.importorskip("ase.io", reason="ase is not installed")
    run(few, "--radius", 0.6, "--out", "b.xyz")
    atoms = io.read("b.xyz")
    bonds = [(i, int(word.partition("(")[0])) for i, words in enumerate(atoms.arrays["bonds"]) if words != "_"
             for word in words.split(",")]  # fmt: skip
    assert sorted(bonds) == sorted(zip(*(a.tolist() for a in expected(0.6)), strict=True))
    np.testing.assert_allclose(atoms.positions, X, atol=1e-10)
    np.testing.assert_allclose(atoms.cell[:], ROWS)
    # ASE hands the column on to LAMMPS.
    io.write("b.data", atoms, format="lammps-data", atom_style="full", bonds=True)
    assert f"{len(bonds)} bonds" in " ".join(Path("b.data").read_text(encoding="utf-8").split())


def test_edges_in_parquet(few):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    run(few, "--radius", 0.6, "--out", "e.parquet", "--quantities", "ijSd", "--half")
    table = parquet.read_table("e.parquet").to_pydict()
    assert list(table) == ["i", "j", "S_0", "S_1", "S_2", "d"]
    i, j, shift, d = expected(0.6, "ijSd")
    rows = sorted(zip(i.tolist(), j.tolist(), *shift.T.tolist(), strict=True))
    assert sorted(zip(*[table[name] for name in ("i", "j", "S_0", "S_1", "S_2")], strict=True)) == rows
    np.testing.assert_allclose(np.sort(table["d"]), np.sort(d), rtol=1e-12)


def test_no_bonds_and_few_particles():
    box = pm.Box([3.0, 3.0, 3.0], periodic=False)
    for count in (0, 1, 2):
        files.write_bonds("b.xyz", np.zeros((count, 3)) + np.arange(count)[:, None], box, [], [], overwrite=True)
        lines = Path("b.xyz").read_text(encoding="utf-8").splitlines()
        assert len(lines) == 2 + count and all(line.endswith(" _") for line in lines[2:])


def test_what_bonds_cannot_say_is_refused(few):
    output = run(few, "--radius", 5, "--out", "b.xyz", code=2)
    assert "bonds are listed twice or join a particle with itself" in output and "write a table with S" in output
    assert "this file has bonds" in run(few, "--radius", 0.6, "--out", "b.xyz", "--quantities", "ij", code=2)
    assert "give a name that ends in .npz, .h5, .hdf5, .csv, .parquet, .gsd, .xyz" in run(
        few, "--radius", 1, "--out", "b.pdb", code=2
    )
    for given, said in (
        ((X[:, :2], [0], [1]), r"positions have shape \(300, 2\)"),
        ((X, [0], [300]), "bonds go from particle 0 to 300"),
        ((X, [0, 1], [1, 0]), "1 bonds are listed twice"),
        ((X, [3], [3]), "that of 3 and 3"),
    ):
        with pytest.raises(ValueError, match=said):
            files.write_bonds("b.xyz", given[0], pm.Box(ROWS), *given[1:])
    with pytest.raises(ValueError, match="is a table"):
        files.write_bonds("b.csv", X, pm.Box(ROWS), [0], [1])
