# SPDX-License-Identifier: BSD-3-Clause
"""The commands on files: results are those of calls in memory, what was chosen is printed, errors are one line."""

import errno
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import particlemesh as pm
from particlemesh.apps import files
from particlemesh.command import cli, consoles, file_work
from particlemesh.fourier import power_spectrum

random = np.random.default_rng(11)
LENGTHS = np.array([4.0, 5.0, 6.0])
X = random.random((300, 3)) * LENGTHS
Q = random.normal(size=300)


@pytest.fixture(autouse=True)
def few(tmp_path, monkeypatch):
    """Go to a folder with a file of particles, and return its name."""
    monkeypatch.chdir(tmp_path)
    np.savez("few.npz", positions=X, charges=Q, velocities=2 * X, box=LENGTHS)
    return "few.npz"


def run(command, *words):
    """Return the output of a command that succeeds."""
    result = CliRunner().invoke(cli.app, [command, *map(str, words)])
    assert result.exit_code == 0 and not result.stderr, result.output
    assert all(len(line) <= cli.WIDTH for line in result.output.splitlines()), result.output
    return " ".join(result.stdout.split())


def fails(command, *words):
    """Return the only line, on standard error, of a command that refuses."""
    result = CliRunner().invoke(cli.app, [command, *map(str, words)])
    assert result.exit_code == 2 and not result.stdout, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"particlemesh {command}: ")
    return line


def test_spread_writes_what_a_call_in_memory_gives(few):
    output = run("spread", few, "--values", "charges", "--shape", "8,9,10", "--out", "f.npz", "--chunk", 77)
    mesh = pm.Mesh((8, 9, 10), LENGTHS)
    field = files.read_field("f.npz")
    assert field.mesh == mesh and field.name == "field"
    np.testing.assert_allclose(field.values, pm.spread(X, Q, mesh), atol=1e-13)
    for said in (
        "particles 300, float64; positions: positions; values: charges also in the file: velocities",
        "box 4 x 5 x 6, periodic along xyz, from the file", "mesh 8 x 9 x 10 nodes (given), spacing 0.5, 0.555556, 0.6",
        "window bspline4, support 4", "on cpu", "spreading conserves the sum", "particles/s", "written f.npz",
    ):  # fmt: skip
        assert said in output
    assert f"values {Q.sum():.8g}"[:-2] in output


def test_spread_to_a_density_on_open_axes(few):
    output = run(
        "spread", few, "--values", "velocities", "--spacing", "0.7", "--periodic", "xz", "--offset", "0.5", "--window",
        "bspline", "--order", "4", "--density", "--out", "f.npz",
    )  # fmt: skip
    mesh = pm.Mesh((6, 8, 9), pm.Box(LENGTHS, periodic=(True, False, True)), offset=0.5)
    field = files.read_field("f.npz")
    assert field.mesh == mesh and field.name == "density"
    expected = pm.spread(X, 2 * X.T.copy(), mesh)
    np.testing.assert_allclose(field.values, expected / mesh.node_volume, rtol=1e-12, atol=1e-10)
    lost = 2 * X.sum(axis=0) - expected.sum(axis=(1, 2, 3))
    assert "periodic along xz, open along y" in output and "(for spacing up to 0.7)" in output
    for k in range(3):
        assert f"sum {k} values" in output and f"lost beyond open faces {f'{lost[k]:.10g}'[:-3]}" in output


def test_interpolate_writes_what_a_call_in_memory_gives(few):
    mesh = pm.Mesh((8, 9, 10), LENGTHS)
    values = random.random(mesh.shape)
    files.write_field("f.npz", values, mesh)
    output = run("interpolate", few, "--field", "f.npz", "--gradient", "--chunk", 77, "--out", "v.npz")
    plan = pm.Plan(mesh).set_positions(X)
    expected, slope = plan.value_and_gradient(values)
    with np.load("v.npz") as result:
        np.testing.assert_array_equal(result["position"], X)
        np.testing.assert_allclose(result["value"], expected, atol=1e-13)
        np.testing.assert_allclose(result["gradient"], slope, atol=1e-12)
    assert f"{expected.min():.5g}" in output and "position, value, gradient" in output


def test_neighbours_writes_the_pairs(few):
    output = run("neighbours", few, "--radius", 0.9, "--out", "n.npz", "--quantities", "ijdS")
    box = pm.Box(LENGTHS)
    with np.load("n.npz") as result:
        assert set(result.files) == set("ijdS")
        difference = X[result["j"]] + result["S"] * LENGTHS - X[result["i"]]
        np.testing.assert_allclose(np.linalg.norm(difference, axis=1), result["d"], atol=1e-12)
        between = X[:, None] - X
        between -= LENGTHS * np.round(between / LENGTHS)
        expected = (np.linalg.norm(between, axis=2) <= 0.9).sum() - 300
        assert len(result["i"]) == expected and box.volume == 120
    assert f"pairs {expected:,} within 0.9, each pair from both sides" in output
    assert f"{expected / 300:.6g} on average" in output


def test_spectrum_of_particles_and_of_a_field(few):
    output = run("spectrum", few, "--shape", 8, "--out", "s.npz")
    mesh = pm.Mesh((8, 8, 8), LENGTHS)
    expected = power_spectrum(X, np.ones(300), mesh)
    with np.load("s.npz") as result:
        np.testing.assert_allclose(result["power"], expected.power, rtol=1e-12)
        np.testing.assert_array_equal(result["modes"], expected.modes)
        np.testing.assert_allclose(result["error"], expected.error, rtol=1e-12)
    assert "shot noise" in output and "interlaced" in output and "window pcs (bspline4), support 4" in output
    wave = np.cos(2 * np.pi * np.arange(8) / 8)[:, None, None] + np.zeros((8, 8, 8))
    files.write_field("f.npz", wave, mesh)
    run("spectrum", "f.npz", "--field", "--out", "t.npz")
    with np.load("t.npz") as result:  # two modes have a quarter of the volume each
        assert (result["power"] * result["modes"])[result["modes"] > 0].sum() == pytest.approx(2 * 120 / 4)


def test_a_spectrum_has_errors_multipoles_and_a_second_set(few):
    np.savez("other.npz", positions=X[:200] * 0.9, mass=1 + Q[:200] ** 2, box=LENGTHS)
    mesh, sight = pm.Mesh((40, 40, 40), LENGTHS), [1.0, 0.0, 0.0]
    words = ("spectrum", few, "--shape", 40, "--multipoles", "0,2,4", "--line-of-sight")
    every, some = run(*words, "x"), run(*words, "1,0,0", "--out", "s.npz")
    alone = power_spectrum(X, None, mesh, multipoles=(0, 2, 4), line_of_sight=sight)
    assert all(f"{k:.5g} " in every for k in alone.k)
    assert f"12 of {len(alone.k)} bins with modes; all are in s.npz" in some and "bins with modes" not in every
    with np.load("s.npz") as result:
        for order in (0, 2, 4):
            np.testing.assert_allclose(result[f"power_{order}"], alone.multipoles[order], rtol=1e-10, atol=1e-10)
            noise = alone.multipole_noise[order]
            np.testing.assert_allclose(result[f"shot_noise_{order}"], noise, rtol=1e-10, atol=1e-12)
    words = ("spectrum", few, "--shape", 8, "--other", "other.npz", "--out", "c.npz")
    assert "other.npz; values: mass; power is that of both sets" in run(*words, "--other-values", "mass")
    other = (X[:200] * 0.9, 1 + Q[:200] ** 2)
    cross = power_spectrum(X, None, pm.Mesh((8, 8, 8), LENGTHS), other=other)
    with np.load("c.npz") as result:
        for name in ("power", "error", "shot_noise"):
            np.testing.assert_allclose(result[name], getattr(cross, name), rtol=1e-10, atol=1e-12)
    assert "give even orders, such as 0,2,4" in fails("spectrum", few, "--shape", 8, "--multipoles", "a")
    assert "--line-of-sight has no effect" in fails("spectrum", few, "--shape", 8, "--line-of-sight", "x")


def test_a_table_without_a_box():
    np.savetxt("few.csv", np.c_[X, Q], delimiter=",", header="x,y,z,q", comments="")
    assert "few.csv has no box: give --box, such as 10,10,10, or --box fit" in fails("spread", "few.csv")
    output = run("spread", "few.csv", "--values", "q", "--box", "fit", "--shape", 9, "--chunk", 70)
    mesh = files.read_field("out/field.npz").mesh
    assert not any(mesh.periodic) and "open, fitted to the particles" in output
    assert (mesh.box.origin <= X.min(axis=0)).all()
    np.testing.assert_allclose(mesh.box.lengths, np.ptp(X, axis=0), rtol=1e-5)
    run("spread", "few.csv", "--box", "4,5,6", "--shape", "8,9,10", "--overwrite")
    assert files.read_field("out/field.npz").mesh == pm.Mesh((8, 9, 10), LENGTHS)


ERRORS = {
    "file": (("spread", "none.npz"), "none.npz does not exist, or is no file."),
    "values": (("spread", "few.npz", "--values", "mass"), "no column mass, but positions, charges, velocities"),
    "both": (("spread", "few.npz", "--shape", "8", "--spacing", "1"), "--shape and --spacing are both given"),
    "shape": (("spread", "few.npz", "--shape", "8,9"), "--shape is '8,9'; give 1 or 3 numbers of nodes, such as 64"),
    "no shape": (("spread", "few.npz", "--shape", "many"), "--shape is 'many'; give 1 or 3 numbers of nodes"),
    "spacing": (("spread", "few.npz", "--spacing", "-1"), "--spacing is '-1'; give lengths above 0."),
    "fine": (("spread", "few.npz", "--spacing", "1e-12"), "give a larger one"),
    "nodes": (("spread", "few.npz", "--shape", "9999"), "the mesh has 9999 x 9999 x 9999 nodes; up to 8,589,934,592"),
    "box": (("spread", "few.npz", "--box", "1,2"), "--box is '1,2'; give 3 or 6 or 9 numbers with commas"),
    "words": (("spread", "few.npz", "--box", "a,b,c"), "--box is 'a,b,c'; give 3 or 6 or 9 numbers"),
    "lengths": (("spread", "few.npz", "--box", "1,-2,3"), "lengths"),
    "angles": (("spread", "few.npz", "--box", "1,2,3,10,10,90"), "angles are 10, 10, 90 degrees; no cell has these"),
    "fit": (("spread", "few.npz", "--box", "fit", "--origin", "0,0,0"), "--box fit has an origin of its own"),
    "periodic": (("spread", "few.npz", "--periodic", "xw"), "--periodic is 'xw'; give letters of xyz, or none."),
    "window": (("spread", "few.npz", "--window", "hat"), "--window is hat; give ngp, cic,"),
    "order": (("spread", "few.npz", "--window", "bspline"), "which has many orders: give --order, such as 4."),
    "orders": (("spread", "few.npz", "--window", "bspline", "--order", "99"), "--window is bspline --order 99; give"),
    "frames": (("spread", "few.npz", "--frames", "x"), "--frames is 'x'; give a number, a slice such as"),
    "no frame": (("spread", "few.npz", "--frames", "3"), "--frames is '3', but few.npz has 1: give some of 0 to 0"),
    "dtype": (("spread", "few.npz", "--dtype", "int8"), "--dtype is 'int8'; give float32 or float64."),
    "backend": (("spread", "few.npz", "--backend", "tpu"), "--backend is 'tpu'; give one of cpu, cuda, opencl."),
    "method": (("spread", "few.npz", "--shape", "8", "--method", "magic"), "magic"),
    "offset": (("spread", "few.npz", "--periodic", "none", "--offset", "0.3"), "offset"),
    "outside": (("spread", "few.npz", "--outside", "x"), "--outside is 'x'; give error or lose."),
    "beyond": (("spread", "few.npz", "--box", "3,5,6", "--periodic", "none", "--shape", "8"), "(--outside lose)"),
    "out": (("spread", "few.npz", "--out", "f.doc"), "out is 'f.doc'; give a name that ends in .npz, .h5"),
    "exists": (("spread", "few.npz", "--out", "line.npz"), "line.npz exists: give another name, or overwrite it"),
    "topology": (("spread", "few.npz", "--topology", "few.npz"), ".npz has no other file beside it: leave it out."),
    "field": (("interpolate", "few.npz", "--field", "none.npz"), "none.npz does not exist, or is no file."),
    "no field": (("interpolate", "few.npz", "--field", "few.npz"), "it lacks shape, origin, periodic, offset"),
    "axes": (("interpolate", "few.npz", "--field", "line.npz"), "positions of 3 axes and line.npz 1: give"),
    "table": (("interpolate", "few.npz", "--field", "line.npz", "--out", "v.vti"), "ends in .npz, .h5, .hdf5, .csv"),
    "letters": (("neighbours", "few.npz", "--radius", "1", "--quantities", "ik"), "give letters of ijdDS"),
    "radius": (("neighbours", "few.npz", "--radius", "-1"), "radius"),
    "several": (("neighbours", "few.npz", "--radius", "1", "--frames", "7"), "but few.npz has 1"),
    "vectors": (("spectrum", "few.npz", "--values", "velocities"), "a spectrum has one weight per particle."),
    "given": (("spectrum", "line.npz", "--field", "--shape", "8"), "--shape has no effect: with --field"),
    "open": (("spectrum", "line.npz", "--field"), "the field has open axes; a spectrum needs a mesh that is periodic"),
    "factor": (("spread", "few.npz", "--values", "charges*"), "values is 'charges*'; give names of columns, or a prod"),
    "small": (("spread", "few.npz", "--values", "1e-400"), "values is 1e-400, which double precision has as 0; give"),
    "origin": (("spread", "few.npz", "--origin", "1e300,0,0"), "--origin is 1e+300,0,0, too far for lengths of 4."),
    "far": (("neighbours", "few.npz", "--radius", "1", "--box", "4,5,6", "--origin", "1e300,0,0"), "too far for"),
    "radians": (("spread", "few.npz", "--box", "4,5,6,1.57,1.57,1.57"), "give 3 angles in degrees"),
    "slope": (("interpolate", "few.npz", "--field", "line.npz", "--gradient", "--window", "ngp"), "slope is zero"),
    "divisor": (("spectrum", "few.npz", "--shape", "8", "--compensation", "x"), "compensation is 'x'; choose from"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_one_line_and_leave_nothing(case, few, tmp_path):
    files.write_field("line.npz", np.ones(4), pm.Mesh(4, 1.0, periodic=False))
    words, message = ERRORS[case]
    assert message in fails(*words[:1], words[1], *words[2:])
    assert {file.name for file in tmp_path.rglob("*") if file.is_file()} == {"few.npz", "line.npz"}


def test_frames_of_a_trajectory_are_averaged():
    hoomd = pytest.importorskip("gsd.hoomd")
    with hoomd.open("few.gsd", "w") as file:
        for step in range(4):
            frame = hoomd.Frame()
            frame.configuration.box = [*(LENGTHS + (step == 3)), 0, 0, 0]
            frame.particles.N, frame.particles.position = 100, X[100 * (step % 3) :][:100] - LENGTHS / 2
            file.append(frame)
    output = run("spread", "few.gsd", "--frames", "0:3", "--shape", "8", "--dtype", "float64")
    assert "particles 300 in 3 frames of 4" in output and "mean of 3 frames" in output
    field = files.read_field("out/field.npz")
    assert field.values.dtype == np.float64  # positions in the file are float32
    expected = pm.spread(X - LENGTHS / 2, np.full(300, 1 / 3), field.mesh)
    np.testing.assert_allclose(field.values, expected, atol=1e-5)
    assert "frame 3: it has another box than frame 0: give one frame, or --box" in fails(
        "spread", "few.gsd", "--frames", "all", "--out", "g.npz"
    )
    assert "which are 2 frames; give one number here" in fails(
        "neighbours", "few.gsd", "--radius", 1, "--frames", "0:2"
    )


@pytest.mark.parametrize(
    ("text", "frames"), [("all", (0,)), ("-1", (-1,)), ("0", (0,)), (":", (0,)), ("::2", (0,)), ("-1:", (0,))]
)
def test_frames(text, frames, few):
    with files.open_particles(few) as particles:
        assert file_work.frames_of(particles, text) == frames


def test_cells_by_lengths_and_angles(few):
    with files.open_particles(few) as particles:
        box, _ = file_work.box_of(particles, (0,), "3,4,5,80,95,110", "1,2,3", "xz")
        edges = box.matrix
        lengths = np.linalg.norm(edges, axis=1)
        np.testing.assert_allclose(lengths, [3, 4, 5])
        cosines = (edges @ edges.T) / np.outer(lengths, lengths)
        np.testing.assert_allclose(np.degrees(np.arccos(cosines[[1, 0, 0], [2, 2, 1]])), [80, 95, 110])
        assert box.periodic == (True, False, True) and box.origin.tolist() == [1, 2, 3]
        rows, _ = file_work.box_of(particles, (0,), "3,0,0,1,4,0,0,1,5", None, None)
        assert rows == pm.Box([[3, 0, 0], [1, 4, 0], [0, 1, 5.0]])


@pytest.mark.parametrize(
    ("periodic", "offset", "nodes"), [(True, 0, 8), (False, 0, 9), (False, 0.5, 8), (True, 0.5, 8)]
)
def test_spacing_is_never_larger_than_asked_for(periodic, offset, nodes):
    mesh, _ = file_work.mesh_of(pm.Box(4.0, periodic=periodic), None, "0.5", offset)
    assert mesh.shape == (nodes,) and mesh.spacing == 0.5


def test_the_method_is_read_from_the_plans_own_table():
    plan = pm.Plan(pm.Mesh((8, 8, 8), LENGTHS)).set_positions(X)
    for direction in ("spread", "interpolate"):
        rows = file_work._methods(plan.explain(), direction)
        assert [row[0] for row in rows].count("*") == 1 and len(rows) > 1
        assert float(rows[0][2]) > 0 and rows[0][3] in file_work.SECONDS


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
@pytest.mark.parametrize(("kind", "axis"), [("projection", "x"), ("slice", "y")])
def test_spread_draws_what_it_writes(few, kind, axis):
    out, picture = Path("f.npz"), Path("f.png")
    options = ("--shape", "8", "--out", out, "--picture", picture, "--kind", kind, "--axis", axis)
    output = run("spread", few, *options)
    assert f"picture, {kind}" in output and picture.read_bytes().startswith(b"\x89PNG")
    out.unlink()
    assert "f.png" in fails("spread", few, *options)  # which exists
    assert not out.exists()
    picture.unlink()
    assert "kind is 'map'" in fails("spread", few, *options[:-3], "map")
    assert "must end in one of .png" in fails("spread", few, "--shape", "8", "--out", out, "--picture", "f.gif")
    assert not out.exists()


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_spectrum_draws_its_power(few):
    run("spectrum", few, "--shape", "8", "--picture", "p.pdf")
    assert Path("p.pdf").read_bytes().startswith(b"%PDF")


def test_view_needs_pyvista_and_says_so_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyvista", None)
    files.write_field("f.npz", np.ones((2, 2)), pm.Mesh((2, 2), (1.0, 1.0)))
    assert "view needs PyVista: pip install pyvista trame-pyvista" in fails("view", "f.npz")


@pytest.mark.filterwarnings("ignore")  # of the libraries that write pages
def test_view_writes_a_page():
    for name in ("pyvista", "trame", "trame_vtk"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    mesh = pm.Mesh((6, 5, 4), LENGTHS)
    field = np.random.default_rng(1).normal(size=(2, *mesh.shape)) * (1 + 1j)
    files.write_field("f.npz", field, mesh)
    output = run("view", "f.npz", "--out", "v.html")
    assert "a page that any browser shows" in output
    assert Path("v.html").stat().st_size > 100_000
    assert "no surface at level 90" in fails("view", "f.npz", "--out", "w.html", "--level", "90")
    assert "cannot be read" in fails("view", damaged(Path("d.npz")), "--out", "w.html")
    assert not Path("w.html").exists()


def damaged(path):
    path.write_bytes(b"PK\x03\x04 and no archive")
    return path


@pytest.mark.parametrize("window", ["kaiser_bessel6", "prolate4"])
def test_windows_that_keep_no_sums_are_refused(few, window):
    assert "sums would not be conserved" in fails("spread", few, "--shape", "8", "--window", window, "--out", "f.npz")
    run("spread", few, "--shape", "8", "--window", "peskin4", "--out", "f.npz")
    assert "sums would not be conserved" in fails(
        "interpolate", few, "--field", "f.npz", "--window", window, "--out", "v.npz"
    )


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_a_picture_that_fails_leaves_no_field(few):
    for wrong in (("--axis", "q"), ("--kind", "slice", "--at", "70"), ("--kind", "isosurface", "--level", "1e9")):
        fails("spread", few, "--shape", "8", "--out", "f.npz", "--picture", "f.png", *wrong)
        assert not Path("f.npz").exists() and not Path("f.png").exists()


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
@pytest.mark.parametrize(("command", "writer"), [("spread", "write_field"), ("spectrum", "writing_table")])
def test_an_output_that_fails_leaves_no_picture(few, tmp_path, monkeypatch, command, writer):

    def full(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr(files, writer, full)
    words = [command, str(few), "--shape", "8", "--out", "f.npz", "--picture", "f.png"]
    assert "No space left" in CliRunner().invoke(cli.app, words).stderr
    assert not [path for path in tmp_path.iterdir() if path.name != Path(few).name]


def test_a_field_that_is_not_finite_is_not_written(few):
    message = fails("spread", few, "--shape", "8", "--values", "1e39", "--dtype", "float32", "--out", "f.npz")
    assert "not finite" in message and not Path("f.npz").exists()


# ---- what is refused, named and kept ----------------------------------------------------------------------


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
def test_an_input_is_never_replaced(few, name):
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


def test_edges_and_values_of_any_size_are_printed(few):
    said = run("spread", few, "--shape", "8", "--box", "1e-300,1,1", "--values", "0e5")
    assert "box 1e-300 x 1 x 1, periodic" in said and "values: 0 for each" in said


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG])
def test_a_file_without_room_is_named_and_not_taken_for_the_report(number, capsys):
    before = sys.stdout
    with pytest.raises(typer.Exit), consoles.reporting("spread"):
        raise OSError(number, f"f.npz cannot be written ({os.strerror(number)}): make room")
    said = " ".join(capsys.readouterr().err.split())
    assert "f.npz cannot be written" in said and "standard output" not in said
    assert sys.stdout is before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device is always full here")
def test_a_report_that_cannot_be_printed_is_named(few):
    words = [sys.executable, "-m", "particlemesh", "spread", few, "--shape", "8"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and line.startswith(
        "particlemesh spread: the standard output cannot be written (No space"
    )
    assert files.read_field("out/field.npz").values.sum() == pytest.approx(300)
