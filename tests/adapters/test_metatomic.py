# SPDX-License-Identifier: BSD-3-Clause
"""Lists of metatomic's systems against all pairs by brute force; units, derivatives, and what is refused."""

import numpy as np
import pytest

from images import near

torch = pytest.importorskip("torch", reason="torch is not installed")
metatomic = pytest.importorskip("metatomic.torch", reason="metatomic-torch is not installed")
from particlemesh.adapters.metatomic import NeighborList, neighbor_lists_for_model  # noqa: E402 - metatomic decides

RNG = np.random.default_rng(7)
CELLS = [
    [[1.0, 0.0, 0.0], [0.2, 1.1, 0.0], [-0.1, 0.3, 0.9]], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0] * 3],
    [[0.0] * 3] * 3, [[1.3, 0.0, 0.1], [0.0, 0.8, 0.0], [0.0, 0.0, 1.0]],
]  # fmt: skip
PBC = [[True] * 3, [True, True, False], [False] * 3, [True] * 3]
COUNTS = [9, 7, 11, 0]


def systems(dtype=torch.float64, counts=COUNTS, **options):
    return [
        metatomic.System(
            types=torch.ones(count, dtype=torch.int32),
            positions=torch.tensor(RNG.uniform(-0.5, 1.5, (count, 3)), dtype=dtype, **options),
            cell=torch.tensor(cell, dtype=dtype, **options),
            pbc=torch.tensor(pbc),
        )
        for count, cell, pbc in zip(counts, CELLS, PBC, strict=True)
    ]


def asked(cutoff=0.6, full=True):
    return metatomic.NeighborListOptions(cutoff=cutoff, full_list=full, strict=True)


def of_half(i, j, shift):
    """Say whether a half list has a pair: its smaller atom first; of an atom and its image, the positive shift."""
    return i < j or (i == j and next(s for s in shift if s) > 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("full", [True, False])
def test_lists_have_all_pairs_of_their_systems(dtype, full):
    options, made = asked(full=full), systems(dtype)
    NeighborList(options, "A", check_consistency=True).add_neighbor_list(made)
    for system in made:
        block, x = system.get_neighbor_list(options), system.positions.double().numpy()
        pairs = near(x, x, 0.6, system.cell.double().numpy(), system.pbc.numpy(), strict=True, turns=4)
        pairs = {p for p in pairs if (p[0] != p[1] or any(p[2])) and (full or of_half(*p))}
        got = [(i, j, tuple(s)) for i, j, *s in block.samples.values.tolist()]
        assert len(got) == len(pairs) and set(got) == pairs
        assert block.values.dtype == dtype and block.values.shape == (len(pairs), 3, 1)
        i, j, shift = block.samples.values[:, 0].long(), block.samples.values[:, 1].long(), block.samples.values[:, 2:]
        vectors = x[j] - x[i] + shift.numpy() @ system.cell.double().numpy()
        np.testing.assert_allclose(block.values[..., 0], vectors, atol=1e-6 if dtype == torch.float32 else 1e-14)


def test_vectors_have_derivatives_by_positions_and_cells():
    options, made = asked(), systems(requires_grad=True)
    NeighborList(options, "A").add_neighbor_list(made)
    for system in made:
        block, x, cell = system.get_neighbor_list(options), system.positions, system.cell
        i, j, *_ = block.samples.values.long().T
        vectors = x[j] - x[i] + block.samples.values[:, 2:].double() @ cell
        expected = torch.autograd.grad((vectors**2).sum(), (x, cell))
        got = torch.autograd.grad((block.values**2).sum(), (x, cell), allow_unused=not len(block.values))
        for one, other in zip(got, expected, strict=True):
            torch.testing.assert_close(torch.zeros_like(other) if one is None else one, other)


def test_a_model_of_another_unit_gets_each_list_once():
    class Inner(torch.nn.Module):
        def requested_neighbor_lists(self):
            return [asked(5.0), asked(3.0, full=False)]

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.other = Inner(), torch.nn.Linear(1, 1)

        def requested_neighbor_lists(self):
            return [asked(5.0)]

    made = neighbor_lists_for_model("nm", Outer(), "A")
    assert [(each.cutoff, each.options.requestors()) for each in made] == [
        (pytest.approx(0.5), ["Outer", "Outer.inner"]), (pytest.approx(0.3), ["Outer.inner"]),
    ]  # fmt: skip
    (system,) = systems(counts=[5, 0, 0, 0])[:1]
    for each in made:
        each.add_neighbor_list(system)
    assert {each.cutoff for each in system.known_neighbor_lists()} == {5.0, 3.0}


def test_what_is_wrong_is_named_and_changes_no_system():
    made = NeighborList(asked(), "A")
    good, bad = systems(torch.float32)[0], systems()[0]
    with pytest.raises(ValueError, match="float32 on cpu and torch.float64 on cpu: give one type"):
        made.add_neighbor_list([good, bad])
    bad.positions[2, 1] = np.nan
    with pytest.raises(ValueError, match=r"positions\[2\] of system 1 is \[.* nan"):
        made.add_neighbor_list([systems()[0], bad])
    assert not good.known_neighbor_lists() and not bad.known_neighbor_lists()
    with pytest.raises(ValueError, match="system 1 has this list already"):
        given = systems()[0]
        made.add_neighbor_list(given)
        made.add_neighbor_list([good, given])
    assert not good.known_neighbor_lists()
    with pytest.raises(TypeError, match="copy is 3"):
        made.compute(good, copy=3)
    with pytest.raises(ValueError, match="radius"):
        NeighborList(asked(), "A", skin=-1)
    with pytest.raises(TypeError, match="a metatomic.torch.System is needed"):
        made.compute(torch.eye(3))
    with pytest.raises(TypeError, match="NeighborListOptions is needed"):
        NeighborList(0.5, "A")
    with pytest.raises(ValueError, match="torchscript is True"):
        NeighborList(asked(), "A", torchscript=True)
    with pytest.raises(TypeError, match="length_unit is a float"):
        NeighborList(asked(), 0.1)
    with pytest.raises(ValueError, match="model_length_unit is None"):
        neighbor_lists_for_model("nm", torch.nn.Linear(1, 1))
    assert made.add_neighbor_list([]) is None
