# SPDX-License-Identifier: BSD-3-Clause
"""Programs on the pages of PME give what the pages say, and each formula there has a test."""

import csv
import math
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps.pme import PME
from pme_cases import random_charges

ROOT = Path(__file__).resolve().parents[2]
CUBE = 3.0 * np.eye(3)
# Formulae, claims and the tests of them.
TESTS = {
    "guide/pme.rst": {
        "4 (1 - 1 / c) sqrt(pi c d / cutoff) exp(-c)": "apps/pme/test_prolate.py::test_the_error_is_that_of_what_the",
        "2 sqrt(d / cutoff) exp(-(splitting * cutoff)**2)": "apps/pme/test_parameters.py::test_errors_of_pairs_are_as_",
        "an integral over wave vectors and their aliases": "apps/pme/test_parameters.py::test_errors_of_the_mesh_are",
        "more than a\nhundred times": "apps/pme/test_parameters.py::test_a_mesh_a_hundred_times_dearer_than_free",
        "Its trace is minus the energy": "docs/test_pme_pages.py::test_the_first_program_of_the_guide",
    },
    "guide/pme_more.rst": {
        "-c_i c_j / r**6": "apps/pme/test_dispersion.py::test_",
        "exp(-2 pi gap / period)": "apps/pme/test_slab.py::test_",
        "minus the energy plus the sum of ``dipoles * fields``": "apps/pme/test_dipole_virial.py::test_",
        r"q + \mu \cdot \nabla + \tfrac{1}{2} Q : \nabla \nabla": "apps/pme/test_multipoles.py::test_a_quadrupole_is",
        r"2 \pi \, \mathrm{tr}(Q) / (3 V)": "apps/pme/test_multipoles.py::test_a_trace_raises",
        r"\mathrm{erf}(r / w) / r": "apps/pme/test_multipoles.py::test_gaussians_that_overlap",
        "``virial[2, 1] - virial[1, 2]``": "apps/pme/test_multipoles.py::test_everything_turns",
        "forces = -slopes": "docs/test_pme_pages.py::test_forces_of_charges_that_depend_on_positions",
    },
    "guide/autograd.rst": {
        r"v \cdot I^{n+1} g": "autograd/test_chain_rules.py::test_derivatives_of_torch_are_those_of_plain_sums",
        "2π times": "autograd/test_autograd_nufft.py::test_",
    },
    "howto/from_torch_pme.rst": {
        "result.energies / charges": "docs/test_pme_pages.py::test_the_program_of_the_page_on_torch_pme",
        "1 / (2**0.5 * s)": "docs/test_pme_pages.py::test_the_program_of_the_page_on_torch_pme",
    },
}


def page(name):
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def program(name, within):
    """The program of a page that has these words."""
    blocks = re.findall(r"\.\. code-block:: python\n\n((?:   .*\n|\n)+)", page(name))
    (text,) = [textwrap.dedent(block) for block in blocks if within in block]
    return text


@pytest.mark.parametrize("name", TESTS)
def test_each_formula_is_there_with_its_test(name):
    for formula, where in TESTS[name].items():
        file, test = where.split("::")
        assert formula in page(name), formula
        assert f"def {test}" in (ROOT / "tests" / file).read_text(encoding="utf-8"), where


def test_the_table_of_nodes_is_that_of_the_benchmark():
    with (ROOT / "benchmarks/results/pme-nodes-intel-r-xeon-r-processor-1-threads.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    table = page("guide/pme.rst").split("list-table:: Fewest nodes")[1].split("\n\nAccuracy")[0]
    cells = re.findall(r"^ +(?:\* )?- (.+)$", table, re.MULTILINE)
    columns = 1 + len({row["error"] for row in rows})
    by_window = {cells[n]: cells[n + 1 : n + columns] for n in range(columns, len(cells), columns)}
    assert set(by_window) == {row["window"] for row in rows}
    for window, nodes in by_window.items():
        measured = [row for row in rows if row["window"] == window]
        assert nodes == [f"{r['gaussian_nodes']} / {r['prolate_nodes']}" if r["ratio"] else "–" for r in measured]


def test_the_errors_of_clouds_are_those_of_the_benchmark():
    with (ROOT / "benchmarks/results/pme-errors-intel-r-xeon-r-processor-1-threads.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))

    def reached(*clouds):
        errors = [float(r["ratio"]) for r in rows if not clouds or r["cloud"] in clouds]
        return f"{min(errors):.2f} to {max(errors):.2f} times"

    count = len({(r["cloud"], r["seed"]) for r in rows})
    assert count == 1008
    assert all(0.3 <= float(r["ratio"]) <= 1.3 for r in rows)
    text = " ".join(page("guide/pme.rst").split()).replace("e-", "e-0")
    assert f"Errors of 1,008 clouds were {reached()} the accuracy asked for, from 1e-02 to 1e-06." in text
    assert f"Those of clusters were {reached('clusters')}, of slabs {reached('slab')}." in text
    energies = {r["cloud"]: [] for r in rows}
    for r in rows:
        if float(r["asked"]) == 1e-4:
            energies[r["cloud"]].append(float(r["energy"]))
    others = [e for cloud, each in energies.items() if cloud != "water" for e in each]
    above = sum(e > 4e-5 for e in others)
    assert f"Of {len(others):,} others {above} were above 4e-05, and the largest was {max(others):.1e}." in text
    assert f"relative errors were below {1e-7 * math.ceil(1e7 * max(energies['water'])):.0e} for water" in text


def test_the_table_of_drifts_is_that_of_the_benchmark():
    with (ROOT / "benchmarks/results/pme-drift-amd-epyc-2-threads.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    table = page("guide/pme.rst").split("list-table:: Drift")[1].split("\n\nThe drifts")[0]
    cells = re.findall(r"^ +(?:\* )?- (.+)$", table, re.MULTILINE)[5:]
    expected = [
        [row["method"], f"{float(row['error']):.1e}", row["nodes"],
         f"{float(row['drift']):.3f} ± {float(row['uncertainty']):.3f}", f"{1e5 * float(row['fluctuation']):.1f}"]
        for row in rows
    ]  # fmt: skip
    assert cells == [cell for row in expected for cell in row]


def test_the_first_program_of_the_guide():
    x, q = random_charges(20, 3, CUBE, neutral=False)
    names = {"box": CUBE, "positions": x, "charges": q, "print": lambda text: None}
    exec(program("guide/pme.rst", "result.virial"), names)
    result = names["result"]
    np.testing.assert_allclose(result.energies.sum(), result.energy)
    assert abs(q.sum()) > 0.1
    np.testing.assert_allclose(np.trace(result.virial), -result.energy, rtol=1e-5)
    larger = PME(1.001 * CUBE, 1e-8, coulomb_constant=138.93545764438206)(1.001 * x, q).energy
    smaller = PME(CUBE / 1.001, 1e-8, coulomb_constant=138.93545764438206)(x / 1.001, q).energy
    by_volume = (larger - smaller) / (27 * (1.001**3 - 1.001**-3))
    np.testing.assert_allclose(-np.trace(result.virial) / (3 * 27), -by_volume, rtol=1e-4)


def test_forces_of_charges_that_depend_on_positions():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install particlemesh[torch]")
    x, _ = random_charges(8, 4, CUBE)
    pme, wave = PME(CUBE, 1e-9), np.array([1.0, 2.0, 3.0])
    names = {
        "torch": torch, "pme": pme, "x": torch.tensor(x, requires_grad=True), "cell": torch.tensor(CUBE),
        "charges": lambda x: torch.sin(x @ torch.tensor(wave)),
    }  # fmt: skip
    exec(program("guide/pme_more.rst", "virial = torch.autograd.grad"), names)
    np.testing.assert_allclose(names["virial"].detach(), pme(x, np.sin(x @ wave)).virial, atol=1e-7)
    step = np.zeros_like(x)
    step[3, 1] = 1e-4
    ends = [pme(x + s * step, np.sin((x + s * step) @ wave)).energy for s in (1, -1)]
    np.testing.assert_allclose(names["forces"].detach()[3, 1], -(ends[0] - ends[1]) / 2e-4, rtol=1e-5)


def test_the_program_of_the_page_on_torch_pme():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install particlemesh[torch]")
    x, q = random_charges(8, 5, CUBE)
    names = {
        "torch": torch, "box": CUBE, "positions": torch.tensor(x, requires_grad=True), "charges": torch.tensor(q),
        "cell": torch.tensor(CUBE),
    }  # fmt: skip
    exec(program("howto/from_torch_pme.rst", "total = energy"), names)
    result = PME(CUBE, 1e-6)(x, q)
    np.testing.assert_allclose(names["forces"].detach(), result.forces, atol=1e-4)
    # The derivative by a charge is the potential, twice torch-pme's.
    more = [PME(CUBE, 1e-9)(x, q + s * 1e-4 * np.eye(8)[2]).energy for s in (1, -1)]
    np.testing.assert_allclose(2 * result.energies[2] / q[2], (more[0] - more[1]) / 2e-4, rtol=1e-4)
    # A Gaussian of the width s: the splitting's erfc is that of a potential smeared by it.
    near = PME(pm.Box((9.0,) * 3, periodic=False), cutoff=0.9, splitting=1 / (2**0.5 * 0.25), shape=64)
    assert near(4.0 + 0.5 * np.eye(3)[:2], np.ones(2)).energy == pytest.approx(2**0.5, rel=1e-3)


def test_the_program_beside_openmm(capsys):
    pytest.importorskip("openmm", reason="OpenMM is not installed")
    exec(program("howto/pme_dynamics.rst", "PythonForce"), {})
    ours, theirs = map(float, capsys.readouterr().out.split())
    assert ours == pytest.approx(theirs, rel=2e-6) and ours == pytest.approx(-5605.2506, rel=1e-6)
