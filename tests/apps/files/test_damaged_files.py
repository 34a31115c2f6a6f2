# SPDX-License-Identifier: BSD-3-Clause
"""Damaged files end in one line and exit code 2, or are read; they leave no half of an output."""

import numpy as np
import pytest
import typer

import particlemesh as pm
from mutations import mutated
from particlemesh.apps import files
from particlemesh.command import file_commands

random = np.random.default_rng(3)
X = random.random((30, 3))
MESH = pm.Mesh((6, 6, 6), (1.0, 1.0, 1.0))
WHERE, OPTIONS = {"box": "1,1,1"}, {"shape": "6", "values": "q"}
FEW, ALL, IN_A_PROCESS = 25, 2000, 3  # the last: of those that HDF5's library is tried with in a process of its own


def npz(path):
    np.savez(path, positions=X, q=X[:, 0], box=np.ones(3))
    return file_commands.spread, OPTIONS


def compressed(path):
    np.savez_compressed(path, positions=X, q=X[:, 0], box=np.ones(3))
    return file_commands.spread, OPTIONS


def csv(path):
    np.savetxt(path, np.c_[X, X[:, 0]], delimiter=",", header="x,y,z,q", comments="", fmt="%.4f")
    return file_commands.spread, WHERE | OPTIONS


def table(path):
    with files.writing_table(path) as rows:
        rows.append({"position": X, "q": X[:, 0]})
    return file_commands.spread, WHERE | OPTIONS


def field(path):
    files.write_field(path, random.random(MESH.shape), MESH)
    return file_commands.spectrum, {"of_field": True}


def others(path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file["positions"], file["q"] = X, X[:, 0]
    return file_commands.spread, WHERE | OPTIONS


CASES = {
    "archive": (npz, ".npz"), "compressed": (compressed, ".npz"), "text": (csv, ".csv"), "table": (table, ".h5"),
    "field": (field, ".npz"), "field in HDF5": (field, ".h5"), "others": (others, ".h5"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_damage_is_reported_in_one_line(case, request, tmp_path, monkeypatch, capsys):
    make, suffix = CASES[case]
    if suffix == ".h5":
        pytest.importorskip("h5py")
    monkeypatch.chdir(tmp_path)
    whole, bad = tmp_path / f"whole{suffix}", tmp_path / f"bad{suffix}"
    command, options = make(whole)
    out = tmp_path / ("new.csv" if command is file_commands.spectrum else "new.npz")
    raw = whole.read_bytes()
    thorough = request.config.getoption("--thorough")
    if case == "others":
        seeds = ALL // 10 if thorough else IN_A_PROCESS
    else:
        seeds = ALL if thorough else FEW
    refused = 0
    for seed in (None, *range(seeds)):
        damaged = raw if seed is None else mutated(raw, seed)
        bad.write_bytes(damaged)
        try:
            command(bad, out=out, **options)
            code = 0
        except typer.Exit as end:
            code = end.exit_code
        out_lines, said = (text.splitlines() for text in capsys.readouterr())
        left = set(tmp_path.iterdir()) - {whole, bad}
        if code == 0:
            assert left == {out} and len(out_lines) > 3 and not said, seed
            assert damaged == raw or suffix != ".h5" or case == "others", seed  # a checksum sees every change
            out.unlink()
        else:
            refused += 1
            assert seed is not None and code == 2 and len(said) == 1 and said[0].startswith("particlemesh s"), seed
            assert not left and not out_lines, seed
    assert refused > seeds // 4 or case == "others"  # whose unused bytes are many
