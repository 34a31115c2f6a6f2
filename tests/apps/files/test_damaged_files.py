# SPDX-License-Identifier: BSD-3-Clause
"""Damaged files end in one line and exit code 2, or are read; they leave no half of an output."""

import numpy as np
import pytest
from typer.testing import CliRunner

import particlemesh as pm
from mutations import mutated
from particlemesh.apps import files
from particlemesh.command import cli

random = np.random.default_rng(3)
X = random.random((30, 3))
MESH = pm.Mesh((6, 6, 6), (1.0, 1.0, 1.0))
OPTIONS = ("--box", "1,1,1", "--shape", "6", "--values", "q")
FEW, ALL, IN_A_PROCESS = 25, 2000, 3  # the last: of those that HDF5's library is tried with in a process of its own


def npz(path):
    np.savez(path, positions=X, q=X[:, 0], box=np.ones(3))
    return "spread", OPTIONS[2:]


def compressed(path):
    np.savez_compressed(path, positions=X, q=X[:, 0], box=np.ones(3))
    return "spread", OPTIONS[2:]


def csv(path):
    np.savetxt(path, np.c_[X, X[:, 0]], delimiter=",", header="x,y,z,q", comments="", fmt="%.4f")
    return "spread", OPTIONS


def table(path):
    with files.writing_table(path) as rows:
        rows.append({"position": X, "q": X[:, 0]})
    return "spread", OPTIONS


def field(path):
    files.write_field(path, random.random(MESH.shape), MESH)
    return "spectrum", ("--field",)


def others(path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file["positions"], file["q"] = X, X[:, 0]
    return "spread", OPTIONS


CASES = {
    "archive": (npz, ".npz"), "compressed": (compressed, ".npz"), "text": (csv, ".csv"), "table": (table, ".h5"),
    "field": (field, ".npz"), "field in HDF5": (field, ".h5"), "others": (others, ".h5"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_damage_is_told_in_one_line(case, request, tmp_path, monkeypatch):
    make, suffix = CASES[case]
    if suffix == ".h5":
        pytest.importorskip("h5py")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"whole{suffix}"
    command, options = make(path)
    words = [command, f"bad{suffix}", *options, "--out", "new.csv" if command == "spectrum" else "new.npz"]
    raw = path.read_bytes()
    (tmp_path / f"bad{suffix}").write_bytes(raw)
    assert CliRunner().invoke(cli.app, words).exit_code == 0
    (tmp_path / words[-1]).unlink()
    seeds = ALL if request.config.getoption("--thorough") else IN_A_PROCESS if case == "others" else FEW
    refused = 0
    for seed in range(seeds):
        damaged = mutated(raw, seed)
        (tmp_path / f"bad{suffix}").write_bytes(damaged)
        result = CliRunner().invoke(cli.app, words)
        here = {file.name for file in tmp_path.iterdir()} - {path.name, f"bad{suffix}"}
        if result.exit_code == 2:
            refused += 1
            assert len(result.output.splitlines()) == 1 and result.output.startswith(f"particlemesh {command}: "), seed
            assert not here, seed
        else:
            assert result.exit_code == 0, (seed, result.output, result.exception)
            assert here == {words[-1]}, seed
            if suffix == ".h5" and case != "others":  # the checksum has seen every change
                assert damaged == raw, seed
            (tmp_path / words[-1]).unlink()
    assert refused > seeds // 4 or case == "others"  # whose unused bytes are many
