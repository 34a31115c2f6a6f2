# SPDX-License-Identifier: BSD-3-Clause
"""Every example in a docstring gives what it says."""

import doctest
import importlib
import importlib.util
import re
import textwrap
from pathlib import Path

import pytest

import particlemesh
from particlemesh.backends import nvrtc
from particlemesh.choosing.choice import METHODS
from particlemesh.window import WINDOWS
from ptx import without_nvrtc

CHECKOUT = Path(__file__).parents[2]
DOCS = CHECKOUT / "docs"
WITH_EXAMPLES = sorted(
    path.relative_to(DOCS).as_posix()
    for path in DOCS.rglob("*.rst")
    if "_build" not in path.parts and ">>> " in path.read_text(encoding="utf-8")
)
ROOT = Path(particlemesh.__file__).parent
MODULES = sorted(
    ".".join(("particlemesh", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in ROOT.rglob("*.py")
    if path.name != "__main__.py" and ">>> " in path.read_text(encoding="utf-8")
)
# What modules and pages need beyond the dependencies.
OPTIONAL = {"figures": ("matplotlib",), "guide/autograd.rst": ("torch", "jax")}
OPTIONAL |= {
    "dynamics": ("h5py",),
    "rank_dynamics": ("h5py",),
    "checkpoint": ("h5py",),
    "brownian_figure": ("matplotlib",),
}
OPTIONAL |= {"mri": ("mrinufft",), "operator": ("mrinufft",), "gradients": ("mrinufft", "torch", "deepinv")}
OPTIONAL |= {"calculator": ("ase",), "ase": ("ase",), "mdanalysis": ("MDAnalysis",)}
OPTIONAL |= {"vesin": ("ase",), "pymatgen": ("pymatgen",), "freud": ("freud",)}
OPTIONAL |= {"pandas": ("pandas",), "xarray": ("xarray",)}
OPTIONAL |= {"jax_md": ("jax_md",), "metatomic": ("metatomic",)}
OPTIONAL |= dict.fromkeys(["howto/from_torch_cluster.rst", "howto/from_torch_sim.rst"], ("torch",))
# By sections in test_ecosystem_page.py.
OPTIONAL |= {"howto/from_ase.rst": ("ase",), "howto/from_pymatgen.rst": ("pymatgen",)}
OPTIONAL |= {"howto/from_freud.rst": ("freud",), "howto/pme_dynamics.rst": ("ase",)}
OPTIONAL |= {"howto/ecosystem.rst": ("pandas", "xarray", "ase", "MDAnalysis", "array_api_strict")}
OPTIONAL |= dict.fromkeys(["compiling", "scan", "howto/own_kernels.rst"], ("pyopencl",))


def skip_without(name):
    for needed in OPTIONAL.get(name, [library for library in ("torch", "jax") if name.startswith(library)]):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch):
    """Examples may register methods."""
    for direction in METHODS:
        monkeypatch.setitem(METHODS, direction, METHODS[direction])


@pytest.mark.whole
@pytest.mark.parametrize("name", MODULES)
def test_doctests(name):
    skip_without(name.split(".")[-1])
    module = importlib.import_module(name)
    results = doctest.testmod(module, extraglobs={"np": importlib.import_module("numpy")})
    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.whole
@pytest.mark.parametrize("page", WITH_EXAMPLES)
def test_examples_of_pages(page):
    skip_without(page)
    results = doctest.testfile(str(DOCS / page), module_relative=False)
    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
def test_the_kernel_that_walks_a_grid_compiles():
    (code,) = re.findall(r"RawKernel\(r'''\n(.*?)'''", (DOCS / "guide" / "grid_builders.rst").read_text(), re.DOTALL)
    assert nvrtc.compiled(textwrap.dedent(code), "docs/guide/grid_builders.rst", 90)


def test_the_laws_that_windows_are_said_to_keep():
    orders = {name: make().order for name, make in WINDOWS.items()}
    assert orders["ngp"] == 1
    neither = {name for name in orders if name.startswith(("kaiser_bessel", "prolate"))}
    assert all(orders[name] == 0 for name in neither)
    assert all(orders[name] >= 2 for name in orders.keys() - neither - {"ngp", "bspline1"})


def test_only_a_release_has_a_date():
    version = re.search(r"^version: (.+)$", (CHECKOUT / "CITATION.cff").read_text(), re.MULTILINE)[1]
    released = re.search(rf"^## \[?{re.escape(version)}\b", (CHECKOUT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert ("date-released" in (CHECKOUT / "CITATION.cff").read_text()) == bool(released)


def test_make_has_a_rule_for_what_it_lists():
    text = (CHECKOUT / "Makefile").read_text()
    names = re.search(r"^\.PHONY:(.*)$", text, re.MULTILINE)[1].split()
    assert [name for name in names if re.search(rf"^{name}:", text, re.MULTILINE) is None] == []
