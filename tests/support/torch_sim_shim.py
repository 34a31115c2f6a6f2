# SPDX-License-Identifier: BSD-3-Clause
"""A pytest plugin: torch-sim's neighbour lists are particlemesh's, for torch-sim's own tests of them.

Of torch-sim only what these tests import is loaded, from beside the folder that ``TORCH_SIM_TESTS`` names: the package
imports all models, and its conftest imports libraries for materials.
"""

import os
import sys
import types
from pathlib import Path

import torch

from particlemesh.adapters.torch_sim import torchsim_nl


def module(name, **members):
    sys.modules[name] = made = types.ModuleType(name)
    vars(made).update(members)
    return made


module("torch_sim", __path__=[str(Path(os.environ["TORCH_SIM_TESTS"]).parent / "torch_sim")])
module("tests", __path__=[os.environ["TORCH_SIM_TESTS"]])
module("tests.conftest", DEVICE=torch.device("cpu"), DTYPE=torch.float64)

from torch_sim import neighbors  # noqa: E402 - the package above

neighbors.torch_nl_n2 = neighbors.torch_nl_linked_cell = torchsim_nl
neighbors.torchsim_nl = neighbors.default_batched_nl = torchsim_nl
neighbors.vesin_nl, neighbors.VESIN_AVAILABLE = torchsim_nl, True
