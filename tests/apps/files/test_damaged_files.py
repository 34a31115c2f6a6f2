# SPDX-License-Identifier: BSD-3-Clause
"""Damaged files end in one line and exit code 2, or are read; they leave no half of an output and nothing else.

With ``--thorough`` there are 5,000 files over all readers, otherwise a few of each.
"""

import inspect
import warnings
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
import typer

import particlemesh as pm
from mutations import mutated
from particlemesh.apps import files
from particlemesh.apps.files.particles import FORMATS
from particlemesh.apps.files.trajectory import Frame, writer
from particlemesh.command import cli

random = np.random.default_rng(3)
X = random.random((30, 3))
MESH = pm.Mesh((6, 6, 6), (1.0, 1.0, 1.0))
WHERE, OPTIONS = {"box": "1,1,1"}, {"shape": "6", "values": "q"}
FEW, ALL = 8, 5000


def run(command, file, **options):
    """Call a command with a context in which these options are given, without parsing them thousands of times."""
    names = [name for name in inspect.signature(command).parameters if name != "context"]

    def source(name):
        return SimpleNamespace(name="COMMANDLINE" if name in {"file", *options} else "DEFAULT")

    command(SimpleNamespace(params=dict.fromkeys(names), get_parameter_source=source), file, **options)


def npz(path):
    np.savez(path, positions=X, q=X[:, 0], box=np.ones(3))
    return cli.spread, OPTIONS


def compressed(path):
    np.savez_compressed(path, positions=X, q=X[:, 0], box=np.ones(3))
    return cli.spread, OPTIONS


def csv(path):
    np.savetxt(path, np.c_[X, X[:, 0]], delimiter=",", header="x,y,z,q", comments="", fmt="%.4f")
    return cli.spread, WHERE | OPTIONS


def table(path):
    with files.writing_table(path) as rows:
        rows.append({"position": X, "q": X[:, 0]})
    return cli.spread, WHERE | OPTIONS


def field(path):
    files.write_field(path, random.random(MESH.shape), MESH)
    return cli.spectrum, {"of_field": True}


def others(path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file["positions"], file["q"] = X, X[:, 0]
    return cli.spread, WHERE | OPTIONS


def chunked(path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file.create_dataset("positions", data=X, chunks=(8, 3), compression="gzip", shuffle=True)
        file["q"] = X[:, 0]
        file["box"] = np.ones(3)
    return cli.spread, OPTIONS


def openpmd(path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file.attrs.update(openPMD="1.1.0", meshesPath="fields/", particlesPath="particles/", basePath="/data/%T/")
        for axis, name in enumerate("xyz"):
            file[f"data/0/particles/e/position/{name}"] = X[:, axis]
        file["data/0/particles/e/q"], file["data/0/particles/e/weighting"] = X[:, 0], X[:, 1]
        file["data/0/particles/e/q"].attrs.update(macroWeighted=0, weightingPower=1.0)
        rho = file.create_dataset("data/0/fields/rho", data=np.ones((6, 6, 6)))
        rho.attrs.update(geometry="cartesian", gridSpacing=[1 / 6] * 3, gridGlobalOffset=[0.0] * 3, position=[0.0] * 3)
        file["data/0/fields"].attrs["fieldBoundary"] = ["periodic"] * 6
    return cli.spread, OPTIONS


def parquet(path):
    arrow, library = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"x": X[:, 0], "y": X[:, 1], "z": X[:, 2], "q": X[:, 0]}
    library.write_table(arrow.table(columns), path, row_group_size=9)
    return cli.spread, WHERE | OPTIONS


def trajectory(path):
    """Two frames of a writer of ours."""
    first = Frame(0, 0.0, 0.5 * X, pm.Box([1.0] * 3), radii=X[:, 0].copy(), velocities=X)
    try:
        with writer(path, first) as file:
            file.write(first)
            file.write(first._replace(step=1, positions=X))
    except ImportError as missing:
        pytest.skip(str(missing))
    return cli.spread, {
        "shape": "6",
        "values": "diameter" if path.suffix == ".gsd" else "radius",
        "frames": "all",
    }


def points(path):
    folder = path.parent / "points"
    folder.mkdir()
    trajectory(folder / "whole.vtu")
    path.write_bytes((folder / "whole_0000000001.vtu").read_bytes())
    return cli.spread, {"shape": "6", "values": "radius"}


def legacy(path):
    meshio = pytest.importorskip("meshio")
    meshio.Mesh(X, [("vertex", np.arange(30)[:, None])], point_data={"q": X[:, 0]}).write(path)
    return cli.spread, WHERE | OPTIONS


def series(path):
    trajectory(path.parent / "whole.vtu")
    return cli.spread, {"shape": "6", "values": "radius", "frames": "all"}


def dump(path):
    pytest.importorskip("ase.io")
    rows = "\n".join(f"{n} 1 {a} {b} {c} {a}" for n, (a, b, c) in enumerate(X))
    frame = (
        f"ITEM: NUMBER OF ATOMS\n30\nITEM: BOX BOUNDS pp pp ff\n0 1\n0 1\n0 1\nITEM: ATOMS id type x y z q\n{rows}\n"
    )
    path.write_text("".join(f"ITEM: TIMESTEP\n{step}\n{frame}" for step in (0, 10)))
    return cli.spread, OPTIONS | {"frames": "all"}


def data(path):
    pytest.importorskip("ase.io")
    rows = "\n".join(f"{n + 1} 1 {a} {a} {b} {c}" for n, (a, b, c) in enumerate(X))
    head = "made by a test\n\n30 atoms\n1 atom types\n\n0 1 xlo xhi\n0 1 ylo yhi\n0 1 zlo zhi\n\n"
    path.write_text(f"{head}Atoms # charge\n\n{rows}\n")
    return cli.spread, {"shape": "6", "values": "initial_charges"}


def molecules(path):
    """A structure, or three frames of a trajectory beside one."""
    library = pytest.importorskip("MDAnalysis")
    atoms = library.Universe.empty(30, trajectory=True)
    for name, value in (("names", ["A"] * 30), ("resnames", ["R"]), ("resids", [1]), ("tempfactors", X[:, 0].round(2))):
        atoms.add_TopologyAttr(name, value)
    atoms.atoms.positions = 10 * X
    atoms.dimensions = [10, 10, 10, 90, 90, 90]
    alone, topology = path.suffix in (".gro", ".pdb"), path.parent / "topology.gro"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        atoms.atoms.write(str(path if alone else topology))
        if not alone:
            with library.Writer(str(path), 30) as out:
                for _ in range(3):
                    out.write(atoms.atoms)
    return cli.spread, {"shape": "6"} | ({} if alone else {"topology": topology, "frames": "all"})


CASES = {
    "archive": (npz, ".npz"), "compressed": (compressed, ".npz"), "text": (csv, ".csv"), "table": (table, ".h5"),
    "field": (field, ".npz"), "field in HDF5": (field, ".h5"), "field in MRC": (field, ".mrc"),
    "others": (others, ".h5"), "chunked": (chunked, ".hdf5"), "openPMD": (openpmd, ".h5"), "H5MD": (trajectory, ".h5"),
    "GSD": (trajectory, ".gsd"), "XYZ": (trajectory, ".xyz"), "dump": (dump, ".dump"),
    "data": (data, ".data"), "points": (points, ".vtu"),
    "legacy points": (legacy, ".vtk"), "series": (series, ".vtu.series"), "parquet": (parquet, ".parquet"),
    "structure": (molecules, ".gro"), "PDB": (molecules, ".pdb"), "XTC": (molecules, ".xtc"),
    "TRR": (molecules, ".trr"), "DCD": (molecules, ".dcd"),
}  # fmt: skip
UNSEEN = (
    "others",
    "chunked",
    "openPMD",
    "H5MD",
    "GSD",
    "points",
    "XTC",
    "TRR",
    "DCD",
    "XYZ",
    "dump",
    "data",
    "PDB",
    "structure",
)


@pytest.mark.in_processes
def test_a_cut_trajectory_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, capfd):
    """Readers of MDAnalysis print a traceback when they are collected, and write files of offsets."""
    monkeypatch.chdir(tmp_path)
    options = molecules(tmp_path / "whole.xtc")[1]
    whole, bad = tmp_path / "whole.xtc", tmp_path / "bad.xtc"
    bad.write_bytes(whole.read_bytes()[:40])
    with pytest.raises(typer.Exit):
        run(cli.spread, bad, out=tmp_path / "new.npz", **options)
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 1 and "bad.xtc" in said[0] and said[0].endswith("Is the file whole?")
    assert len(files.read_particles(whole, topology=options["topology"]).positions) == 30
    assert {path.name for path in tmp_path.iterdir()} == {"whole.xtc", "bad.xtc", "topology.gro"}


@pytest.mark.parametrize("case", ["text", "XYZ", "dump", "data"])
def test_text_without_an_end_is_reported(case, tmp_path, capsys, monkeypatch):
    make, suffix = CASES[case]
    path = tmp_path / f"a{suffix}"
    try:
        make(path)
    except ImportError as missing:
        pytest.skip(str(missing))
    assert len(files.read_particles(path).positions) == 30
    data = path.read_bytes().rstrip()
    path.write_bytes(data[:-1])
    with pytest.warns(UserWarning, match=rf"the last line of {path} has no end: it may be cut"):
        files.read_particles(path)
    monkeypatch.chdir(tmp_path)
    run(cli.spread, path, shape="6", box="1,1,1", out=tmp_path / "new.npz")
    assert capsys.readouterr().err == f"particlemesh spread: the last line of {path} has no end: it may be cut\n"
    path.write_bytes(b"\n".join(data.split(b"\n")[:-3]) + b"\n")
    if case == "text":  # it does not say how many
        assert len(files.read_particles(path).positions) == 27
        return
    with pytest.raises(ValueError, match=str(path)):
        files.read_particles(path)


def test_a_member_that_is_no_array_is_one_line(tmp_path):
    """NumPy returns the bytes of such a member."""
    files.write_field(tmp_path / "a.npz", random.random(MESH.shape), MESH, name="rho")
    with zipfile.ZipFile(tmp_path / "a.npz") as old, zipfile.ZipFile(tmp_path / "b.npz", "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name) if name != "rho.npy" else b"\x1b[31mx")
    with pytest.raises(ValueError, match=r"b.npz: it has values \(\) of \S+ on nodes \(6, 6, 6\)"):
        files.read_field(tmp_path / "b.npz")


def test_every_reader_has_a_case():
    covered = {suffix for _, suffix in CASES.values()}
    for form in FORMATS:
        assert any(suffix.endswith(tuple(form.suffixes)) for suffix in covered), form


@pytest.mark.parametrize("case", CASES)
def test_damage_is_reported_in_one_line(case, request, tmp_path, monkeypatch, capsys):
    make, suffix = CASES[case]
    monkeypatch.chdir(tmp_path)
    whole, bad = tmp_path / f"whole{suffix}", tmp_path / f"bad{suffix}"
    try:
        command, options = make(whole)
    except ImportError as missing:
        pytest.skip(str(missing))
    out = tmp_path / ("new.csv" if command is cli.spectrum else "new.npz")
    raw, there = whole.read_bytes(), {*tmp_path.iterdir(), bad}
    thorough = request.config.getoption("--thorough")
    seeds = -(-ALL // len(CASES)) if thorough else FEW
    refused = 0
    for seed in (None, *range(seeds)):
        damaged = raw if seed is None else mutated(raw, seed)
        bad.write_bytes(damaged)
        try:
            run(command, bad, out=out, **options)
            code = 0
        except typer.Exit as end:
            code = end.exit_code
        out_lines, said = (text.splitlines() for text in capsys.readouterr())
        said = [line for line in said if "has no end: it may be cut" not in line]
        left = set(tmp_path.iterdir()) - there
        if code == 0:
            assert left == {out} and len(out_lines) > 3 and not said, seed
            sealed = case in ("table", "field in HDF5")
            assert damaged == raw or not sealed, seed  # a checksum sees every change
            out.unlink()
        else:
            refused += 1
            assert seed is not None, said
            assert code == 2 and len(said) == 1 and said[0].startswith("particlemesh s"), (seed, said)
            assert said[0].isprintable() and "\\x" not in said[0] and len(said[0]) < 900, (seed, said)
            assert not left and not out_lines, seed
    if thorough:
        with capsys.disabled():
            print(f"{case}: {refused} of {seeds} damaged files were refused")  # noqa: T201
    assert refused > seeds // 4 or case in UNSEEN
