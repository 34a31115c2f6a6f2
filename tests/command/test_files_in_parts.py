# SPDX-License-Identifier: BSD-3-Clause
"""Files larger than a part: results are those of all particles at once, and no part is larger than asked for."""

import numpy as np
import pytest
from typer.testing import CliRunner

import particlemesh as pm
from particlemesh.apps import files
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
    assert ("particles on two meshes/s" in output) == interlaced


def test_a_spectrum_has_real_weights_with_a_sum():
    np.savez("odd.npz", positions=X, charges=Q - Q[::-1], waves=Q + 1j, box=LENGTHS)
    for column, kind, words in (("charges", ValueError, "values sum to 0"), ("waves", TypeError, "weights are real")):
        with files.open_particles("odd.npz", values=column) as particles, pytest.raises(kind, match=words):
            files.particles_spectrum(particles, pm.Mesh((4, 4, 4), LENGTHS), size=90)
    with files.open_particles("few.npz") as particles, pytest.raises(ValueError, match="has open axes"):
        files.particles_spectrum(particles, pm.Mesh((4, 4, 4), pm.Box(LENGTHS, periodic=False)))
