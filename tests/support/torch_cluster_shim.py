# SPDX-License-Identifier: BSD-3-Clause
"""A pytest plugin: the module `torch_cluster` is particlemesh's, for torch_cluster's own tests of radius and knn.

Nothing of ours is compiled by TorchScript, so that ``torch.jit.script`` returns what it is given.
"""

import sys
import types

import torch

from particlemesh.adapters import torch_cluster

devices = [torch.device("cpu"), *([torch.device("cuda:0")] if torch.cuda.is_available() else [])]
floating = [torch.half, torch.bfloat16, torch.float, torch.double]


def tensor(numbers, dtype, device):
    return None if numbers is None else torch.tensor(numbers, dtype=dtype, device=device)


sys.modules["torch_cluster"] = torch_cluster
sys.modules["torch_cluster.testing"] = testing = types.ModuleType("torch_cluster.testing")
vars(testing).update(devices=devices, floating_dtypes=floating, grad_dtypes=floating, tensor=tensor)
torch.jit.script = lambda function: function
