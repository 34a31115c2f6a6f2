# SPDX-License-Identifier: BSD-3-Clause
"""Numbers are those that a file has for this frame, this element and this particle; nothing is guessed in silence."""

import json
import re

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps.files import open_particles, read_particles

random = np.random.default_rng(8)
ATOM = "ATOM  {:5d} {:<4s} ALA A   1    {:8.3f}{:8.3f}{:8.3f}{:6.2f}{:6.2f}          {:>2s}\n"


@pytest.fixture
def h5py():
    return pytest.importorskip("h5py", reason="h5py is not installed")


def pdb(path, x, occupancies, factors, elements):
    """Write models (K, N, 3) with their own numbers (K, N)."""
    text = ""
    for model in range(len(x)):
        rows = zip(x[model], occupancies[model], factors[model], elements, strict=True)
        atoms = (ATOM.format(n, "C", *at, o, b, element) for n, (at, o, b, element) in enumerate(rows))
        text += f"MODEL {model + 1}\n{''.join(atoms)}ENDMDL\n"
    path.write_text(f"{text}END\n")
    return path


def test_numbers_of_a_pdb_are_those_of_the_model(tmp_path):
    pytest.importorskip("MDAnalysis", reason="MDAnalysis is not installed")
    x, (occupancies, factors) = random.random((3, 4, 3)).round(3), random.random((2, 3, 4)).round(2)
    path = pdb(tmp_path / "few.pdb", x, occupancies, factors, ["C", "CL", "H", "Na"])
    for column, values in (("tempfactors", factors), ("occupancies", occupancies)):
        with open_particles(path, values=column) as particles:
            for frame in (2, 0, 1):
                (chunk,) = particles.chunks(frame=frame)
                np.testing.assert_allclose(chunk.positions, x[frame], atol=1e-6)
                np.testing.assert_allclose(chunk.values, values[frame], atol=1e-6)
    masses = read_particles(path, values="masses", frame=0).values
    np.testing.assert_allclose(masses, [12.011, 35.45, 1.008, 22.98977], rtol=1e-3)


@pytest.mark.parametrize("elements", [["C", ""], ["C", "Xx"], ["", ""], None])
def test_masses_do_not_follow_from_names_of_atoms(elements, tmp_path):
    pytest.importorskip("MDAnalysis", reason="MDAnalysis is not installed")
    if elements is None:
        path, atom = tmp_path / "few.gro", "    1ALA  {:>5s}    1   0.126   1.624   1.679\n"
        path.write_text(f"beads\n3\n{''.join(map(atom.format, ('BB', 'SC1', 'W')))} 3.0 3.0 3.0\n")
    else:
        path = pdb(tmp_path / "few.pdb", np.ones((1, 2, 3)), np.ones((1, 2)), np.ones((1, 2)), elements)
    with pytest.raises(ValueError, match=r"has no column masses \(names of atoms do not say masses, but the elements"):
        read_particles(path, values="masses")


@pytest.mark.parametrize(("name", "begin", "end"), [("tempfactors", 60, 66), ("occupancies", 54, 60)])
def test_a_blank_field_of_a_pdb_is_no_number(name, begin, end, tmp_path):
    pytest.importorskip("MDAnalysis", reason="MDAnalysis is not installed")
    path = pdb(tmp_path / "few.pdb", np.ones((2, 2, 3)), np.ones((2, 2)), np.ones((2, 2)), ["C", "C"])
    assert read_particles(path, values=name, frame=0).values.tolist() == [1, 1]
    lines = path.read_text().splitlines(keepends=True)
    last = max(n for n, line in enumerate(lines) if line.startswith("ATOM"))
    lines[last] = lines[last][:begin] + " " * (end - begin) + lines[last][end:]
    path.write_text("".join(lines))
    with pytest.raises(ValueError, match=rf"has no column {name} \(a .pdb has it if the field is blank for no atom\)"):
        read_particles(path, values=name, frame=0)


def test_elements_are_read_in_any_letters_whatever_the_others_are(tmp_path):
    pytest.importorskip("ase", reason="ASE is not installed")
    rows = "CL .1 .2 .3\nh 1 1 1\nNa 2 2 2\n"
    for more, mass in (("", [35.45, 1.008, 22.98976928]), ("Big 2 2 2\n", None), ("X 2 2 2\n", None)):
        (tmp_path / "f.xyz").write_text(f'{3 + bool(more)}\nLattice="9 0 0 0 9 0 0 0 9"\n{rows}{more}')
        if mass is None:
            with pytest.raises(ValueError, match="has no column masses"):
                read_particles(tmp_path / "f.xyz", values="masses")
        else:
            np.testing.assert_allclose(read_particles(tmp_path / "f.xyz", values="masses").values, mass)
    properties = "Properties=species:S:1:pos:R:3:masses:R:1"
    (tmp_path / "f.xyz").write_text(f"2\n{properties}\nA 0 0 0 3\nB 1 1 1 4\n")
    np.testing.assert_array_equal(read_particles(tmp_path / "f.xyz", values="masses").values, [3, 4])


def test_a_series_names_files_below_its_folder(tmp_path):
    meshio = pytest.importorskip("meshio", reason="meshio is not installed")
    (tmp_path / "sub").mkdir()
    for k, name in enumerate(("v.vtu", "sub/v.vtu", "sub/w.vtu")):
        meshio.write(tmp_path / name, meshio.Mesh(np.full((2, 3), k + 0.5), [("vertex", [[0], [1]])]))
    path = tmp_path / "s.vtu.series"
    for names, said in (
        (["sub/v.vtu", "./v.vtu", "sub/w.vtu"], None), ([], "it lists no files"),
        (["../v.vtu"], r"it lists \.\./v.vtu, which is in another folder"),
        ([str(tmp_path / "v.vtu")], "which is in another folder"),
    ):  # fmt: skip
        path.write_text(json.dumps({"files": [{"name": name, "time": 0} for name in names]}))
        if said:
            with pytest.raises(ValueError, match=said):
                open_particles(path)
        else:
            assert [read_particles(path, frame=k).positions[0, 0] for k in range(3)] == [1.5, 0.5, 2.5]


DUMP = "ITEM: TIMESTEP\n0\nITEM: NUMBER OF ATOMS\n{}\nITEM: BOX BOUNDS{}\n{}\nITEM: ATOMS {}\n{}"
TILTED = "0 1.3 .3\n0 2 0\n0 3 0"


@pytest.mark.parametrize("flags", ["", " pp pp pp", " pp ff ss"])
@pytest.mark.parametrize("tilts", ["", " xy xz yz"])
def test_boxes_of_dumps_say_the_same_with_and_without_tilt(tilts, flags, tmp_path):
    bounds = TILTED if tilts else "0 1\n0 2\n0 3"
    (tmp_path / "f.dump").write_text(DUMP.format(1, tilts + flags, bounds, "id x y z", "1 .5 .5 .5\n"))
    rows = [[1.0, 0, 0], [0.3 if tilts else 0, 2, 0], [0, 0, 3]]
    with open_particles(tmp_path / "f.dump") as particles:
        box = particles.box()
        assert np.allclose(box.matrix, rows) and particles.unsaid == (not flags)
        assert box.periodic == tuple(flag == "pp" for flag in flags.split() or ["pp"] * 3)


def test_tilts_and_lattice_vectors_of_dumps(tmp_path):
    low, (xy, xz, yz) = np.array([1.0, -2, 0.5]), (-0.75, 0.5, -1.25)
    rows = np.array([[4, 0, 0], [xy, 5, 0], [xz, yz, 6]])
    corners = low + np.array([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)]) @ rows
    bounds = np.column_stack([corners.min(axis=0), corners.max(axis=0), (xy, xz, yz)])
    general = np.column_stack([rows[[1, 2, 0]], low])
    s = random.random((5, 3))
    for head, numbers, cell in (("xy xz yz", bounds, rows), ("abc origin", general, rows[[1, 2, 0]])):
        table = [f"{n} {a} {b} {c}" for n, (a, b, c) in enumerate(s.tolist())]
        bounds_text = "\n".join(" ".join(map(repr, row)) for row in numbers.tolist())
        text = DUMP.format(5, f" {head} pp pp pp", bounds_text, "id xs ys zs", "\n".join(table) + "\n")
        (tmp_path / "f.dump").write_text(text)
        read = read_particles(tmp_path / "f.dump")
        np.testing.assert_allclose(read.box.matrix, cell, atol=1e-12)
        np.testing.assert_allclose(read.positions, low + s @ cell, atol=1e-12)


def test_dumps_with_little_and_with_more_in_them(tmp_path):
    path, box = tmp_path / "f.dump", "0 1\n0 1\n0 1"
    whole = DUMP.format(1, " pp pp pp", box, "id x y z", "1 .1 .2 .3\n")
    path.write_text("ITEM: UNITS\nlj\nITEM: TIME\n0\n" + whole + "ITEM: TIME\n1\n" + whole.replace(".1", ".7"))
    with open_particles(path) as particles:
        assert particles.frames == 2 and [next(particles.chunks(frame=k)).positions[0, 0] for k in (0, 1)] == [0.1, 0.7]
    for text, said in (
        (DUMP.format(0, " pp pp pp", box, "id type x y z", ""), "has no particles"),
        (DUMP.format(2, " pp pp pp", box, "id x y z", "1 .1 .2 .3\n"), "it has 1 of 2 atoms"),
        (DUMP.format(1, " pp pp", box, "id x y z", "1 .1 .2 .3\n"), "BOX BOUNDS pp pp has"),
        (whole.replace("ATOMS id", "ENTRIES id"), "frame 0 has no ITEM: ATOMS"),
        ("words\n" + whole, "it does not begin with ITEM:"),
    ):  # fmt: skip
        path.write_text(text)
        with pytest.raises(ValueError, match=said):
            read_particles(path)


def test_data_files_have_their_own_digits_and_box(tmp_path):
    pytest.importorskip("ase", reason="ASE is not installed")
    text = (
        "by hand\n\n2 atoms\n1 atom types\n{}\nMasses\n\n1 3.7\n\nAtoms # {}\n\n2 1 5 .1 .2 .3{}\n1 1 -5 .4 .5 .6{}\n"
    )
    path, faces = tmp_path / "f.data", "-1 1 xlo xhi\n0 2 ylo yhi\n0 3 zlo zhi\n"
    path.write_text(text.format(faces, "charge", " 0 0 0", " 1 0 -1"))
    read = read_particles(path, values="masses,initial_charges")
    assert read.values.tolist() == [[3.7, 3.7], [-5, 5]] and read.box.lengths.tolist() == [2, 2, 3]
    np.testing.assert_allclose(read.positions, [[2.4, 0.5, -2.4], [0.1, 0.2, 0.3]], atol=1e-14)
    path.write_text(text.format("", "charge", " 0 0 0", " 1 0 -1"))
    read = read_particles(path)
    assert read.box is None
    np.testing.assert_allclose(read.positions, [[0.4, 0.5, 0.6], [0.1, 0.2, 0.3]], atol=1e-14)
    for style, row, read_as in (("", "7 5 ", "full"), ("", "", "atomic"), ("# full", "7 5 ", None)):
        header = f"by hand\n\n2 atoms\n1 atom types\n{faces}\nMasses\n\n1 3.7\n\nAtoms {style}\n\n"
        rows = [f"{n} {row[:2]}1 {row[2:]}.1 .2 .3\n" for n in (1, 2)]
        path.write_text(header + "".join(rows))
        with open_particles(path) as particles:
            assert particles.notes == [f"Atoms has no style: read as {read_as}"] * (read_as is not None)
    for wrong, style, said in (
        ("0 1 xlo xhi\n", "charge", "its box has the faces of x; lines of"),
        (faces, "sphere", "its atoms have the style sphere; atomic, charge, bond, angle, molecular, full are read"),
    ):
        path.write_text(text.format(wrong, style, "", ""))
        with pytest.raises(ValueError, match=said):
            read_particles(path)


def pic(h5py, path, records, meshes=None, offset="xyz"):
    """Write openPMD with three particles: records by name are values and attributes."""
    with h5py.File(path, "w") as file:
        file.attrs.update(openPMD="1.1.0", meshesPath="meshes/", particlesPath="particles/")
        species = file.create_group("data/0/particles/e")
        for k, axis in enumerate("xyz"):
            species[f"position/{axis}"] = np.arange(3.0) + k
        for axis in offset:
            species.create_group(f"positionOffset/{axis}").attrs.update(value=5.0, shape=np.array([3], np.uint64))
        for name, (values, attributes) in records.items():
            species.create_dataset(name, data=values).attrs.update(attributes)
        for name, (shape, spacing) in (meshes or {}).items():
            file.create_dataset(f"data/0/meshes/{name}", data=np.zeros(shape)).attrs.update(
                geometry="cartesian", dataOrder="C", axisLabels=["x", "y", "z"][: len(shape)], gridUnitSI=1.0,
                gridSpacing=spacing, gridGlobalOffset=[0.0] * len(shape), position=[0.0] * len(shape), unitSI=1.0,
            )  # fmt: skip
    return path


REAL, MACRO = dict(macroWeighted=0, weightingPower=1.0), dict(macroWeighted=1, weightingPower=1.0)
Q, M, WEIGHTS = np.array([1.0, 2, 3]), np.array([4.0, 5, 6]), np.array([2.0, 3, 4])


@pytest.mark.parametrize("second", [REAL, MACRO])
def test_a_product_has_the_weights_once(second, h5py, tmp_path):
    records = {"charge": (Q, REAL), "mass": (M, second), "weighting": (WEIGHTS, MACRO), "size": (Q, {})}
    path = pic(h5py, tmp_path / "f.h5", records)
    for values in ("charge*mass", "mass*charge", "charge*charge", "charge*weighting", "size*charge*mass"):
        with pytest.raises(ValueError, match=r"is multiplied by e/weighting already: give it alone, not times e/\w+"):
            read_particles(path, values=values)
    np.testing.assert_allclose(read_particles(path, values="charge*size").values, WEIGHTS * Q * Q)


def test_powers_of_weights_that_are_missing_are_noted(h5py, tmp_path):
    path = pic(h5py, tmp_path / "f.h5", {"charge": (Q, dict(macroWeighted=0)), "weighting": (WEIGHTS, MACRO)})
    with open_particles(path, values="charge") as particles:
        (note,) = particles.notes
        assert note.startswith("e/charge is that of one real particle, and the file has no weightingPower: charge*wei")
    np.testing.assert_allclose(read_particles(path, values="charge*weighting").values, WEIGHTS * Q)


def test_offsets_of_positions_have_their_components(h5py, tmp_path):
    read = read_particles(pic(h5py, tmp_path / "f.h5", {}))
    np.testing.assert_array_equal(read.positions, np.arange(3.0)[:, None] + np.arange(3) + 5)
    with pytest.raises(ValueError, match="e has a position of x, y, z and a positionOffset of x"):
        read_particles(pic(h5py, tmp_path / "g.h5", {}, offset="x"))


def test_meshes_with_different_boxes_are_a_choice(h5py, tmp_path):
    cube = {"b": ((4, 4, 4), [0.5] * 3), "a": ((8, 8, 8), [0.25] * 3), "line": ((4,), [3.0])}
    assert read_particles(pic(h5py, tmp_path / "f.h5", {}, cube)).box == pm.Box([2.0] * 3)
    path = pic(h5py, tmp_path / "f.h5", {}, cube | {"slice": ((2, 2, 2), [0.1] * 3)})
    with pytest.raises(ValueError, match="its meshes a and slice have different boxes: give --box"):
        read_particles(path)


@pytest.mark.parametrize("key", ["BoxSize", "Time", "NumFilesPerSnapshot", None])
def test_files_of_a_snapshot_have_one_header(key, h5py, tmp_path):
    for number in range(2):
        header = dict(BoxSize=10.0, Time=1.0, NumFilesPerSnapshot=2, NumPart_Total=[0, 4])
        if key is not None and number:
            header[key] = 3.0
        with h5py.File(tmp_path / f"s.{number}.hdf5", "w") as file:
            file.create_group("Header").attrs.update(header)
            file["PartType1/Coordinates"] = np.full((2, 3), number + 0.5)
    if key is None:
        assert read_particles(tmp_path / "s.0.hdf5").positions[:, 0].tolist() == [0.5, 0.5, 1.5, 1.5]
        return
    with pytest.raises(ValueError, match=rf"{key} is \S+, and 3.0 in s.1.hdf5: are these files of one snapshot"):
        open_particles(tmp_path / "s.0.hdf5")


@pytest.mark.parametrize("places", [(a, b, c) for a in (0, 1, 2) for b in (0, 1, 2) for c in (0, 1, 2)])
def test_a_box_is_in_datasets_and_attributes(places, h5py, tmp_path):
    settings = {"BoxSize": [1.0, 2, 3], "origin": [-1.0, 0, 0], "periodic": [0, 1, 0]}
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["pos"] = np.full((2, 3), 0.5)
        header = file.create_group("Header")
        for place, (name, value) in zip(places, settings.items(), strict=True):
            if place:
                (file if place == 1 else header).attrs[name] = value
            else:
                file[name] = value
    with open_particles(tmp_path / "f.h5") as particles:
        assert particles.box() == pm.Box([1.0, 2, 3], origin=[-1.0, 0, 0], periodic=(False, True, False))
        assert not particles.unsaid and set(particles.columns) == {"pos"}


@pytest.mark.parametrize("name", ["origin", "periodic", "box"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.5])
def test_settings_that_are_no_numbers_are_refused(bad, name, tmp_path):
    settings = {"box": [1.0, 1, 1], "origin": [0.0, 0, 0], "periodic": [1.0, 0, 1]}
    settings[name][1] = bad
    np.savez(tmp_path / "f.npz", positions=np.full((2, 3), 0.25), **settings)
    if name != "periodic" and bad == 0.5:
        assert getattr(read_particles(tmp_path / "f.npz").box, {"box": "lengths"}.get(name, name))[1] == 0.5
        return
    with pytest.raises(ValueError, match="the file's box cannot be used: .*(finite|one flag for each axis)"):
        read_particles(tmp_path / "f.npz")


@pytest.mark.parametrize("field", ["Lattice", "Origin"])
def test_boxes_that_are_no_numbers_are_named_as_such(field, tmp_path):
    pytest.importorskip("ase", reason="ASE is not installed")
    settings = {"Lattice": "1 0 0 0 2 0 0 0 3", "Origin": "0 0 0"}
    settings[field] = "nan" + settings[field][1:]
    words = " ".join(f'{name}="{value}"' for name, value in settings.items())
    (tmp_path / "f.xyz").write_text(f"1\n{words}\nH .1 .2 .3\n")
    with pytest.raises(ValueError, match="the file's box cannot be used: .* finite"):
        read_particles(tmp_path / "f.xyz")


def test_the_box_of_another_group_of_h5md_is_noted(h5py, tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file.create_group("h5md")
        for name in ("all", "solvent"):
            element = file.create_group(f"particles/{name}/position")
            element["value"], element["step"] = np.full((1, 2, 3), 0.5), [0]
        box = file.create_group("particles/all/box")
        box.attrs["boundary"] = ["periodic"] * 3
        box["edges"] = [1.0, 2, 3]
    for group, notes in (("all", []), ("solvent", ["the box is that of group all: solvent has none"])):
        with open_particles(tmp_path / "f.h5", positions=f"{group}/position") as particles:
            assert particles.box() == pm.Box([1.0, 2, 3]) and particles.notes == notes


def test_particles_of_h5md_may_be_absent(h5py, tmp_path):
    x, numbers = random.random((3, 6, 3)), np.array([[0, 1, 2, 3, 4, 5], [0, -1, 2, -1, 4, -1], [-1, -1, -1, 3, -1, 5]])
    for defined in (True, False):
        with h5py.File(tmp_path / "f.h5", "w") as file:
            file.create_group("h5md")
            for name, values in (("position", x), ("id", numbers), ("mass", x[..., 0])):
                element = file.create_group(f"particles/all/{name}")
                element["step"] = np.arange(3)
                more = {"fillvalue": -1} if name == "id" and defined else {}
                element.create_dataset("value", data=values, **more)
        for frame in range(3):
            there = numbers[frame] >= 0 if defined else np.ones(6, bool)
            with open_particles(tmp_path / "f.h5", values="mass") as particles:
                parts = list(particles.chunks(size=4, frame=frame))
                assert (particles.count is None) == defined
            np.testing.assert_array_equal(np.concatenate([part.positions for part in parts]), x[frame, there])
            np.testing.assert_array_equal(np.concatenate([part.values for part in parts]), x[frame, there, 0])


def test_a_text_that_ends_early_says_so(tmp_path):
    pytest.importorskip("ase", reason="ASE is not installed")
    (tmp_path / "f.data").write_text(
        "by hand\n\n2 atoms\n1 atom types\n0 1 xlo xhi\n0 1 ylo yhi\n0 1 zlo zhi\n\nAtoms\n"
    )
    with pytest.raises(
        ValueError, match=re.escape("f.data cannot be read as .data: it ends early. Is the file whole?")
    ):
        read_particles(tmp_path / "f.data")
