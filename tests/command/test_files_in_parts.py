# SPDX-License-Identifier: BSD-3-Clause
"""Files larger than a part: results are those of all particles at once, and no part is larger than asked for."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import particlemesh as pm
from particlemesh.apps import files
from particlemesh.apps.files import pairs
from particlemesh.command import cli
from particlemesh.fourier import power_spectrum

random = np.random.default_rng(13)
LENGTHS = np.array([4.0, 5.0, 6.0])
X = random.random((500, 3)) * LENGTHS
Q = random.random(500) + 0.5


@pytest.fixture(autouse=True)
def sizes(tmp_path, monkeypatch):
    """Write a file, and return the list of the sizes of the parts that are read."""
    monkeypatch.chdir(tmp_path)
    np.savez("few.npz", positions=X, single=X.astype("f4"), charges=Q, box=LENGTHS)
    sizes = []
    chunks = files.Particles.chunks

    def counted(self, *words, **options):
        for chunk in chunks(self, *words, **options):
            sizes.append(len(chunk.positions))
            yield chunk

    monkeypatch.setattr(files.Particles, "chunks", counted)
    return sizes


def run(command, *words):
    """Return the output of a command that succeeds."""
    result = CliRunner().invoke(cli.app, [command, *map(str, words)])
    assert result.exit_code == 0 and not result.stderr, result.output
    return " ".join(result.stdout.split())


@pytest.mark.parametrize("interlaced", [True, False])
@pytest.mark.parametrize("compensation", ["window", "aliases"])
@pytest.mark.parametrize(("column", "dtype"), [("positions", "f8"), ("single", "f4")])
def test_a_spectrum_in_parts_is_that_of_all_particles(interlaced, compensation, column, dtype, sizes):
    output = run(
        "spectrum", "few.npz", "--positions", column, "--values", "charges", "--shape", "8,9,10", "--chunk", 120,
        "--out", "s.npz", "--compensation", compensation, "--interlaced" if interlaced else "--no-interlaced",
    )  # fmt: skip
    assert sizes == [120, 120, 120, 120, 20]
    mesh = pm.Mesh((8, 9, 10), LENGTHS)
    expected = power_spectrum(X.astype(dtype), Q.astype(dtype), mesh, interlaced=interlaced, compensation=compensation)
    rtol = 1e-11 if dtype == "f8" else 1e-4
    with np.load("s.npz") as stored:
        np.testing.assert_allclose(stored["power"], expected.power, rtol=rtol)
        np.testing.assert_allclose(stored["shot_noise"], expected.shot_noise, rtol=rtol)
        np.testing.assert_allclose(stored["k"], expected.k, rtol=1e-13)
        np.testing.assert_array_equal(stored["modes"], expected.modes)
    assert f"particles 500, float{8 * int(dtype[1])}" in output and "method" in output
    assert ("interlaced, on two meshes" in output) == interlaced and "particles/s" in output


def test_a_spectrum_has_real_weights_with_a_sum():
    np.savez("odd.npz", positions=X, charges=Q - Q[::-1], waves=Q + 1j, box=LENGTHS)
    for column, kind, words in (("charges", ValueError, "values sum to 0"), ("waves", TypeError, "weights are real")):
        with files.open_particles("odd.npz", values=column) as particles, pytest.raises(kind, match=words):
            files.particles_spectrum(particles, pm.Mesh((4, 4, 4), LENGTHS), size=90)
    with files.open_particles("few.npz") as particles, pytest.raises(ValueError, match="has open axes"):
        files.particles_spectrum(particles, pm.Mesh((4, 4, 4), pm.Box(LENGTHS, periodic=False)))


@pytest.mark.parametrize("interlaced", [True, False])
def test_a_spectrum_in_parts_across_one_set_has_its_own_power_and_errors(interlaced):
    np.savez("few.npz", positions=X, box=LENGTHS)
    with files.open_particles("few.npz") as one, files.open_particles("few.npz") as same:
        alone, cross = (
            files.particles_spectrum(one, pm.Mesh((4, 4, 4), LENGTHS), size=90, interlaced=interlaced, other=other)
            for other in (None, same)
        )
    for name in ("power", "error", "modes"):
        np.testing.assert_allclose(getattr(cross, name), getattr(alone, name), rtol=1e-12, err_msg=name)


BOXES = {
    "periodic": pm.Box(LENGTHS),
    "mixed": pm.Box(LENGTHS, periodic=(True, True, False)),
    "open": pm.Box(LENGTHS, periodic=False),
    "triclinic": pm.Box([[4.0, 0, 0], [1.5, 5, 0], [-1, 2, 6]]),
    "flat": pm.Box((4.0, 5.0)),
    "line": pm.Box(4.0),
}


def rows(i, j, d, shifts, difference):
    """Return pairs in one order, with columns beside each other."""
    order = np.lexsort((*np.atleast_2d(shifts.T), j, i))
    return np.c_[i, j, shifts][order], np.c_[d, difference][order]


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("name", BOXES)
@pytest.mark.parametrize("radius", [0.35, 1.3, 4.5])
def test_pairs_in_slabs_are_those_of_all_particles(name, half, radius):
    box = BOXES[name]
    x = (random.random((200, box.ndim)) - 0.3) * 1.4 @ box.matrix  # some lie outside, which periodic axes fold
    x[:60] = x[0] + random.normal(size=(60, box.ndim)) * 0.05  # a cluster
    np.savez("x.npz", positions=x)
    expected = rows(*pm.neighbour_list("ijdSD", x, box, radius, half=half))
    account = files.Account()
    with files.open_particles("x.npz") as particles:
        parts = list(
            files.particles_pairs(particles, box, radius, "ijdSD", size=70, half=half, account=account, folder=".")
        )
    assert account.particles == 200 == sum(len(counts) for _, counts in parts)
    assert len(parts) > 1 or radius > 1
    pairs_of_parts = rows(*(np.concatenate([columns[letter] for columns, _ in parts]) for letter in "ijdSD"))
    np.testing.assert_array_equal(pairs_of_parts[0], expected[0])
    np.testing.assert_allclose(pairs_of_parts[1], expected[1], atol=1e-13)
    assert sum(counts.sum() for _, counts in parts) == len(expected[0]) * (1 + half)


def test_the_command_searches_in_slabs(sizes, tmp_path):
    whole = run("neighbours", "few.npz", "--radius", 0.6, "--out", "a.npz")
    assert sizes == [500]
    parted = run("neighbours", "few.npz", "--radius", 0.6, "--out", "b.npz", "--chunk", 200)
    assert sizes[1:] == [200, 200, 100] * 3
    assert int(re.search(r"in (\d+) slabs", parted)[1]) >= 3 and "slabs" not in whole
    for line in (r"pairs .*? both sides", r"neighbours [\d.]+ on .*? per particle", r"distances [\d.]+ to [\d.]+"):
        assert re.search(line, whole)[0] == re.search(line, parted)[0]
    with np.load("a.npz") as one, np.load("b.npz") as other:
        first, second = (np.lexsort((table["j"], table["i"])) for table in (one, other))
        for letter in "ijd":
            assert one[letter].dtype == other[letter].dtype
            np.testing.assert_array_equal(one[letter][first], other[letter][second])
    assert {file.name for file in tmp_path.iterdir()} == {"few.npz", "a.npz", "b.npz"}


def test_slabs_hold_as_many_particles_as_asked_for_where_the_radius_allows():
    x = random.random((3000, 3)) * [30.0, 1, 1]
    np.savez("x.npz", positions=x)
    largest = []
    with files.open_particles("x.npz") as particles:
        slabs = pairs._Slabs(pm.Box((30.0, 1, 1)), 0.5, np.zeros(3), np.ones(3))
        slabs.count(x)
        for slab, beside in slabs.parts(400):
            largest.append(slab.stop - slab.start + sum(part.stop - part.start for part in beside))
        counted = [len(counts) for _, counts in files.particles_pairs(particles, slabs.box, 0.5, size=400)]
    assert max(largest) <= 400 and sum(counted) == 3000 and len(counted) == len(largest) < 14


def test_a_disk_without_room_is_told(monkeypatch):
    room = type(shutil.disk_usage("."))(100, 95, 5)
    monkeypatch.setattr(pairs.shutil, "disk_usage", lambda folder: room)
    result = CliRunner().invoke(
        cli.app, ["neighbours", "few.npz", "--radius", "0.5", "--chunk", "200", "--out", "n.csv"]
    )
    assert result.exit_code == 2 and not Path("n.csv").exists()
    assert "500 particles are sorted in a file of 14,000 bytes: . has 5 free." in result.stderr


def test_pairs_that_fill_the_memory_are_told_with_their_bytes(monkeypatch):
    def too_many(*arguments, **options):
        raise MemoryError("cannot allocate 96 bytes for 4 pairs: 8 are free.")

    monkeypatch.setattr(pairs, "neighbour_list", too_many)
    result = CliRunner().invoke(cli.app, ["neighbours", "few.npz", "--radius", "2", "--out", "n.npz"])
    assert result.exit_code == 2 and not Path("n.npz").exists()
    said = "cannot allocate 96 bytes for 4 pairs: 8 are free. Give a smaller --chunk or --radius."
    assert result.stderr == f"particlemesh neighbours: {said}\n"
