# SPDX-License-Identifier: BSD-3-Clause
"""Lists of many systems with torch-sim's arguments, against all pairs by brute force."""

import numpy as np
import pytest

from images import near

torch = pytest.importorskip("torch", reason="torch is not installed")
from particlemesh.adapters.torch_sim import torchsim_nl  # noqa: E402 - torch decides

RNG = np.random.default_rng(3)
CELLS = np.array([
    [[1.0, 0.0, 0.0], [0.2, 1.1, 0.0], [-0.1, 0.3, 0.9]],
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]],  # open along its last axis
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
    [[1.3, 0.0, 0.1], [0.0, 0.8, 0.0], [0.0, 0.0, 1.0]],
    [[0.7, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.4, 1.2]],  # open along an axis that is normal to none of the others
])  # fmt: skip
PBC = np.array([[True] * 3, [True, True, False], [False] * 3, [True] * 3, [True, False, True]])


def listed(mapping, shifts):
    return sorted((i, j, tuple(map(int, s))) for (i, j), s in zip(mapping.T.tolist(), shifts.tolist(), strict=True))


def expected(x, ids, cells, pbc, cutoff):
    """Return the pairs of all systems in the numbering of all atoms."""
    pairs = []
    for system in range(len(cells)):
        atoms = np.flatnonzero(ids == system)
        near_pairs = near(x[atoms], x[atoms], cutoff, cells[system], pbc[system], strict=True, turns=4)
        pairs += [(int(atoms[i]), int(atoms[j]), s) for i, j, s in near_pairs if i != j or any(s)]
    return sorted(pairs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("form", ["each", "rows", "one"])
@pytest.mark.parametrize("selves", [False, True])
def test_a_list_has_all_pairs_of_all_systems(dtype, form, selves):
    x = torch.tensor(2 * RNG.random((50, 3)) - 0.5, dtype=dtype)
    ids = torch.tensor(RNG.integers(0, 5, 50))
    cells, pbc = (CELLS[:1].repeat(5, 0), PBC[1:2].repeat(5, 0)) if form == "one" else (CELLS, PBC)
    given = {"each": (cells, pbc), "rows": (cells.reshape(15, 3), pbc.reshape(15)), "one": (cells[0], pbc[0])}[form]
    for cutoff in (0.3, 0.8):
        mapping, system, shifts = torchsim_nl(
            x, torch.tensor(given[0], dtype=dtype), torch.tensor(given[1]), cutoff, ids, selves
        )
        assert mapping.dtype == system.dtype == torch.int64 and shifts.dtype == dtype
        if selves:
            assert mapping[:, -50:].tolist() == [[*range(50)]] * 2 and not shifts[-50:].any()
        assert torch.equal(system, ids[mapping[0]])
        pairs = slice(0, mapping.shape[1] - 50 * selves)
        assert (mapping[0, pairs].diff() >= 0).all()
        # A cell in float32 is that of the search.
        rows = torch.tensor(cells, dtype=dtype).double().numpy()
        assert listed(mapping[:, pairs], shifts[pairs]) == expected(x.double().numpy(), ids.numpy(), rows, pbc, cutoff)


def test_empty_systems_and_few_atoms():
    cells, pbc = torch.eye(3).expand(4, 3, 3), torch.tensor([[True] * 3] * 2 + [[False] * 3] * 2)
    none = torchsim_nl(torch.zeros(0, 3), cells, pbc, 1.5, torch.zeros(0, dtype=torch.int64), True)
    assert [tuple(a.shape) for a in none] == [(2, 0), (0,), (0, 3)]
    one = torchsim_nl(torch.ones(1, 3), cells, pbc, 1.1, torch.tensor([1]))
    assert one[0].shape == (2, 6) and one[1].tolist() == [1] * 6
    open_one = torchsim_nl(torch.ones(1, 3), cells, pbc, 1.1, torch.tensor([3]), True)
    assert open_one[0].tolist() == [[0], [0]]


def test_a_pair_is_closer_than_the_cutoff():
    x, ids = torch.tensor([[0.0, 0.0, 0.0], [3.0, 4.0, 0.0]]), torch.zeros(2, dtype=torch.int64)
    for cutoff, count in ((5.0, 0), (torch.tensor(5.001), 2), (0.0, 0)):
        assert torchsim_nl(x, torch.eye(3), torch.tensor([False] * 3), cutoff, ids)[0].shape == (2, count)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this PyTorch has no CUDA device")
def test_a_list_on_a_gpu_is_that_of_the_cpu():
    given = (
        torch.tensor(RNG.random((60, 3))),
        torch.tensor(CELLS),
        torch.tensor(PBC),
        torch.tensor(RNG.integers(0, 5, 60)),
    )
    here, there = (
        torchsim_nl(x, cells, pbc, 0.6, ids, True)
        for x, cells, pbc, ids in (given, [tensor.cuda() for tensor in given])
    )
    assert there[0].is_cuda and there[1].is_cuda and there[2].is_cuda
    assert listed(there[0], there[2]) == listed(here[0], here[2])


X, IDS, NO = torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64), torch.tensor([False] * 3)
ERRORS = [
    (lambda: torchsim_nl(X[:, :2], torch.eye(3), NO, 1.0, IDS), ValueError, r"shape \(4, 2\); a tensor of reals"),
    (lambda: torchsim_nl(X, torch.eye(2), NO, 1.0, IDS), ValueError, r"cell has shape \(2, 2\)"),
    (lambda: torchsim_nl(X, torch.eye(3).expand(3, 3, 3), NO.expand(2, 3), 1.0, IDS), ValueError, "pbc is that of 2"),
    (lambda: torchsim_nl(X, torch.eye(3), torch.ones(3), 1.0, IDS), ValueError, "pbc has dtype float32"),
    (lambda: torchsim_nl(X, torch.eye(3), NO, 1.0, IDS[:3]), ValueError, r"system_idx has shape \(3,\)"),
    (lambda: torchsim_nl(X, torch.eye(3), NO, 1.0, IDS - 1), ValueError, "system_idx has -1"),
    (lambda: torchsim_nl(X, torch.eye(3), NO, -1.0, IDS), ValueError, "a finite number of at least zero"),
    (lambda: torchsim_nl(X * np.nan, torch.eye(3), NO, 1.0, IDS), ValueError, "not finite"),
    (lambda: torchsim_nl(X, torch.eye(3), NO, 1.0, IDS, 1), TypeError, "self_interaction is 1; give True or False"),
    (lambda: torchsim_nl(X, 0 * torch.eye(3), ~NO, 1.0, IDS), ValueError, "every length must be positive"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_what_is_not_allowed_is_named(number):
    call, error, message = ERRORS[number]
    with pytest.raises(error, match=message):
        call()
