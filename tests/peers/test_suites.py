# SPDX-License-Identifier: BSD-3-Clause
"""Peers' own tests, run on particlemesh where environment variables name the folders of checkouts that hold them.

=========================  ====================================================  ================================
variable                   folder                                                what is replaced
=========================  ====================================================  ================================
``FINUFFT_TESTS``          ``python/finufft/test`` of FINUFFT                    the module `finufft`
``CUFINUFFT_TESTS``        ``python/cufinufft/tests`` of FINUFFT                 the module `cufinufft`
``PYTORCH_FINUFFT_TESTS``  ``tests`` of pytorch-finufft                          the modules `finufft`, `cufinufft`
``MRI_NUFFT_TESTS``        ``tests`` of mri-nufft, of the version installed      its backend "finufft"
``TORCH_PME_TESTS``        ``tests`` of torch-pme, of the version installed      three methods of `MeshInterpolator`
``TORCH_CLUSTER_TESTS``    ``test`` of pytorch_cluster                           the module `torch_cluster`
``SCIPY_SPATIAL_TESTS``    ``scipy/spatial/tests``                               `KDTree` and `cKDTree`
``TORCH_SIM_TESTS``        ``tests`` of torch-sim                                `torch_sim.neighbors`
``JAX_MD_TESTS``           ``tests`` of JAX MD, of the version installed         `jax_md.partition.neighbor_list`
``ASE_TESTS``              ``ase/test`` of ASE                                   functions of `ase.neighborlist`
``VESIN_TESTS``            ``python/vesin/tests`` of vesin                       names of `vesin`, `vesin.metatomic`
``MATSCIPY_TESTS``         ``tests`` of matscipy                                 `matscipy.neighbours.neighbour_list`
``PYMATGEN_TESTS``         ``tests`` of pymatgen-core                            `find_points_in_spheres`, a method
``MDANALYSIS_TESTS``       ``testsuite/MDAnalysisTests`` of MDAnalysis           two names of `MDAnalysis.lib.distances`
``FREUD_TESTS``            ``tests`` of freud, of the version installed          two classes of `freud.locality`
=========================  ====================================================  ================================

``CUFINUFFT_FRAMEWORK`` names the arrays of cuFINUFFT's tests: numpy (the default), cupy, torch. mri-nufft's tests need
pytest-cases and a version of pytest that it supports, ducc0 and, for those of autograd, deepinv.
matscipy's tests import pytest-subtests, which may be an empty module; pymatgen's need ``PMG_TEST_FILES_DIR``.
``test_openmm_figures.py`` has the figures of OpenMM's tests.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import particlemesh as pm

SUPPORT = Path(__file__).parents[1] / "support"


def run(variable, shim, *arguments, ignored=(), only=(), source=None):
    """Run a suite with a plugin; return how many tests passed."""
    folder = os.environ.get(variable)
    if not folder:
        pytest.skip(f"{variable} does not name a folder with the peer's tests")
    places = [SUPPORT, Path(pm.__file__).parents[1], *([] if source is None else [Path(folder) / source])]
    places += filter(None, [os.environ.get("PYTHONPATH")])
    files = [str(Path(folder) / name) for name in only] or [folder]
    command = [sys.executable, "-m", "pytest", "-q", "-p", shim, "-p", "no:cacheprovider", "-o", "addopts="]
    command += [*files, *arguments]
    command += [f"--ignore={Path(folder) / name}" for name in ignored]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, places))}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    passed = re.search(r"(\d+) passed", done.stdout)
    assert done.returncode == 0 and passed, done.stdout[-4000:] + done.stderr[-2000:]
    return int(passed[1])


def test_finufft():
    assert run("FINUFFT_TESTS", "finufft_shim") > 600


def test_cufinufft():
    framework = os.environ.get("CUFINUFFT_FRAMEWORK", "numpy")
    # Examples are programs of CUDA libraries, and the fallback is about cuFINUFFT's own shared library.
    ignored = ("test_examples.py", "test_fallback.py")
    assert run("CUFINUFFT_TESTS", "finufft_shim", "--framework", framework, ignored=ignored) > 2000


def test_pytorch_finufft():
    assert run("PYTORCH_FINUFFT_TESTS", "finufft_shim", source="..") > 400


def test_mri_nufft():
    # FINUFFT itself misses ducc0's results for samples on the edge of k-space, so that accuracy is tested elsewhere.
    files = ("operators/test_update.py", "operators/test_batch.py", "operators/test_autodiff.py")
    options = ("--backend", "finufft", "--ref", "ducc0", "-k", "2D and not gpu")
    assert run("MRI_NUFFT_TESTS", "mri_shim", *options, only=files) > 100


def test_torch_pme():
    # One or two of its 20 float32 derivatives differ by up to 3e-6, where 1e-6 is allowed; why is not known.
    only = ("lib/test_mesh_interpolator.py",)
    assert run("TORCH_PME_TESTS", "torchpme_shim", "-k", "not test_derivatives", only=only) > 150


def test_torch_cluster():
    assert run("TORCH_CLUSTER_TESTS", "torch_cluster_shim", only=("test_radius.py", "test_knn.py")) >= 18


def test_scipy(tmp_path, monkeypatch):
    """With points of three axes, where SciPy's tests have four or five, and Euclidean distances."""
    folder = os.environ.get("SCIPY_SPATIAL_TESTS")
    if folder:
        text = (Path(folder) / "test_kdtree.py").read_text(encoding="utf-8")
        text = re.sub(r"(?m)^( +(self\.)?[mk]) = [45]$", r"\1 = 3", text).replace("rand(100, 4)", "rand(100, 3)")
        (tmp_path / "test_kdtree.py").write_text(re.sub(r"for p in \[1, .*\]", "for p in [2]", text), encoding="utf-8")
        monkeypatch.setenv("SCIPY_SPATIAL_TESTS", str(tmp_path))
    # Other distances, nodes of trees, Python's int for NumPy's, approximate pairs, machines of unknown cores, and
    # data that is the given array itself: ours is a view that cannot be written.
    others = ("l1", "linf", "largep", "comparisons", "view", "weights", "duplicated", "tree_access",
              "(cKDTree and single_query and not multiple)", "pairs_eps", "parallel", "attributes")  # fmt: skip
    assert run("SCIPY_SPATIAL_TESTS", "kdtree_shim", "-k", f"not ({' or '.join(others)})") > 150


def test_torch_sim():
    assert run("TORCH_SIM_TESTS", "torch_sim_shim", "--noconftest", only=("test_neighbors.py",)) > 70


def test_jax_md():
    # A mask function, and a box that scales positions which are not said to be fractions, are errors of ours.
    chosen = "Neighbor and not custom_mask and not time_dependent"
    assert run("JAX_MD_TESTS", "jax_md_shim", "-k", chosen, only=("partition_test.py",)) > 30


def test_ase():
    assert run("ASE_TESTS", "ase_shim", "--noconftest", "--import-mode=importlib", only=("neighbor",)) > 30


def test_vesin():
    # Unsorted lists, which ours are not, other words of errors, and a GPU that brute force lacks.
    others = "test_sorting or test_errors or test_invalid_n_threads or brute_force_error or unknown_quantity"
    assert run("VESIN_TESTS", "vesin_shim", "-k", f"not ({others})", only=("test_numpy.py", "test_torch.py")) > 350


def test_vesin_metatomic():
    # Lists from TorchScript, which ours are not.
    assert run("VESIN_TESTS", "vesin_metatomic_shim", "-k", "not script", only=("test_metatomic.py",)) >= 3


def test_matscipy():
    assert run("MATSCIPY_TESTS", "matscipy_shim", only=("test_neighbours.py",)) >= 18


def test_pymatgen():
    files = ("optimization/test_neighbors.py", "core/test_structure.py")
    assert run("PYMATGEN_TESTS", "pymatgen_shim", "-k", "neighbor", only=files) >= 11


def test_mdanalysis():
    files = ("lib/test_distances.py",)
    assert run("MDANALYSIS_TESTS", "mdanalysis_shim", "-k", "capped", only=files, source="..") > 1200


def test_freud():
    # Plots, no points at all and distances beyond half the box, which ours takes, and an error of another type.
    others = "plot or points3 or too_large or (test_query_invalid and not points)"
    files = [f"test_locality_{name}.py" for name in ("neighbor_query", "neighbor_list", "filter")]
    assert run("FREUD_TESTS", "freud_shim", "-k", f"not ({others})", only=files) > 100
