# SPDX-License-Identifier: BSD-3-Clause
"""Boundaries, weights, units, steps and parts are those that a file says; what it does not say is asked or refused."""

import itertools
import re

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps.files import open_particles, read_field, read_particles, spread_particles, write_field
from particlemesh.apps.files.particles import FORMATS
from particlemesh.apps.files.trajectory import FORMATS as WRITERS
from particlemesh.apps.files.trajectory import Frame, writer

random = np.random.default_rng(7)
FLAGS = {ndim: list(itertools.product([True, False], repeat=ndim)) for ndim in (1, 2, 3)}


@pytest.fixture
def h5py():
    return pytest.importorskip("h5py", reason="h5py is not installed")


def pic(h5py, path, ndim=3, order="C", labels="xyz", mesh=(), record=(), weights=True, **boundaries):
    """Write a species of particles with charges and momenta, and a mesh of 4, 5 and 6 nodes."""
    x = random.random((7, ndim)) * [2, 5, 9][:ndim]
    q, w = random.normal(size=7), random.integers(1, 9, 7).astype(float)
    labels = labels[:ndim]
    at = ["xyz".index(axis) for axis in labels]
    step = -1 if order == "F" else 1
    with h5py.File(path, "w") as file:
        file.attrs.update(openPMD="1.1.0", basePath="/data/%T/", meshesPath="fields/", particlesPath="particles/")
        meshes, species = file.create_group("data/3/fields"), file.create_group("data/3/particles/e")
        for k, axis in enumerate("xyz"[:ndim]):
            species[f"position/{axis}"] = x[:, k]
            species[f"momentum/{axis}"] = q * (k + 1)
        species["charge"] = q
        if weights:
            species["weighting"] = w
        for name in ("charge", "momentum"):
            species[name].attrs.update(dict(record))
        rho = meshes.create_dataset("rho", data=np.zeros([4 + k for k in at]))
        rho.attrs.update(
            geometry="cartesian", dataOrder=order, axisLabels=list(labels[::step]), gridUnitSI=1.0,
            position=[0.5] * ndim, gridSpacing=[0.5 + k for k in at][::step],
            gridGlobalOffset=[0.25 * k for k in at][::step], unitSI=1.0,
        )  # fmt: skip
        rho.attrs.update(dict(mesh))
        for name, flags in boundaries.items():
            words = [b"periodic\0" if flags[k] else b"absorbing" for k in at[::step] for _ in range(2)]
            meshes.attrs[f"{name}Boundary"] = np.array(words)
    return x, q, w


@pytest.mark.parametrize("power", [None, 0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("macro", [None, 0, 1])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_values_of_one_real_particle_count_for_all(ndim, macro, power, h5py, tmp_path):
    said = {name: value for name, value in (("macroWeighted", macro), ("weightingPower", power)) if value is not None}
    _, q, w = pic(h5py, tmp_path / "f.h5", ndim, record=said)
    factor = w ** (power or 0.0) if macro == 0 else np.ones(7)
    np.testing.assert_allclose(read_particles(tmp_path / "f.h5", values="charge").values, q * factor, rtol=1e-14)
    momenta = read_particles(tmp_path / "f.h5", values="momentum").values
    np.testing.assert_allclose(momenta, np.arange(1, ndim + 1)[:, None] * q * factor, rtol=1e-14)
    with open_particles(tmp_path / "f.h5", values="charge") as particles:
        silent = macro is None or (macro == 0 and power is None)
        assert bool(particles.notes) == (silent or (macro == 0 and bool(power))), (
            "what was done, or what the file does not say"
        )


@pytest.mark.parametrize("values", ["charge*weighting", "weighting*charge", "e/charge*e/weighting"])
def test_weights_do_not_count_twice(values, h5py, tmp_path):
    _, q, w = pic(h5py, tmp_path / "f.h5", record=dict(macroWeighted=1, weightingPower=1.0))
    np.testing.assert_allclose(read_particles(tmp_path / "f.h5", values=values).values, q * w, rtol=1e-14)
    pic(h5py, tmp_path / "g.h5", record=dict(macroWeighted=0, weightingPower=1.0))
    with pytest.raises(ValueError, match="e/charge is multiplied by e/weighting already: give it alone"):
        read_particles(tmp_path / "g.h5", values=values)


def test_weights_that_are_missing_are_not_guessed(h5py, tmp_path):
    pic(h5py, tmp_path / "f.h5", record=dict(macroWeighted=0, weightingPower=1.0), weights=False)
    with pytest.raises(ValueError, match=r"e/charge is that of one real particle .* and e has no weighting"):
        read_particles(tmp_path / "f.h5", values="charge")


@pytest.mark.parametrize("says", [("field",), ("particle",), ("field", "particle"), ()])
@pytest.mark.parametrize(("labels", "order"), [("xyz", "C"), ("zyx", "C"), ("yzx", "F")])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_boundaries_of_openpmd_are_those_of_axes(ndim, labels, order, says, h5py, tmp_path):
    labels = "".join(axis for axis in labels if axis in "xyz"[:ndim])
    for flags in FLAGS[ndim][:: 3 if ndim == 3 else 1]:
        pic(h5py, tmp_path / "f.h5", ndim, order, labels, **dict.fromkeys(says, flags))
        nodes = np.arange(4, 4 + ndim)
        lengths, origin = nodes * (0.5 + np.arange(ndim)), 0.25 * np.arange(ndim)
        expected = pm.Box(lengths, origin=origin, periodic=flags if says else True)
        with open_particles(tmp_path / "f.h5") as particles:
            assert particles.box() == expected and particles.unsaid == (not says)
        assert read_field(tmp_path / "f.h5").mesh == pm.Mesh(nodes.tolist(), expected, offset=0.5)


def test_particles_and_fields_have_their_own_boundaries(h5py, tmp_path):
    pic(h5py, tmp_path / "f.h5", field=(True, True, True), particle=(True, False, True))
    assert read_particles(tmp_path / "f.h5").box.periodic == (True, False, True)
    assert read_field(tmp_path / "f.h5").mesh.box.periodic == (True, True, True)
    with h5py.File(tmp_path / "f.h5", "a") as file:
        file["data/3/fields"].attrs["fieldBoundary"] = ["periodic", "open", *["periodic"] * 4]
    with pytest.raises(ValueError, match="fieldBoundary is periodic, open, .*; two ends per axis"):
        read_field(tmp_path / "f.h5")


@pytest.mark.parametrize("order", ["C", "F"])
def test_axes_have_units_of_their_own(order, h5py, tmp_path):
    units = {"x": 2.0, "y": 3.0, "z": 5.0}
    labels = "zxy"[:: -1 if order == "F" else 1]
    pic(h5py, tmp_path / "f.h5", order=order, labels="zxy", mesh=dict(gridUnitSI=[units[axis] for axis in labels]))
    box = read_particles(tmp_path / "f.h5").box
    np.testing.assert_allclose(box.lengths, [4 * 0.5 * 2, 5 * 1.5 * 3, 6 * 2.5 * 5])
    np.testing.assert_allclose(box.origin, [0, 0.25 * 3, 0.5 * 5])
    time = np.eye(7)[[0, 0, 2]]
    pic(h5py, tmp_path / "f.h5", mesh=dict(gridUnitDimension=time.ravel()))
    with pytest.raises(ValueError, match="an axis that is no length"):
        read_field(tmp_path / "f.h5")


def put_steps(element, steps, even):
    """Write steps as a list, or as a distance and an offset."""
    if even and len(steps) > 1 and len(set(np.diff(steps))) == 1:
        element["step"] = steps[1] - steps[0]
        element["step"].attrs["offset"] = steps[0]
    else:
        element["step"] = steps


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_h5md_is_matched_by_step(seed, even, h5py, tmp_path):
    random = np.random.default_rng(seed)
    every = [1, 1, 2, 3][seed % 4]
    steps = {"position": np.arange(0, 60, 10)}
    for name in ("charge", "edges"):
        few = np.arange(10 * random.integers(0, 2), 80, 10 * every)
        steps[name] = few if seed % 2 else np.sort(random.choice(few, max(1, len(few) - 2), replace=False))
    value = {name: {step: random.random((5, 3) if name == "position" else 5 if name == "charge" else 3) + 1
                    for step in some} for name, some in steps.items()}  # fmt: skip
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file.create_group("h5md")
        everything = file.create_group("particles/all")
        for name, some in steps.items():
            element = everything.create_group(f"box/{name}" if name == "edges" else name)
            element["value"] = np.array([value[name][step] for step in some])
            put_steps(element, some, even)
        everything["box"].attrs["boundary"] = ["periodic"] * 3
        everything["position/value"].attrs["unit"] = "nm"
    with open_particles(tmp_path / "f.h5", values="charge") as particles:
        assert particles.frames == 6 and particles.unit == "nm"
        for frame, step in enumerate(steps["position"]):
            for name, read in (("charge", lambda frame: next(particles.chunks(frame=frame)).values),
                               ("edges", lambda frame: particles.box(frame).lengths)):  # fmt: skip
                if step in steps[name]:
                    np.testing.assert_array_equal(read(frame), value[name][step])
                else:
                    with pytest.raises(ValueError, match=f"frame {frame}: .*{name} has no value at step {step}"):
                        read(frame)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["periodic", "none", "periodic"], (True, False, True)),
        (["Periodic", "NONE ", " periodic"], (True, False, True)),
        (np.array([b"periodic\0\0", b"none    ", b"PERIODIC"]), (True, False, True)), ("periodic", (True,) * 3),
        (b"none", (False,) * 3), (["periodic"], (True,) * 3), (["wall"] * 3, None), (["none"] * 2, None),
    ],
)  # fmt: skip
def test_boundaries_of_h5md_in_any_spelling(words, expected, h5py, tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file.create_group("h5md")
        file["particles/all/position"], file["particles/all/box/edges"] = np.ones((2, 3)), np.ones(3)
        file["particles/all/box"].attrs["boundary"] = words
    if expected is None:
        with pytest.raises(ValueError, match="the boundary of all is .*; periodic or none for each axis is needed"):
            read_particles(tmp_path / "f.h5")
    else:
        assert read_particles(tmp_path / "f.h5").box == pm.Box([1.0] * 3, periodic=expected)


def test_elements_without_steps_and_units_that_differ(h5py, tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file.create_group("h5md")
        everything = file.create_group("particles/all")
        everything["position/value"], everything["velocity/value"] = np.ones((3, 4, 3)), np.ones((1, 4, 3))
        everything["box/edges"] = np.ones(3)
        everything["box"].attrs["boundary"] = "periodic"
        everything["box/edges"].attrs["unit"], everything["position/value"].attrs["unit"] = "nm", "Angstrom"
    with pytest.raises(ValueError, match="all/velocity and all/position cannot be matched: give both a dataset step"):
        read_particles(tmp_path / "f.h5", values="all/velocity")
    with pytest.raises(ValueError, match="positions are in Angstrom and the box in nm"):
        read_particles(tmp_path / "f.h5")


def cell_xyz(path, x, rows, flags):
    pytest.importorskip("ase", reason="ASE is not installed")
    lattice, pbc = " ".join(map(str, np.ravel(rows))), " ".join("TF"[not flag] for flag in flags)
    atoms = "".join(f"C {a} {b} {c}\n" for a, b, c in x)
    path.write_text(f'{len(x)}\nLattice="{lattice}" Properties=species:S:1:pos:R:3 pbc="{pbc}"\n{atoms}')


def cell_npz(path, x, rows, flags):
    np.savez(path, positions=x, box=rows, periodic=flags)


def cell_h5(path, x, rows, flags):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    with h5py.File(path, "w") as file:
        file["positions"], file["box"], file["periodic"] = x, rows, flags


def cell_h5md(path, x, rows, flags):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    with h5py.File(path, "w") as file:
        file.create_group("h5md")
        file["particles/all/position"], file["particles/all/box/edges"] = x, rows
        file["particles/all/box"].attrs["boundary"] = ["periodic" if flag else "none" for flag in flags]


CELLS = {".xyz": cell_xyz, ".npz": cell_npz, ".h5": cell_h5, ".hdf5": cell_h5md}


@pytest.mark.parametrize("missing", FLAGS[3])
@pytest.mark.parametrize("suffix", CELLS)
def test_axes_without_a_lattice_vector(suffix, missing, tmp_path):
    """Open ones hold all particles, and the others are as they were; ones that repeat are an error."""
    rows = np.array([[4.0, 0.5, 0], [0, 5, 0.25], [0, 0, 6]]) * ~np.array(missing)[:, None]
    x = random.normal(size=(20, 3)) * 3
    for flags in FLAGS[3]:
        CELLS[suffix](tmp_path / f"f{suffix}", x, rows, flags)
        if any(m and f for m, f in zip(missing, flags, strict=True)):
            with pytest.raises(ValueError, match=r"axis \d repeats, and its lattice vector is zero"):
                read_particles(tmp_path / f"f{suffix}")
            continue
        box = read_particles(tmp_path / f"f{suffix}").box
        if all(missing):
            assert box is None
            continue
        assert box.periodic == flags
        there = ~np.array(missing)
        np.testing.assert_array_equal(box.matrix[there], rows[there])
        assert abs(box.matrix[~there] @ rows[there].T).max(initial=0) < 1e-12, "orthogonal to the others"
        fractions = (x - box.origin) @ np.linalg.inv(box.matrix)
        assert ((fractions > 0) & (fractions < 1))[:, ~there].all()


def snapshot(h5py, folder, files, name="snap_007.{}.hdf5", kinds=(0, 1), **header):
    """Write a snapshot in several files; the first one has no particles of the last kind."""
    rows = random.integers(1, 9, (files, len(kinds)))
    rows[0, -1] *= files == 1
    data = {kind: random.random((rows[:, k].sum(), 3)) for k, kind in enumerate(kinds)}
    total = np.zeros(6, np.uint32)
    total[list(kinds)] = rows.sum(axis=0)
    for number in range(files):
        with h5py.File(folder / name.format(number), "w") as file:
            head = file.create_group("Header")
            head.attrs.update(
                BoxSize=1.0, NumFilesPerSnapshot=files, NumPart_Total=total, NumPart_Total_HighWord=0 * total
            )
            head.attrs.update(header)
            for k, kind in enumerate(kinds):
                first = rows[:number, k].sum()
                some = data[kind][first : first + rows[number, k]]
                if len(some):
                    file[f"PartType{kind}/Coordinates"], file[f"PartType{kind}/Masses"] = some, some[:, 0]
    return data


@pytest.mark.parametrize("files", [1, 2, 5])
def test_a_snapshot_is_all_of_its_files(files, h5py, tmp_path):
    data = snapshot(h5py, tmp_path, files, kinds=(0, 1) if files > 1 else (0,))
    for number, kind in itertools.product(range(files), data):
        options = dict(positions=f"PartType{kind}/Coordinates", values="Masses")
        with open_particles(tmp_path / f"snap_007.{number}.hdf5", **options) as particles:
            for size in (3, 1000):
                parts = list(particles.chunks(size))
                np.testing.assert_array_equal(np.concatenate([part.positions for part in parts]), data[kind])
                np.testing.assert_array_equal(np.concatenate([part.values for part in parts]), data[kind][:, 0])
            assert bool(particles.notes) == (files > 1)


def test_files_of_a_snapshot_that_are_missing_are_named(h5py, tmp_path):
    snapshot(h5py, tmp_path, 4)
    (tmp_path / "snap_007.2.hdf5").rename(tmp_path / "away")
    with pytest.raises(ValueError, match="one of 4 files of a snapshot, and snap_007.2.hdf5 are missing"):
        open_particles(tmp_path / "snap_007.0.hdf5")
    with h5py.File(tmp_path / "snap_007.2.hdf5", "w") as file:
        file["PartType0/Coordinates"] = np.zeros((1, 3))  # of another snapshot
        with h5py.File(tmp_path / "snap_007.0.hdf5") as first:
            file.create_group("Header").attrs.update(first["Header"].attrs)
    with pytest.raises(ValueError, match=r"have \d+ rows of PartType\d/\w+, and the header says"):
        open_particles(tmp_path / "snap_007.0.hdf5", positions="PartType1/Coordinates")
    snapshot(h5py, tmp_path, 2, name="part{}.hdf5")
    with pytest.raises(ValueError, match=r"one of 2 files .*, and its name has no number"):
        open_particles(tmp_path / "part0.hdf5")


BOXES = {
    "rectangular": np.diag([4.0, 5.0, 6.0]),
    "triclinic": np.array([[4.0, 0, 0], [1, 5, 0], [0.5, -1, 6]]),
}


@pytest.mark.parametrize("origin", [(0.0, 0.0, 0.0), (1.0, -2.0, 3.0)])
@pytest.mark.parametrize("shape", BOXES)
@pytest.mark.parametrize("suffix", [suffix for form in WRITERS for suffix in form.suffixes])
def test_trajectories_come_back_as_they_were_written(suffix, shape, origin, tmp_path):
    for number, flags in enumerate(FLAGS[3]):
        box = pm.Box(BOXES[shape], origin=origin, periodic=flags)
        x = random.random((20, 3)) @ box.matrix + origin
        path = tmp_path / f"path{number}{suffix}"
        frame = Frame(0, 0.0, x, box, radii=np.full(20, 0.25), velocities=x[::-1].copy())
        try:
            with writer(path, frame) as file:
                file.write(frame)
                file.write(frame._replace(step=5, time=1.0, positions=x[::-1].copy()))
        except ImportError as missing:
            pytest.skip(str(missing))
        for name in [f"path{number}_0000000005.vtu", f"{path.name}.series"] if suffix == ".vtu" else [path.name]:
            with open_particles(tmp_path / name) as particles:
                assert particles.frames == (2 if "_0" not in name else 1)
                read, (chunk,) = particles.box(), particles.chunks()
            assert read.periodic == flags, (name, flags)
            np.testing.assert_allclose(read.matrix, box.matrix, atol=1e-6)
            np.testing.assert_allclose(read.origin, origin, atol=1e-6)
            moved = (
                chunk.positions - x[::-1]
            ) @ box.inverse  # in lattice vectors, of which axes that repeat may have any
            np.testing.assert_allclose(moved - np.where(flags, np.rint(moved), 0), 0, atol=2e-6)


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("suffix", [".npz", ".h5", ".mrc"])
def test_fields_come_back_as_they_were_written(suffix, ndim, tmp_path):
    if suffix == ".mrc" and ndim < 3:
        pytest.skip("the format has three axes")
    for flags, shape in itertools.product(FLAGS[ndim], BOXES):
        offset = [0.25 if flag else random.choice([0, 0.5]) for flag in flags]
        box = pm.Box(BOXES[shape][:ndim, :ndim], origin=np.arange(1.0, ndim + 1), periodic=flags)
        mesh = pm.Mesh((4, 5, 6)[:ndim], box, offset=offset)
        values = random.random(mesh.shape).astype(np.float32)
        try:
            write_field(tmp_path / f"f{suffix}", values, mesh, overwrite=True)
        except ImportError as missing:
            pytest.skip(str(missing))
        field = read_field(tmp_path / f"f{suffix}")
        np.testing.assert_array_equal(field.values, values)
        assert field.mesh.periodic == mesh.periodic and field.mesh.offset == mesh.offset
        if suffix != ".mrc":
            assert field.mesh == mesh
        np.testing.assert_allclose(field.mesh.box.matrix, box.matrix, atol=1e-5)
        np.testing.assert_allclose(field.mesh.box.origin, box.origin, atol=1e-5)


def dump(x, bounds, table, origin=(0, 0, 0), scaled=False, frames=1):
    """Return a dump of LAMMPS; `table` are more columns."""
    names, rows = "xs ys zs" if scaled else "x y z", x
    text = ""
    for frame in range(frames):
        lines = [
            f"{n + 1} {1 + n % 2} {a} {b} {c} {q}"
            for n, ((a, b, c), q) in enumerate(zip(rows + frame, table, strict=True))
        ]
        text += (
            f"ITEM: TIMESTEP\n{frame * 100}\nITEM: NUMBER OF ATOMS\n{len(x)}\n{bounds}\nITEM: ATOMS id type {names} q\n"
        )
        text += "\n".join(lines[::-1]) + "\n"  # in no order
    return text


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("flags", FLAGS[3])
def test_dumps_of_lammps(flags, scaled, tmp_path):
    pytest.importorskip("ase", reason="ASE is not installed")
    x, q = random.random((6, 3)), np.arange(6.0)
    words = " ".join("pp" if flag else "ff" for flag in flags)
    bounds = f"ITEM: BOX BOUNDS {words}\n1 3\n-1 4\n0 6"
    (tmp_path / "f.lammpstrj").write_text(dump(x, bounds, q, scaled=scaled, frames=3))
    with open_particles(tmp_path / "f.lammpstrj", values="q") as particles:
        assert particles.frames == 3 and particles.box() == pm.Box([2.0, 5, 6], origin=[1, -1, 0], periodic=flags)
        (chunk,) = particles.chunks(frame=1)
    moved = (x + 1) * [2, 5, 6] + [1, -1, 0] if scaled else x + 1
    np.testing.assert_allclose(chunk.positions, moved[::-1], rtol=1e-12)
    np.testing.assert_array_equal(chunk.values, q[::-1])
    tilted = f"ITEM: BOX BOUNDS xy xz yz {words}\n0 5 1\n0 5 0\n0 6 0"
    (tmp_path / "f.dump").write_text(dump(x, tilted, q))
    assert read_particles(tmp_path / "f.dump").box == pm.Box([[4.0, 0, 0], [1, 5, 0], [0, 0, 6]], periodic=flags)
    (tmp_path / "f.dump").write_text(dump(x, "ITEM: BOX BOUNDS\n0 4\n0 5\n0 6", q))
    with open_particles(tmp_path / "f.dump") as particles:
        assert particles.box() == pm.Box([4.0, 5, 6]) and particles.unsaid


def test_data_files_of_lammps(tmp_path):
    pytest.importorskip("ase", reason="ASE is not installed")
    (tmp_path / "f.data").write_text(
        "made by hand\n\n2 atoms\n1 atom types\n\n-1 3 xlo xhi\n0 5 ylo yhi\n0 6 zlo zhi\n\n"
        "Masses\n\n1 12.0\n\nAtoms # charge\n\n1 1 0.5 0.0 1.0 2.0\n2 1 -0.5 1.0 2.0 3.0\n"
    )
    with open_particles(tmp_path / "f.data", values="initial_charges") as particles:
        assert particles.box() == pm.Box([4.0, 5, 6], origin=[-1, 0, 0]) and particles.unsaid
        (chunk,) = particles.chunks()
    np.testing.assert_allclose(chunk.positions, [[0, 1, 2], [1, 2, 3]], atol=1e-12)
    np.testing.assert_array_equal(chunk.values, [0.5, -0.5])
    np.testing.assert_allclose(read_particles(tmp_path / "f.data", values="masses").values, [12, 12], rtol=1e-8)


def test_points_of_vtk(tmp_path):
    meshio = pytest.importorskip("meshio", reason="meshio is not installed")
    x, q = random.random((6, 3)), np.arange(6.0)
    for suffix in (".vtu", ".vtk"):
        meshio.Mesh(x, [("vertex", np.arange(6)[:, None])], point_data={"q": q}).write(tmp_path / f"f{suffix}")
        particles = read_particles(tmp_path / f"f{suffix}", values="q")
        np.testing.assert_array_equal(particles.positions, x)
        np.testing.assert_array_equal(particles.values, q)
        assert particles.box is None
    (tmp_path / "few.vtu.series").write_text(
        '{"files": [{"name": "./f.vtu", "time": 0}, {"name": "g.vtu", "time": 1}]}'
    )
    with pytest.raises(ValueError, match="it lists g.vtu, which are missing"):
        open_particles(tmp_path / "few.vtu.series")


@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize("kind", ["link", "storage", "virtual above", "virtual missing"])
def test_data_of_other_files_are_refused(kind, h5py, tmp_path):
    folder = tmp_path / "inner"
    folder.mkdir()
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["positions"] = np.ones((4, 3))
    (tmp_path / "raw").write_bytes(np.ones((4, 3)).tobytes())
    with h5py.File(folder / "f.h5", "w") as file:
        if kind == "link":
            file["positions"] = h5py.ExternalLink("../secret.h5", "positions")
        elif kind == "storage":
            file.create_dataset("positions", (4, 3), float, external=[(str(tmp_path / "raw"), 0, 96)])
        else:
            layout = h5py.VirtualLayout((4, 3), float)
            source = "../secret.h5" if kind == "virtual above" else "none.h5"
            layout[:] = h5py.VirtualSource(source, "positions", (4, 3))
            file.create_virtual_dataset("positions", layout)
    with pytest.raises(ValueError, match=r"positions is in (another (file|folder)|none.h5, which is missing)"):
        open_particles(folder / "f.h5")


def test_virtual_data_in_the_same_folder_are_read(h5py, tmp_path):
    x = random.random((6, 3))
    layout = h5py.VirtualLayout((6, 3), float)
    for part in range(2):
        with h5py.File(tmp_path / f"part{part}.h5", "w") as file:
            file["positions"] = x[3 * part : 3 * part + 3]
        layout[3 * part : 3 * part + 3] = h5py.VirtualSource(f"part{part}.h5", "positions", (3, 3))
    with h5py.File(tmp_path / "all.h5", "w") as file:
        file.create_virtual_dataset("positions", layout)
    np.testing.assert_array_equal(read_particles(tmp_path / "all.h5").positions, x)


def test_several_frames_name_the_one_that_is_refused(tmp_path):
    pytest.importorskip("ase", reason="ASE is not installed")
    for wrong, said in (("H 0 0\n", "frame 1 cannot be read"), ("H 0 0 nan\n", "frame 1: the position of particle 0"),
                        ("H 0 0 9\n", r"frame 1, particles from 0 on: .*outside an open axis")):  # fmt: skip
        frames = [f'1\nLattice="2 0 0 0 2 0 0 0 2" pbc="F F F"\n{row}' for row in ("H 1 1 1\n", wrong, "H 1 1 1\n")]
        (tmp_path / "f.xyz").write_text("".join(frames))
        with (
            pytest.raises(ValueError, match=said),
            open_particles(tmp_path / "f.xyz") as particles,
        ):
            spread_particles(particles, pm.Mesh((6, 6, 6), particles.box(0)), "cic", frames=range(3))


def test_formats_are_in_the_pages_and_the_help():
    """Lists of endings that are written by hand have all endings of FORMATS."""
    page = pytest.importorskip("pathlib").Path(__file__).parents[3] / "docs/howto/files.rst"
    if not page.exists():
        pytest.skip("the documentation is not here")
    from particlemesh.command import cli

    help_text = cli.File.__metadata__[0].help
    for form in FORMATS:
        for suffix in form.suffixes:
            assert f"``{suffix}``" in page.read_text(), suffix
        assert any(suffix in help_text for suffix in form.suffixes), form
        assert any(re.search(rf"\{suffix}\b", open_particles.__doc__) for suffix in form.suffixes), form
