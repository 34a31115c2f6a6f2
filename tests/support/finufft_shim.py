# SPDX-License-Identifier: BSD-3-Clause
"""A pytest plugin: the modules `finufft` and `cufinufft` are particlemesh's, for the peers' own tests.

FINUFFT 2.6 raises an error for a tolerance that cannot be reached, and cuFINUFFT for unknown options; both are
warnings of ours. cuFINUFFT's default type is complex64.
"""

import sys
import types
import warnings

import numpy as np

from particlemesh.apps import nufft


class FinufftPlan(nufft.Plan):
    def __init__(self, *arguments, **options):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "eps tolerance too small")
            try:
                super().__init__(*arguments, **options)
            except UserWarning as warning:
                raise RuntimeError(*warning.args) from None


class CufinufftPlan(nufft.Plan):
    def __init__(self, nufft_type, n_modes, n_trans=1, eps=1e-6, isign=None, dtype="complex64", **options):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "eps tolerance too small")
            warnings.filterwarnings("error", "finufft_opts does not have attribute")
            try:
                super().__init__(nufft_type, n_modes, n_trans, eps, isign, dtype, **options)
            except UserWarning as warning:
                name = str(warning).split('"')[1]
                raise TypeError(f"Invalid option '{name}'") from None


def module(name, **members):
    sys.modules[name] = made = types.ModuleType(name)
    vars(made).update({n: getattr(nufft, n) for n in nufft.__all__}, **members)
    return made


def empty_like(like, shape, dtype):
    """Return an array of the library and on the device of another one."""
    library = sys.modules[type(like).__module__.partition(".")[0]]
    if library.__name__ == "torch":
        return library.empty(shape, dtype=getattr(library, np.dtype(dtype).name), device=like.device)
    return library.empty(shape, dtype)


module("finufft", Plan=FinufftPlan)
compat = types.SimpleNamespace(array_empty_like=empty_like, array_can_contiguous=lambda array: True)
module("cufinufft", Plan=CufinufftPlan, _compat=compat, __version__="2.5.1")


def pytest_configure(config):
    """Let cuFINUFFT's tests run on NumPy arrays with ``--framework numpy``."""
    utils = sys.modules.get("utils")
    if hasattr(utils, "transfer_funcs"):
        others = utils.transfer_funcs
        utils.transfer_funcs = lambda name: (np.array, np.array) if name == "numpy" else others(name)
