# SPDX-License-Identifier: BSD-3-Clause
"""What the commands on files refuse, name and keep: inputs, folders, columns, spectra, boxes that are fitted."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import particlemesh as pm
from particlemesh.apps import files
from particlemesh.command import cli

random = np.random.default_rng(12)
LENGTHS = np.array([4.0, 5.0, 6.0])
X = random.random((300, 3)) * LENGTHS
Q = random.normal(size=300)


@pytest.fixture(autouse=True)
def few(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("few.npz", positions=X, charges=Q, box=LENGTHS)
    return "few.npz"


def run(command, *words):
    """Return the output of a command that succeeds."""
    result = CliRunner().invoke(cli.app, [command, *map(str, words)])
    assert result.exit_code == 0 and not result.stderr, result.output
    return " ".join(result.stdout.split())


def fails(command, *words):
    """Return the only line, on standard error, of a command that refuses."""
    result = CliRunner().invoke(cli.app, [command, *map(str, words)])
    assert result.exit_code == 2 and not result.stdout, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"particlemesh {command}: ")
    return line


def test_values_are_the_column_of_a_name_that_is_a_number():
    np.savetxt("few.txt", np.c_[X, Q])
    output = run("spread", "few.txt", "--positions", "0,1,2", "--values", "3", "--box", "4,5,6", "--shape", "8")
    assert "values: 3" in output
    expected = pm.spread(X, Q, pm.Mesh((8, 8, 8), LENGTHS))
    np.testing.assert_allclose(files.read_field("out/field.npz").values, expected, atol=1e-12)
    assert "no column 9, but 0, 1, 2, 3" in fails(
        "spread", "few.txt", "--positions", "0,1,2", "--values", "9", "--box", "4,5,6", "--out", "f.npz"
    )


@pytest.mark.parametrize("shape", ["1", "1,8,8"])
def test_a_spectrum_without_modes_is_refused(few, shape):
    assert "give two or more nodes along each axis" in fails("spectrum", few, "--shape", shape, "--out", "s.npz")
    assert not Path("s.npz").exists()


def test_gradients_of_components_are_named_by_component_and_axis():
    mesh = pm.Mesh((6, 5), (4.0, 5.0))
    values = random.random((3, *mesh.shape))
    np.savez("flat.npz", positions=X[:, :2])
    files.write_field("f.npz", values, mesh)
    values_at, slope = pm.Plan(mesh).set_positions(X[:, :2]).value_and_gradient(values)
    run("interpolate", "flat.npz", "--field", "f.npz", "--gradient", "--out", "v.csv")
    table = np.genfromtxt("v.csv", delimiter=",", names=True)
    for component in range(3):
        np.testing.assert_allclose(table[f"value_{component}"], values_at[component], atol=1e-12)
        for axis, name in enumerate("xy"):
            np.testing.assert_allclose(table[f"gradient_{component}_{name}"], slope[component, :, axis], atol=1e-12)
    assert len(table.dtype.names) == 2 + 3 + 6
    run("interpolate", "flat.npz", "--field", "f.npz", "--gradient", "--out", "v.npz")
    with np.load("v.npz") as arrays:
        np.testing.assert_allclose(arrays["gradient"], np.moveaxis(slope, 1, 0), atol=1e-12)


def test_fitting_a_box_reads_parts(monkeypatch):
    np.savez("few.npz", positions=X)
    sizes = []
    chunks = files.Particles.chunks

    def counted(self, size, frame=-1):
        for chunk in chunks(self, size, frame):
            sizes.append(len(chunk.positions))
            yield chunk

    monkeypatch.setattr(files.Particles, "chunks", counted)
    run("spread", "few.npz", "--box", "fit", "--shape", "8", "--chunk", "120")
    assert sizes == [120, 120, 60] * 2


@pytest.mark.parametrize("folder", ["/proc/none", "few.npz/below"])
def test_a_folder_that_cannot_be_written_to_is_named_before_anything_is_computed(few, tmp_path, monkeypatch, folder):
    if not Path("/proc").is_dir():
        pytest.skip("nothing here is unwritable for every user")
    monkeypatch.setattr(files, "spread_particles", None)
    for name in ("f.npz", "deeper/f.npz"):
        message = fails("spread", few, "--shape", "8", "--out", f"{folder}/{name}")
        assert f"{Path(folder, name).parent} cannot be written to (" in message and "give another folder" in message
    fails("spread", few, "--shape", "8", "--out", "new/f.npz", "--method", "magic")
    assert [file.name for file in tmp_path.iterdir()] == ["few.npz"]  # no empty folder either


@pytest.mark.parametrize("name", ["few.npz", "./few.npz", "link.npz"])
def test_an_input_is_never_replaced(few, tmp_path, name):
    before = Path(few).read_bytes()
    Path("link.npz").symlink_to(few)
    files.write_field("f.npz", np.ones((4, 4, 4)), pm.Mesh((4, 4, 4), LENGTHS))
    said = f"{Path(name)} is an input: give the output another name."
    assert said in fails("spread", few, "--shape", "8", "--out", name, "--overwrite")
    assert said in fails("interpolate", few, "--field", "f.npz", "--out", name, "--overwrite")
    assert "f.npz is an input" in fails("interpolate", few, "--field", "f.npz", "--out", "f.npz", "--overwrite")
    assert said in fails("neighbours", few, "--radius", "1", "--out", name, "--overwrite")
    assert said in fails("spectrum", few, "--shape", "8", "--out", name, "--overwrite")
    assert Path(few).read_bytes() == before


@pytest.mark.parametrize("options", [(), ("--dtype", "float32")])
@pytest.mark.parametrize("far", [0.0, 1e3, 1e17])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_fitted_box_holds_what_is_rounded(far, dtype, options):
    np.savez("far.npz", positions=(X[:50] + far).astype(dtype))
    output = run("spread", "far.npz", "--box", "fit", "--shape", "6", "--window", "cic", *options)
    assert "fitted to the particles" in output
    assert files.read_field("out/field.npz").values.sum() == pytest.approx(50, rel=1e-5)


def test_densities_and_sums_that_are_not_finite_are_not_written(few):
    np.savez("tiny.npz", positions=X * 1e-20, box=LENGTHS * 1e-20)
    words = ("--shape", "8", "--out", "f.npz")
    assert "not finite" in fails("spread", "tiny.npz", *words, "--density", "--dtype", "float32")
    assert "Choose another unit" in fails("spread", few, *words, "--values", "1e308")
    assert not Path("f.npz").exists()


def test_a_field_that_is_not_finite_has_no_spectrum():
    files.write_field("nan.npz", np.full((4, 4, 4), np.nan), pm.Mesh((4, 4, 4), LENGTHS))
    assert "the field has values that are not finite" in fails("spectrum", "nan.npz", "--field")


@pytest.mark.parametrize(("window", "compensation"), [("cic", "window"), ("pcs", "window"), ("tsc", "aliases")])
def test_the_spectrum_of_a_spread_field_is_compensated_for_its_window(few, window, compensation):
    run("spread", few, "--shape", "8", "--window", window, "--out", "f.npz")
    options = ("--window", window, "--compensation", compensation)
    run("spectrum", "f.npz", "--field", *options, "--out", "a.npz")
    run("spectrum", few, "--shape", "8", "--no-interlaced", *options, "--out", "b.npz")
    mean = 300 / (8 * 8 * 8)  # the power of a contrast has none
    with np.load("a.npz") as a, np.load("b.npz") as b:
        np.testing.assert_allclose(a["power"] / mean**2, b["power"], rtol=1e-10)


@pytest.mark.parametrize("values", ["charges*mass", "mass * charges", "velocity*mass", "charges*mass,mass"])
def test_columns_are_multiplied(values):
    mass, velocity = random.random(300) + 1, random.normal(size=(300, 3))
    np.savez("heavy.npz", positions=X, charges=Q, mass=mass, velocity=velocity, box=LENGTHS)
    output = run("spread", "heavy.npz", "--shape", "6", "--values", values, "--out", "f.npz")
    products = {"velocity*mass": velocity.T * mass, "charges*mass,mass": np.stack([Q * mass, mass])}
    expected = products.get(values, Q * mass)
    assert f"values: {values.replace(' ', '').replace(',', ', ')}" in output
    mesh = pm.Mesh((6, 6, 6), LENGTHS)
    np.testing.assert_allclose(files.read_field("f.npz").values, pm.spread(X, expected, mesh), atol=1e-12)
    assert "several numbers" in fails("spread", "heavy.npz", "--values", "velocity*velocity", "--out", "g.npz")
    assert "has no column none" in fails("spread", "heavy.npz", "--values", "charges*none", "--out", "g.npz")
