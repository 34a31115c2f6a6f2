# SPDX-License-Identifier: BSD-3-Clause
"""Files as other programs write them are read as they are meant, or refused with what to do."""

import re

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps.files import open_particles, read_particles

XYZ = [[1.0, 2.0, 3.0], [4.0, 5.5, 6.0]]
ROWS = "1,2,3,7\n4,5.5,6,8\n"
# What a table has, and options; all are the same particles.
TABLES = {
    "mark of the encoding and semicolons": ("\ufeffx;y;z;q\n" + ROWS.replace(",", ";"), {"values": "q"}),
    "comments": ("# made by\nx,y,z,q\n1,2,3,7 # first\n# between\n4,5.5,6,8\n", {"values": "q"}),
    "signs of comments": ("% x y z q\n" + ROWS.replace(",", " "), {"values": "q"}),
    "index with tabs": ("\tx\ty\tz\tq\n0\t1\t2\t3\t7\n1\t4\t5.5\t6\t8\n", {"values": "q"}),
    "index without name": (",x,y,z,q\n0,1,2,3,7\n1,4,5.5,6,8\n", {"values": "q"}),
    "commas in names": ("x\ty\tz\tq, in e\n" + ROWS.replace(",", "\t"), {"values": "q, in e"}),
    "counted names": ("0,1,2,3\n" + "1.0,2,3,7\n4,5.5,6,8\n", {"positions": "0,1,2", "values": "3"}),
    "no names": (ROWS, {"positions": "0,1,2", "values": "3"}),
    "blank lines": ("\nx,y,z,q\n  \n1,2,3,7\n \n4,5.5,6,8\n\n  \n", {"values": "q"}),
    "ends of lines": (("x,y,z,q\n" + ROWS).replace("\n", "\r\n"), {"values": "q"}),
    "missing where it is not needed": ("x,y,z,a,q\n1,2,3,,7\n4,5.5,6,NA,8\n", {"values": "q"}),
    "ends with commas": ("x,y,z,q,\n1,2,3,7,\n4,5.5,6,8,\n", {"values": "q"}),
    "letters of Latin-1": (b"x,y,z,q,Gr\xf6\xdfe\n" + ROWS.replace("\n", ",1\n").encode(), {"values": "q"}),
    "words in quotes": ('"x","y","z","q","a,b"\n"1",2,3,7,"c\nd"\n4,5.5,6,8,""\n', {"values": "q"}),
    "large and small letters": ("X,x,y,z,q\n9,1,2,3,7\n9,4,5.5,6,8\n", {"values": "q"}),
}


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("case", TABLES)
def test_tables_of_other_programs(case, tmp_path):
    content, options = TABLES[case]
    particles = read_particles(written(tmp_path / "few.csv", content), **options)
    np.testing.assert_array_equal(particles.positions, XYZ)
    np.testing.assert_array_equal(particles.values, [7, 8])


REFUSED = {
    "decimal commas": ("x;y;z\n1,5;2;3\n", "it has decimal commas, such as 1,5: write decimal points"),
    "decimal commas between commas": ("x,y\n1,5,2,5\n", "its first row has 4 entries, and there are 2 names"),
    "rows with names": ("x y\na 1 2\nb 3 4\n", "its first row has 3 entries, and there are 2 names"),
    "more names": ("x y z q\n1 2 3\n", "its first row has 3 entries, and there are 4 names"),
    "words and numbers": ("Ar 1 2 3\nAr 4 5 6\n", "its first line may be names or a row: Ar, 1, 2, 3; put names"),
    "missing": ("x,y,q\n1,2,\n3,4,5\n", "could not convert string '' to float64 at row 0, column 3."),
    "exponents of Fortran": ("1.0D+00 2.0\n", "could not convert string '1.0D+00'"),
    "UTF-16": ("x,y\n1,2\n".encode("utf-16"), "it is text in UTF-16: write it in UTF-8"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_tables_that_are_not_clear_are_refused(case, tmp_path):
    content, said = REFUSED[case]
    options = {"positions": "0,1"} if case.startswith("exp") else {"values": "q"} if case == "missing" else {}
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        read_particles(written(tmp_path / "few.csv", content), **options)
    assert "\n" not in str(caught.value) and ".." not in str(caught.value)


@pytest.fixture
def parquet():
    arrow, library = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    return arrow, library.write_table


def test_lists_and_other_things_in_parquet(parquet, tmp_path):
    arrow, write = parquet
    columns = {
        "position": arrow.array([*XYZ, [0.0, 0, 0]], arrow.list_(arrow.float64(), 3)), "q": [7.0, 8.0, 9.0],
        "bonds": [[1], [], [0, 1]], "name": ["a", "b", "c"], "time": arrow.array([1, 2, 3], arrow.timestamp("s")),
        "some": [1.0, None, 2.0], "gone": arrow.array([[1.0], None, [2.0]], arrow.list_(arrow.float64(), 1)),
        "nested": [{"a": 1}] * 3,
    }  # fmt: skip
    write(arrow.table(columns), tmp_path / "few.parquet", row_group_size=2)
    with open_particles(tmp_path / "few.parquet", values="q") as particles:
        assert set(particles.columns) == {"position", "q", "some", "gone"} and particles.count == 3
        parts = list(particles.chunks(size=2))
    np.testing.assert_array_equal(np.concatenate([part.positions for part in parts]), [*XYZ, [0, 0, 0]])
    for name in ("some", "gone"):
        with pytest.raises(ValueError, match=f"column {name} has rows without a value"):
            read_particles(tmp_path / "few.parquet", values=name)


EXTENDED = {
    "charge first": ('Properties=charge:R:1:pos:R:3:species:S:1', "7 1 2 3 O\n8 4 5.5 6 H\n", "charges"),
    "types of particles": ("Properties=id:I:1:species:S:1:pos:R:3:w:R:1", "1 A 1 2 3 7\n2 B 4 5.5 6 8\n", "w"),
    "numbers of types": ("Properties=species:S:1:pos:R:3:w:R:1", "1 1 2 3 7\n2 4 5.5 6 8\n", "w"),
    "no species": ("Properties=pos:R:3:w:R:1", "1 2 3 7\n4 5.5 6 8\n", "w"),
}  # fmt: skip


@pytest.mark.parametrize("case", EXTENDED)
def test_properties_in_any_order(case, tmp_path):
    pytest.importorskip("ase", reason="ASE is not installed")
    properties, rows, name = EXTENDED[case]
    text = f'2\nLattice="5 0 0 0 6 0 0 0 7" pbc="T F T" Origin="1 1 1" {properties} title="\xc5"\n{rows}'
    path = written(tmp_path / "few.xyz", text.encode("latin-1"))
    particles = read_particles(path, values=name)
    np.testing.assert_array_equal(particles.positions, XYZ)
    np.testing.assert_array_equal(particles.values, [7, 8])
    assert particles.box == pm.Box([5.0, 6.0, 7.0], origin=[1.0] * 3, periodic=(True, False, True))


def test_text_with_types_and_without_properties(tmp_path):
    pytest.importorskip("ase", reason="ASE is not installed")
    path = written(tmp_path / "few.xyz", "2\nfrom a simulation\nA 1 2 3\n2 4 5.5 6\n")
    np.testing.assert_array_equal(read_particles(path).positions, XYZ)
    with pytest.raises(ValueError, match=r"no column masses \(they follow from the names of particles if all are elem"):
        read_particles(path, values="masses")


GRO = """of GROMACS
2
    1SOL     OW    1   0.100   0.200   0.300  0.1000  0.2000  0.3000
    1SOL    HW1    2   0.400   0.550   0.600  0.4000  0.5000  0.6000
   1.00000   2.00000   3.00000
"""


def test_velocities_and_frames_in_gro(tmp_path):
    pytest.importorskip("MDAnalysis", reason="MDAnalysis is not installed")
    particles = read_particles(written(tmp_path / "few.gro", GRO), values="velocities")
    np.testing.assert_allclose(particles.positions, XYZ, atol=1e-6)
    np.testing.assert_allclose(particles.values, [[1, 4], [2, 5], [3, 6]], atol=1e-6)
    np.testing.assert_allclose(particles.box.matrix, np.diag([10.0, 20.0, 30.0]), atol=1e-5)
    for text, said in (
        (GRO + GRO, "it has more than one frame"), (GRO.rpartition("   1.0")[0], "it ends early"),
        (GRO.replace("\n2\n", "\nx\n"), "its second line is 'x'; a number of atoms is needed"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            read_particles(written(tmp_path / "few.gro", text))


@pytest.mark.parametrize(("lengths", "box"), [("   50.000   60.000   70.000", [50.0, 60, 70]),
                                              ("    1.000    1.000    1.000", None)])  # fmt: skip
def test_a_cell_of_one_is_none_in_pdb(lengths, box, tmp_path):
    pytest.importorskip("MDAnalysis", reason="MDAnalysis is not installed")
    atom = "ATOM      1  O   HOH A   1       1.000   2.000   3.000  1.00  0.00           O\nEND\n"
    path = written(tmp_path / "few.pdb", f"CRYST1{lengths}  90.00  90.00  90.00 P 1           1\n{atom}")
    particles = read_particles(path)
    np.testing.assert_allclose(particles.positions, XYZ[:1])
    assert particles.box is None if box is None else np.allclose(particles.box.lengths, box)


def test_particles_that_come_and_go_in_gsd(tmp_path):
    hoomd = pytest.importorskip("gsd.hoomd", reason="gsd is not installed")
    counts, x = (2, 5, 3), np.random.default_rng(1).random((5, 3)).astype(np.float32)
    with hoomd.open(tmp_path / "few.gsd", "w") as file:
        for count in counts:
            frame = hoomd.Frame()
            frame.configuration.box = [3.0 + count, 4, 5, 0, 0, 0] if count > 2 else [0] * 6
            frame.particles.N, frame.particles.position = count, x[:count]
            frame.log = {} if count == 5 else {"particles/energy": np.arange(float(count)), "total": np.ones(1)}
            file.append(frame)
    with open_particles(tmp_path / "few.gsd", values="particles/energy") as particles:
        assert "total" not in particles.columns and particles.frames == 3
        for number in (0, 2):
            (chunk,) = particles.chunks(frame=number)
            np.testing.assert_array_equal(chunk.values, np.arange(counts[number]))
        with pytest.raises(ValueError, match="frame 1 has 5 particles and 2 rows of particles/energy"):
            list(particles.chunks(frame=1))
    for number, count in enumerate(counts):
        frame = read_particles(tmp_path / "few.gsd", frame=number)
        np.testing.assert_array_equal(frame.positions, x[:count])
        assert frame.box is None if count == 2 else frame.box.lengths.tolist() == [3 + count, 4, 5]
    with hoomd.open(tmp_path / "none.gsd", "w"):
        pass
    with pytest.raises(ValueError, match="none.gsd: it has no frames"):
        open_particles(tmp_path / "none.gsd")


def test_a_damaged_number_of_particles_fills_no_memory(tmp_path):
    layer = pytest.importorskip("gsd.fl", reason="gsd is not installed")
    with layer.open(tmp_path / "f.gsd", "w", application="", schema="hoomd", schema_version=[1, 4]) as file:
        file.write_chunk("particles/N", np.array([2**31], np.uint32))
        file.end_frame()
    with pytest.raises(ValueError, match="frame 0 has 2,147,483,648 particles, and the file [0-9,]+ bytes"):
        open_particles(tmp_path / "f.gsd")


def test_names_in_archives(tmp_path):
    np.savez(tmp_path / "f.npz", **{"x": np.ones(4), "y": np.ones(4), "X": np.zeros(4), "a,b": np.arange(4.0)})
    particles = read_particles(tmp_path / "f.npz", values="a,b")
    assert particles.positions.tolist() == [[1, 1]] * 4 and particles.values.tolist() == [0, 1, 2, 3]
    np.savez(tmp_path / "g.npz", positions=np.ones((4, 3)), box=np.ones(3), periodic="xy")
    with pytest.raises(ValueError, match="periodic is 'xy'; one flag for each axis is needed"):
        read_particles(tmp_path / "g.npz")
