# SPDX-License-Identifier: BSD-3-Clause
"""Particles come back from every format as they are, in parts and as a whole; what is wrong with a file is said."""

import importlib
import pkgutil
import re
import tracemalloc
import warnings

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps.files import open_particles, read_particles, spread_particles, writing_table
from particlemesh.apps.files import particles as formats
from particlemesh.apps.files.particles import FORMATS
from particlemesh.apps.files.particles.reader import Reader
from particlemesh.apps.files.trajectory import Frame, writer

LENGTHS = np.array([4.0, 5.0, 6.0])
random = np.random.default_rng(5)
X = random.random((40, 3)) * LENGTHS
Q = random.normal(size=40)


def npz(folder, name="few.npz", **more):
    np.savez(folder / name, **{"positions": X, "charges": Q, "box": LENGTHS, **more})
    return folder / name


def hdf5(folder):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "few.h5", "w") as file:
        file["PartType1/Coordinates"], file["PartType1/charges"] = X, Q
        file["PartType1/Velocities"] = 2 * X
        file.create_group("Header").attrs["BoxSize"] = LENGTHS
    return folder / "few.h5"


def openpmd(folder):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "data.h5", "w") as file:
        file.attrs.update(openPMD="1.1.0", particlesPath="particles/", meshesPath="meshes/")
        species = file.create_group("data/100/particles/electrons")
        for axis, name in enumerate("xyz"):
            species[f"position/{name}"] = X[:, axis] / 2 - 1
            species[f"position/{name}"].attrs["unitSI"] = 2.0
            species.create_group(f"positionOffset/{name}").attrs.update(value=2.0, shape=[40], unitSI=1.0)
        species["charges"] = Q
        species.create_group("mass").attrs.update(value=3.0, shape=[40], unitSI=2.0)
        rho = file.create_dataset("data/100/meshes/rho", data=np.zeros((4, 4, 4)))
        rho.attrs.update(geometry="cartesian", gridSpacing=LENGTHS / 4, gridGlobalOffset=np.zeros(3), position=[0.0])
    return folder / "data.h5"


def h5md(folder):
    h5py = pytest.importorskip("h5py")
    path = trajectory(folder, ".h5")
    with h5py.File(path, "a") as file:
        file["particles/all/charges"] = Q
    return path


def trajectory(folder, suffix):
    """Two frames, of which the second has the positions."""
    path = folder / f"path{suffix}"
    first = Frame(0, 0.0, 0.5 * X, pm.Box(LENGTHS))
    try:
        with writer(path, first) as file:
            file.write(first)
            file.write(first._replace(step=1, positions=X))
    except ImportError as missing:
        pytest.skip(str(missing))
    return path


def gsd(folder):
    hoomd = pytest.importorskip("gsd.hoomd")
    with hoomd.open(folder / "few.gsd", "w") as file:
        for factor in (0.5, 1.0):
            frame = hoomd.Frame()
            frame.configuration.box = [*LENGTHS, 0, 0, 0]
            frame.particles.N, frame.particles.position, frame.particles.charge = 40, factor * X - LENGTHS / 2, Q
            file.append(frame)
    return folder / "few.gsd"


def xyz(folder):
    ase_io = pytest.importorskip("ase.io")
    from ase import Atoms

    atoms = Atoms("Ar40", positions=X, cell=LENGTHS, pbc=True)
    atoms.set_array("weights", Q)
    half = atoms.copy()
    half.positions *= 0.5
    ase_io.write(folder / "few.xyz", [half, atoms], format="extxyz")
    return folder / "few.xyz"


def structure(folder, suffix):
    universe = pytest.importorskip("MDAnalysis")
    atoms = universe.Universe.empty(40, trajectory=True)
    for name, value in (("names", ["A"] * 40), ("resnames", ["R"]), ("resids", [1]), ("tempfactors", Q.round(2))):
        atoms.add_TopologyAttr(name, value)
    atoms.atoms.positions = X
    atoms.dimensions = [*LENGTHS, 90, 90, 90]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what a .pdb has and these do not
        atoms.atoms.write(str(folder / f"few{suffix}"))
    return folder / f"few{suffix}"


def csv(folder):
    np.savetxt(folder / "few.csv", np.c_[X, Q], delimiter=",", header="x,y,z,charges", comments="")
    return folder / "few.csv"


def text(folder):
    np.savetxt(folder / "few.txt", np.c_[Q, X], header="charges x y z")
    return folder / "few.txt"


def parquet(folder):
    arrow, library = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"x": X[:, 0], "y": X[:, 1], "z": X[:, 2], "charges": Q, "name": ["a"] * 40}
    library.write_table(arrow.table(columns), folder / "few.parquet", row_group_size=9)
    return folder / "few.parquet"


# File, its name of the charges, error of positions, corner of its box or None if it has none.
CASES = {
    "npz": (npz, "charges", 0, 0),
    "hdf5": (hdf5, "charges", 0, 0),
    "openpmd": (openpmd, "charges", 1e-14, 0),
    "h5md": (h5md, "charges", 0, 0),
    "gsd": (gsd, "charge", 1e-6, -LENGTHS / 2),
    "xyz": (xyz, "weights", 1e-7, 0),
    "pdb": (lambda folder: structure(folder, ".pdb"), "tempfactors", 1e-3, 0),
    "gro": (lambda folder: structure(folder, ".gro"), None, 1e-2, 0),
    "csv": (csv, "charges", 0, None),
    "txt": (text, "charges", 0, None),
    "parquet": (parquet, "charges", 0, None),
}


def subclasses(parent):
    return {below for child in parent.__subclasses__() for below in {child, *subclasses(child)}}


def test_no_format_is_missing_in_the_tuple():
    for entry in pkgutil.iter_modules(formats.__path__):
        importlib.import_module(f"{formats.__name__}.{entry.name}")
    readers = {reader for reader in subclasses(Reader) if "suffixes" in vars(reader)}
    forms = {reader for reader in readers if any(base in FORMATS for base in reader.__mro__[1:])}  # of a file, as H5MD
    assert readers - forms - set(FORMATS) == set(), "add it to FORMATS"
    assert {suffix for form in FORMATS for suffix in form.suffixes} >= {".npz", ".h5", ".gsd", ".xyz", ".pdb", ".csv"}


@pytest.mark.parametrize("case", CASES)
def test_particles_come_back(case, tmp_path):
    make, name, error, corner = CASES[case]
    path = make(tmp_path)
    with open_particles(path, values=name) as particles:
        parts = list(particles.chunks(size=7))
        assert [len(part.positions) for part in parts[:-1]] in ([7] * 5, [7, 2] * 4)  # groups of 9 rows
        assert particles.ndim == 3 and particles.components == ()
        positions = np.concatenate([part.positions for part in parts])
        values = np.concatenate([part.values for part in parts])
        box = particles.box()
        assert particles.count in (40, None)
    shift = 0 if corner is None else corner
    np.testing.assert_allclose(positions, X + shift, rtol=0, atol=error)
    np.testing.assert_allclose(values, Q if name else 1.0, rtol=0, atol={"pdb": 0.006, "gsd": 1e-6}.get(case, 1e-8))
    assert (box is None) == (corner is None)
    if box is not None:
        np.testing.assert_allclose(box.matrix, np.diag(LENGTHS), atol=1e-6)
        np.testing.assert_allclose(box.origin, shift, atol=1e-6)
        assert all(box.periodic)
    whole = read_particles(path, values=name)
    np.testing.assert_array_equal(whole.positions, positions)
    np.testing.assert_array_equal(whole.values, values)


@pytest.mark.parametrize("case", ["h5md", "gsd", "xyz"])
def test_frames_are_chosen(case, tmp_path):
    make, _, error, corner = CASES[case]
    path = make(tmp_path)
    with open_particles(path) as particles:
        assert particles.frames == 2
        with pytest.raises(ValueError, match="frame is 2; .* has 2, from 0 on"):
            next(particles.chunks(frame=2))
    for frame, factor in ((0, 0.5), (1, 1.0), (-1, 1.0), (-2, 0.5)):
        positions = read_particles(path, frame=frame).positions
        np.testing.assert_allclose(positions, factor * X + corner, rtol=0, atol=error)


def test_a_trajectory_takes_a_topology(tmp_path):
    universe = pytest.importorskip("MDAnalysis")
    topology = structure(tmp_path, ".gro")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of unknown masses
        universe.Universe(str(topology)).atoms.write(str(tmp_path / "few.xtc"))
    particles = read_particles(tmp_path / "few.xtc", topology=topology)
    np.testing.assert_allclose(particles.positions, X, rtol=0, atol=0.02)
    with pytest.raises(ValueError, match="few.xtc has no topology: give --topology FILE"):
        open_particles(tmp_path / "few.xtc")


def test_constant_records_of_openpmd_are_numbers(tmp_path):
    np.testing.assert_array_equal(read_particles(openpmd(tmp_path), values="mass").values, 6.0)


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"positions": X.astype(np.float32)}, np.float32),
        ({"positions": X.astype(">f8")}, np.float64),
        ({"positions": np.asfortranarray(X)}, np.float64),
        ({"positions": X.astype(np.float16)}, np.float64),
        ({"positions": X.astype(int)}, np.float64),
    ],
    ids=["float32", "big endian", "fortran", "float16", "integers"],
)
def test_types_and_orders_of_arrays(arrays, expected, tmp_path):
    with open_particles(npz(tmp_path, **arrays)) as particles:
        positions = np.concatenate([part.positions for part in particles.chunks(size=7)])
    assert positions.dtype == expected and positions.dtype.isnative
    np.testing.assert_array_equal(positions, arrays["positions"])


def test_values_of_several_numbers(tmp_path):
    path = npz(tmp_path, velocities=2 * X, phase=Q * 1j)
    np.testing.assert_array_equal(read_particles(path, values="velocities").values, 2 * X.T)
    np.testing.assert_array_equal(read_particles(path, values="phase").values, 1j * Q)
    np.testing.assert_array_equal(read_particles(path, values=2.5).values, 2.5)
    path = csv(tmp_path)
    np.testing.assert_array_equal(read_particles(path, values="charges, x").values, [Q, X[:, 0]])
    np.testing.assert_array_equal(read_particles(path, positions="z,x").positions, X[:, [2, 0]])


def test_boxes_in_archives(tmp_path):
    rows = [[4.0, 0, 0], [1, 5, 0], [0, 1, 6]]
    box = read_particles(npz(tmp_path, box=rows, origin=[1, 2, 3], periodic=[True, False, True])).box
    assert box == pm.Box(rows, origin=[1, 2, 3], periodic=[True, False, True])
    np.savez(tmp_path / "line.npz", x=X[:, 0], box=4.0)
    assert read_particles(tmp_path / "line.npz").box == pm.Box(4.0)


def test_parts_spread_as_the_whole(tmp_path):
    """The oracle is one call in memory."""
    mesh = pm.Mesh((8, 9, 10), LENGTHS, periodic=(True, False, True))
    path = npz(tmp_path, both=np.stack([Q, Q**2], axis=1))
    with open_particles(path, values="both") as particles:
        field, account = spread_particles(particles, mesh, size=11)
        one, _ = spread_particles(particles, mesh)
    both = np.stack([Q, Q**2])
    expected = pm.spread(X, both, mesh)
    np.testing.assert_allclose(field, expected, atol=1e-13)
    np.testing.assert_array_equal(one, expected)
    assert account.particles == 40
    np.testing.assert_allclose(account.values, both.sum(axis=1), atol=1e-13)
    np.testing.assert_allclose(account.values - account.lost, expected.sum(axis=(1, 2, 3)), atol=1e-13)
    assert (abs(account.lost) > 1e-3).all()


@pytest.mark.parametrize("suffix", [".npz", ".h5", ".csv"])
def test_parts_need_the_memory_of_a_part(suffix, tmp_path):
    count, path = 40_000, tmp_path / f"many{suffix}"
    if suffix == ".h5":
        pytest.importorskip("h5py")
    with writing_table(path) as table:
        table.append({"position": np.zeros((count, 3))})
    with open_particles(path) as particles:
        next(particles.chunks(size=10))  # what a first call allocates is not counted
        tracemalloc.start()
        total = sum(len(part.positions) for part in particles.chunks(size=count // 20))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert total == count
    assert peak < count * 3 * 8 / 3


def test_frames_are_averaged(tmp_path):
    mesh = pm.Mesh(8, LENGTHS[:1])
    np.savez(tmp_path / "few.npz", x=X[:, 0])
    with open_particles(tmp_path / "few.npz") as particles:
        field, account = spread_particles(particles, mesh, frames=(0, 0, 0), size=17)
    np.testing.assert_allclose(field, pm.spread(X[:, 0], np.ones(40), mesh), atol=1e-13)
    assert account.particles == 120 and account.values == pytest.approx(40)


def test_particles_beyond_open_faces(tmp_path):
    mesh = pm.Mesh(8, 2.0, periodic=False)
    np.savez(tmp_path / "few.npz", x=X[:, 0])
    with open_particles(tmp_path / "few.npz") as particles:
        with pytest.raises(ValueError, match=r"particles from 0 on: .* outside an open axis .*\(--outside lose\)"):
            spread_particles(particles, mesh)
        field, account = spread_particles(particles, mesh, size=9, outside="lose")
        with pytest.raises(ValueError, match="outside is 'drop'; give error or lose"):
            spread_particles(particles, mesh, outside="drop")
    assert account.beyond == (X[:, 0] > 2).sum() > 0
    assert account.values - account.lost == pytest.approx(field.sum(), abs=1e-12)


def write(name, content):
    def make(folder):
        (folder / name).write_text(content, encoding="utf-8")
        return folder / name

    return make


def archive(**arrays):
    def make(folder):
        np.savez(folder / "bad.npz", **arrays)
        return folder / "bad.npz"

    return make


NAN = X.copy()
NAN[17, 1] = np.nan
ERRORS = {
    "no file": (lambda folder: folder / "none.npz", {}, "none.npz does not exist, or is no file"),
    "ending": (write("few.doc", "x"), {}, "few.doc has an unknown ending; particles are read from .npz, .h5"),
    "no archive": (
        write("few.npz", "x"),
        {},
        "few.npz cannot be read as .npz: File is not a zip file. Is the file whole?",
    ),
    "no hdf5": (write("few.h5", "x"), {}, "few.h5 cannot be read as .h5: few.h5 does not begin as HDF5 does"),
    "no topology": (npz, {"topology": __file__}, ".npz has no other file beside it: leave it out"),
    "no positions": (archive(a=X), {}, "has no positions by a usual name, but a: give their name (--positions)"),
    "nothing": (archive(a="text"), {}, "has no positions by a usual name, and no columns of numbers"),
    "no column": (npz, {"values": "mass"}, "has no column mass, but positions, charges: give one of these as values"),
    "no name": (npz, {"positions": ","}, "positions is ','; give names of columns with commas between them"),
    "no number": (npz, {"values": np.inf}, "values is inf; give a finite number or names of columns"),
    "four axes": (archive(positions=np.ones((5, 4))), {}, "has positions of 4 axes; 1 to 3 are needed"),
    "several": (
        archive(x=X, y=Q),
        {"positions": "x,y"},
        "positions are x, y, and x has several numbers: give it alone",
    ),
    "vectors": (npz, {"values": "positions,charges"}, "give one column of several numbers, or single ones"),
    "lengths": (archive(positions=X, q=Q[:9]), {"values": "q"}, "of different lengths, positions: 40, q: 9"),
    "not finite": (archive(positions=NAN), {}, "the position of particle 17 is not finite"),
    "bad value": (archive(positions=X, q=NAN[:, 1]), {"values": "q"}, "the value of particle 17 is not finite"),
    "complex": (archive(positions=X * 1j), {}, "positions positions are complex; real numbers are needed"),
    "empty": (archive(positions=X[:0]), {}, "has no particles"),
    "box": (archive(positions=X, box=[1, 2]), {}, None),
    "bad box": (archive(positions=X, box=[1, 2, -3.0]), {}, "the file's box cannot be used"),
    "no rows": (write("few.csv", "# x\n"), {}, "few.csv: it has no rows."),
    "words": (
        write("few.csv", "x,y\n1,2\n3,a\n"),
        {},
        "behind row 0: could not convert string 'a' to float64 at row 1",
    ),
    "twice": (write("few.csv", "x,x\n1,2\n"), {}, "two columns have one name: x, x"),
    "only names": (write("few.csv", "x,y\n"), {}, "few.csv has no particles"),
}


@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize("case", ERRORS)
def test_errors_say_what_was_given_and_what_to_do(case, tmp_path):
    if case == "no hdf5":
        pytest.importorskip("h5py")
    make, options, message = ERRORS[case]
    path = make(tmp_path)
    if message is None:  # a box of two axes is one
        assert read_particles(path, **options).box.ndim == 2
        return
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        read_particles(path, **options)
    assert "\n" not in str(caught.value)


def test_two_kinds_of_particles_are_a_choice(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "two.h5", "w") as file:
        for kind in (0, 1):
            file[f"PartType{kind}/Coordinates"], file[f"PartType{kind}/Masses"] = X[: 20 + kind], Q[: 20 + kind]
    with pytest.raises(ValueError, match="has PartType0/Coordinates, PartType1/Coordinates: give one of them"):
        open_particles(tmp_path / "two.h5")
    particles = read_particles(tmp_path / "two.h5", positions="PartType1/Coordinates", values="Masses")
    np.testing.assert_array_equal(particles.values, Q[:21])


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    (tmp_path / "few.parquet").touch()
    with pytest.raises(ImportError, match=r".parquet needs pyarrow: pip install pyarrow, or 'particlemesh\[files\]'"):
        open_particles(tmp_path / "few.parquet")
