# SPDX-License-Identifier: BSD-3-Clause
"""Fields and tables come back, appear as a whole or not at all, and are never replaced unasked."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps import files
from particlemesh.apps.files import fields, tables

random = np.random.default_rng(7)
OPEN = pm.Box((1.0, 2.0, 3.0), origin=(1, -1, 0.5), periodic=(True, False, True))
SLAB = pm.Mesh((3, 4, 5), OPEN, offset=(0.25, 0.5, 0))
TILTED = pm.Mesh((3, 4, 5), pm.Box([[3.0, 0, 0], [1, 4, 0], [0.5, -1, 5]], origin=(1, 2, 3)))
PLANE = pm.Mesh((3, 4), (1.0, 2.0), offset=(-0.25, 1.5))
LINE = pm.Mesh(5, 2.0)
LIBRARIES = {".npz": "numpy", ".h5": "h5py", ".vti": "pyevtk", ".mrc": "mrcfile", ".csv": "numpy"}
LIBRARIES[".parquet"] = "pyarrow"


def needs(suffix):
    pytest.importorskip(LIBRARIES[suffix])


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
@pytest.mark.parametrize("mesh", [SLAB, TILTED, PLANE, LINE], ids=["slab", "tilted", "plane", "line"])
def test_fields_come_back_bit_by_bit(suffix, mesh, tmp_path):
    needs(suffix)
    for number, (batch, dtype) in enumerate([((), "f4"), ((2,), "f8"), ((mesh.ndim,), "c16"), ((2, 3), "c8")]):
        path = tmp_path / f"{number}{suffix}"
        values = (random.random((*batch, *mesh.shape)) + 1j * number).astype(dtype) if dtype[0] == "c" else (
            random.random((*batch, *mesh.shape)).astype(dtype))  # fmt: skip
        files.write_field(path, values, mesh, name="rho")
        field = files.read_field(path)
        assert field.mesh == mesh and field.name == "rho" and field.values.dtype == values.dtype
        np.testing.assert_array_equal(field.values, values)


def test_hdf5_has_what_the_standard_of_openpmd_asks_for(tmp_path):
    h5py = pytest.importorskip("h5py")
    files.write_field(tmp_path / "f.h5", np.zeros((3, *SLAB.shape)), SLAB, name="E")
    with h5py.File(tmp_path / "f.h5") as file:
        root = {"openPMD", "openPMDextension", "basePath", "meshesPath", "iterationEncoding", "iterationFormat"}
        assert root <= set(file.attrs)
        assert set(file["data/0"].attrs) >= {"time", "dt", "timeUnitSI"}
        record = file["data/0/meshes/E"]
        assert set(record) == {"x", "y", "z"}
        expected = {"geometry", "dataOrder", "axisLabels", "gridSpacing", "gridGlobalOffset", "gridUnitSI"}
        assert expected | {"unitDimension", "timeOffset"} <= set(record.attrs)
        assert all(set(record[axis].attrs) == {"unitSI", "position"} for axis in "xyz")
        assert all(value.ndim < 2 for value in map(np.asarray, record.attrs.values()))  # openpmd-api reads no others
        nodes = record.attrs["gridGlobalOffset"] + record["x"].attrs["position"] * record.attrs["gridSpacing"]
        np.testing.assert_allclose(nodes, [SLAB.nodes(axis)[0] for axis in range(3)])


def test_other_programs_fields_in_openpmd_are_read(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file.attrs.update(openPMD="1.1.0", meshesPath="fields/")
        record = file.create_dataset("data/5/fields/B", data=np.arange(6.0).reshape(2, 3))
        record.attrs.update(
            geometry="cartesian", dataOrder="C", gridSpacing=[0.5, 1.0], gridGlobalOffset=[1.0, 2.0], gridUnitSI=2.0,
            unitSI=3.0, position=[0.0, 0.5],
        )  # fmt: skip
    field = files.read_field(tmp_path / "f.h5")
    assert field.mesh == pm.Mesh((2, 3), (2.0, 6.0), origin=(2.0, 4.0), offset=(0, 0.5))
    np.testing.assert_array_equal(field.values, 3 * np.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize("mesh", [SLAB, TILTED], ids=["slab", "tilted"])
def test_maps_come_back_in_single_precision(mesh, tmp_path):
    pytest.importorskip("mrcfile")
    values = random.random(mesh.shape)
    files.write_field(tmp_path / "f.mrc", values, mesh)
    field = files.read_field(tmp_path / "f.mrc")
    np.testing.assert_array_equal(field.values, values.astype(np.float32))
    for index in np.ndindex(2, 2, 2):  # nodes are where they were; the box is that of nodes times spacing
        place = [
            m.box.origin + (np.array(index) + m.offset) @ (m.box.matrix * (m.spacing / edge)[:, None])
            for m in (mesh, field.mesh)
            for edge in [np.linalg.norm(m.box.matrix, axis=1)]
        ]
        np.testing.assert_allclose(place[1], place[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("most", [1e39, np.nan, np.inf])
def test_maps_have_finite_numbers(most, tmp_path):
    pytest.importorskip("mrcfile")
    with pytest.raises(ValueError, match="has finite numbers in single precision, this one up to .*: write .h5"):
        files.write_field(tmp_path / "f.mrc", np.full(SLAB.shape, most), SLAB)
    assert not list(tmp_path.iterdir())


def test_images_of_vtk_have_values_where_nodes_are(tmp_path):
    pytest.importorskip("pyevtk")
    values = random.random((2, *SLAB.shape))
    files.write_field(tmp_path / "f.vti", values, SLAB)
    raw = (tmp_path / "f.vti").read_bytes()
    head, _, data = raw.partition(b'<AppendedData encoding="raw">')
    image = ET.fromstring(head + b"</VTKFile>").find("ImageData")
    np.testing.assert_allclose(np.array(image.get("Origin").split(), float), [SLAB.nodes(k)[0] for k in range(3)])
    np.testing.assert_allclose(np.array(image.get("Spacing").split(), float), SLAB.spacing)
    assert [int(n) for n in image.get("WholeExtent").split()] == [0, 2, 0, 3, 0, 4]
    arrays = image.findall(".//DataArray")
    assert [array.get("Name") for array in arrays] == ["field_0", "field_1"]
    data = data[data.index(b"_") + 1 :]
    for array, expected in zip(arrays, values, strict=True):
        start = int(array.get("offset")) + 8
        stored = np.frombuffer(data[start : start + expected.nbytes], "<f8")
        np.testing.assert_array_equal(stored, expected.ravel(order="F"))  # x is fastest
    files.write_field(tmp_path / "g.vti", np.ones(PLANE.shape) * 1j, PLANE)
    assert re.findall(rb'Name="(\w+)"', (tmp_path / "g.vti").read_bytes()) == [b"field_real", b"field_imag"]


class BrokenError(Exception):
    pass


def halfway(*arguments, **options):
    """Write something, and fail."""
    target = arguments[0]
    target = target if hasattr(target, "with_name") else None
    if target is not None:
        target.write_bytes(b"half")
    raise BrokenError


@pytest.mark.parametrize("suffix", [".npz", ".h5", ".vti", ".mrc"])
def test_an_error_in_the_middle_leaves_what_was_there(suffix, tmp_path, monkeypatch):
    needs(suffix)
    path = tmp_path / f"f{suffix}"
    mesh = SLAB if suffix == ".vti" else TILTED
    files.write_field(path, np.ones(mesh.shape), mesh)
    before = path.read_bytes()
    target = {
        ".npz": "numpy.savez", ".h5": "particlemesh.apps.files.fields.put_mesh",
        ".vti": "pyevtk.hl.imageToVTK", ".mrc": "mrcfile.new",
    }[suffix]  # fmt: skip
    monkeypatch.setattr(target, halfway)
    with pytest.raises(BrokenError):
        files.write_field(path, np.zeros(mesh.shape), mesh, overwrite=True)
    with pytest.raises(BrokenError):
        files.write_field(tmp_path / f"g{suffix}", np.zeros(mesh.shape), mesh)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == before


@pytest.mark.parametrize("suffix", [".NPZ", ".H5", ".VTI", ".MRC", ".CSV", ".Parquet"])
def test_names_in_capital_letters_are_those_of_the_files(suffix, tmp_path):
    needs(suffix.lower())
    path = tmp_path / f"f{suffix}"
    if suffix in (".CSV", ".Parquet"):
        with files.writing_table(path) as table:
            table.append({"x": np.arange(3.0)})
        assert files.read_particles(path).positions.ravel().tolist() == [0, 1, 2]
    else:
        mesh = pm.Mesh((4, 4, 4), (1.0, 1.0, 1.0))
        files.write_field(path, np.ones(mesh.shape), mesh)
        assert suffix == ".VTI" or files.read_field(path).values.sum() == 64
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


COLUMNS = {"position": random.random((9, 3)), "value": random.random(9).astype(np.float32), "n": np.arange(9)}


@pytest.mark.parametrize("suffix", [".npz", ".h5", ".csv", ".parquet"])
def test_tables_in_parts_are_the_whole(suffix, tmp_path):
    needs(suffix)
    path = tmp_path / f"t{suffix}"
    with files.writing_table(path) as table:
        for start in (0, 4, 8):
            table.append({name: data[start : start + 4] for name, data in COLUMNS.items()})
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    particles = files.read_particles(path, values="value")
    np.testing.assert_array_equal(particles.positions, COLUMNS["position"])
    np.testing.assert_allclose(particles.values, COLUMNS["value"], rtol=1e-7)
    before = path.read_bytes()
    with pytest.raises(BrokenError), files.writing_table(path, overwrite=True) as table:
        table.append(COLUMNS)
        raise BrokenError
    assert [file.name for file in tmp_path.iterdir()] == [path.name] and path.read_bytes() == before


@pytest.mark.parametrize("suffix", [".npz", ".h5", ".csv", ".parquet"])
def test_tables_without_rows(suffix, tmp_path):
    needs(suffix)
    path = tmp_path / f"t{suffix}"
    with files.writing_table(path) as table:
        table.append({"x": np.ones(0)})
        table.append({"x": np.ones(0)})
    with pytest.raises(ValueError, match="has no particles"):
        files.read_particles(path)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "the table has no columns: append some"),
        ([{}], "columns have different numbers of rows, none"),
        ([{"a": [1], "b": [1, 2]}], "columns have different numbers of rows, a: 1, b: 2"),
        ([{"a": [1]}, {"b": [1]}], "columns are b; give those of the first part: a"),
        ([{"a": ["x"]}], "column a is a list that makes no array of numbers; give"),
    ],
)
def test_parts_that_do_not_fit(parts, message, tmp_path):
    with pytest.raises((ValueError, TypeError), match=message):
        with files.writing_table(tmp_path / "t.npz") as table:
            for part in parts:
                table.append(part)
    assert not list(tmp_path.iterdir())


ONES = np.ones(SLAB.shape)
ERRORS = {
    "ending": (("f.doc", ONES, SLAB), "out is 'f.doc'; give a name that ends in .npz, .h5, .hdf5, .vti, .mrc, .map"),
    "shape": (("f.npz", ONES[1:], SLAB), "field has shape (2, 4, 5); (..., 3, 4, 5) is needed"),
    "name": (("f.npz", ONES, SLAB, "a b"), "name is 'a b'; give letters, digits and underscores"),
    "ghosts": (("f.npz", ONES, pm.Mesh((1, 2, 3), (1.0, 1, 1), ghosts=1)), "field has shape"),
    "part": (("f.npz", np.ones((1, 2)), pm.Mesh((1, 2), (1.0, 1), ghosts=1)), "fold ghosts, and write the whole mesh"),
    "folder": ((".", ONES, SLAB), "give a name that ends in"),
    "triclinic": (("f.vti", ONES, TILTED), "a rectangular mesh, and this box is triclinic: write .h5 or .npz"),
    "plane": (("f.mrc", np.ones((2, 3, 4)), PLANE), "3 axes and one value per node, this one 2 axes and 2 components"),
    "turned": (("f.mrc", ONES, pm.Mesh((3, 4, 5), [[1, 1, 0], [0, 1, 0], [0, 0, 1]])), "turn the box, or write .h5"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_cannot_be_written_is_said_before(case, tmp_path, monkeypatch):
    (path, values, mesh, *name), message = ERRORS[case]
    needs(path[1:] if path[1:] in LIBRARIES else ".npz")
    monkeypatch.chdir(tmp_path)
    if path.endswith((".vti", ".mrc")):
        needs(path[-4:])
    with pytest.raises(ValueError, match=re.escape(message)):
        files.write_field(path, values, mesh, name=(name or ["field"])[0])
    assert not list(tmp_path.iterdir())


def test_files_are_kept_unless_the_caller_says_otherwise(tmp_path):
    path = tmp_path / "new" / "f.npz"
    files.write_field(path, ONES, SLAB)
    for call in (lambda: files.write_field(path, ONES, SLAB), lambda: tables.check_table(path)):
        with pytest.raises(ValueError, match="f.npz exists: give another name, or overwrite it"):
            call()
    files.write_field(path, 2 * ONES, SLAB, overwrite=True)
    assert files.read_field(path).values.max() == 2
    with pytest.raises(ValueError, match="f.npz cannot be written to"):
        files.write_field(path / "below.npz", ONES, SLAB)
    with pytest.raises(TypeError, match="field is a ndarray that makes no array of numbers; give"):
        files.write_field(tmp_path / "g.npz", np.full(SLAB.shape, "a"), SLAB)
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(ValueError, match="folder.npz is a folder: give the name of a file"):
        files.write_field(tmp_path / "folder.npz", ONES, SLAB, overwrite=True)


NODES = dict(shape=[3, 4, 5], box=np.eye(3), origin=[0] * 3, periodic=[1] * 3, offset=[0] * 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "none.npz does not exist, or is no file"),
        ({"a": ONES}, "it lacks shape, box, origin, periodic, offset, which fields have"),
        ({"a": ONES, "b": ONES, **NODES}, "it has a, b beside its mesh; one field is needed"),
        ({"a": ONES[1:], **NODES}, "has values (2, 4, 5) of float64 on nodes (3, 4, 5)"),
    ],
)  # fmt: skip
def test_what_is_no_field_is_said(content, message, tmp_path):
    path = tmp_path / "none.npz"
    if content is not None:
        np.savez(path, **content)
    with pytest.raises(ValueError, match=re.escape(message)):
        files.read_field(path)


def test_formats_that_are_not_read_or_known(tmp_path):
    with pytest.raises(ValueError, match="is for programs that show it; fields are read from .npz, .h5"):
        files.read_field(tmp_path / "f.vti")
    with pytest.raises(ValueError, match="out is .*t.doc'; give a name that ends in .npz, .h5, .hdf5, .csv, .parquet"):
        files.check_table(tmp_path / "t.doc")


@pytest.mark.parametrize("suffix", [".h5", ".vti", ".mrc"])
def test_a_missing_library_is_named_before_anything_is_computed(suffix, tmp_path, monkeypatch):
    module = {".h5": "h5py", ".vti": "pyevtk.hl", ".mrc": "mrcfile"}[suffix]
    monkeypatch.setitem(__import__("sys").modules, module, None)
    name = module.partition(".")[0]
    with pytest.raises(ImportError, match=rf"a field {suffix} needs {name}: pip install .*'particlemesh\[files\]'"):
        files.check_field(tmp_path / f"f{suffix}", SLAB)


def test_the_formats_are_distinguished_by_their_endings():
    for formats in (fields.FORMATS, tables.FORMATS):
        endings = [suffix for form in formats for suffix in form.suffixes]
        assert len(set(endings)) == len(endings)
