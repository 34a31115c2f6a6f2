# SPDX-License-Identifier: BSD-3-Clause
"""Worlds, and errors: where one rank raises, all do, none waits, and the plan goes on."""

import re
from pathlib import Path

import numpy as np
import pytest

import mpi
import particlemesh as pm
from mpi import on_ranks
from particlemesh import distributed as pmd
from particlemesh.distributed import transports
from rank_cases import OPTIONS, Row, assembled, listed, plan_of


def all_raise(world, call, kind, culprit):
    """Check that the culprit raises an error of its own, and the others one that names it."""
    expected = kind if world.rank == culprit else pmd.RankError
    with pytest.raises(expected) as caught:
        call()
    if world.rank != culprit:
        assert caught.value.rank == culprit
        assert kind.__name__ in caught.value.message
    return str(caught.value)


@on_ranks(1, 2, 3, 4)
def test_a_world_moves_arrays(world):
    size, rank = world.size, world.rank
    assert world.transport in ("host", "nccl")  # the second where each rank has a GPU
    rows, counts = world.alltoallv(np.full((2 * size, 3), rank, np.float32), [2] * size)
    assert np.array_equal(rows[::2, 0], np.arange(size))
    assert counts.tolist() == [2] * size
    # Rank r has r rows for each rank, rank 0 none.
    rows, counts = world.alltoallv(np.arange(rank * size) + 100.0 * rank, [rank] * size)
    assert counts.tolist() == list(range(size))
    expected = [100 * r + r * rank + n for r in range(size) for n in range(r)]
    assert rows.tolist() == expected
    total = world.allreduce(rank + 1)
    assert isinstance(total, int)
    assert total == size * (size + 1) // 2
    assert world.allreduce(np.array([rank, -rank]), "max").tolist() == [size - 1, 0]
    assert world.allreduce(np.array([1j * rank]))[0] == 1j * sum(range(size))
    assert world.allgather({"rank": rank}) == [{"rank": r} for r in range(size)]
    got = np.empty(3)
    world.exchange({(rank + 1) % size: np.full(3, rank)}, {(rank - 1) % size: got.view(np.int64)})
    assert (got.view(np.int64) == (rank - 1) % size).all()


@on_ranks(1, 2, 3)
def test_a_world_takes_arrays_in_any_memory_order(world):
    size, rank = world.size, world.rank
    orders = [np.asfortranarray, lambda a: a.astype(a.dtype.newbyteorder("S")), lambda a: a[::-1].copy()[::-1]]
    table = np.arange(6.0 * size).reshape(2 * size, 3) + 100 * rank
    for turn in range(3):  # each rank in another order
        mine = orders[(rank + turn) % 3](table)
        rows, _ = world.alltoallv(mine, [2] * size)
        expected = np.arange(6.0 * rank, 6 * rank + 6).reshape(2, 3) + 100 * np.arange(size)[:, None, None]
        assert np.array_equal(rows, expected.reshape(-1, 3))
        assert np.array_equal(world.allreduce(mine, "max"), table + 100 * (size - 1 - rank))
    for sent, got in ((table.T, np.empty((3, 2 * size))), (table, np.empty(table.shape, order="F"))):
        with pytest.raises(ValueError, match="not in C order"):  # before a message leaves
            world.exchange({(rank + 1) % size: sent}, {(rank - 1) % size: got})


@on_ranks(2)
def test_long_messages_go_in_pieces(world):
    before, transports.CHUNK = transports.CHUNK, 64
    try:
        sent, got = np.arange(1000.0) + world.rank, np.empty(1000)
        world.exchange({1 - world.rank: sent}, {1 - world.rank: got})
    finally:
        transports.CHUNK = before
    assert np.array_equal(got, np.arange(1000.0) + 1 - world.rank)


@on_ranks(2, 4)
def test_agreeing(world):
    last = world.size - 1
    assert world.agree(None, "step", None) is None
    assert world.agree(None, "step", 7 if world.rank == 0 else None) == 7

    def interrupted():
        with world.agreement("step"):
            if world.rank == last:
                raise KeyboardInterrupt("stop")

    all_raise(world, interrupted, KeyboardInterrupt, last)
    with pytest.raises(pmd.RankError, match=f"rank {last} .* calls tea, and rank 0 calls coffee"):
        world.agree(None, "tea" if world.rank == last else "coffee")
    with pytest.raises(pmd.RankError, match="dtype"):
        world.agree(None, "step", world.rank)


@on_ranks(2, 4)
def test_a_rank_raises_at_each_stage(world):
    row, culprit = Row("", (7, 6), periodic=(True, False), per_rank=2), world.size - 1
    domain = pmd.Domain(row.mesh, world.size, per_rank=2)
    bad = world.rank == culprit

    # making a plan
    all_raise(world, lambda: pmd.Plan(domain, world, "no window" if bad else "cic"), ValueError, culprit)
    all_raise(world, lambda: pmd.Plan(domain, world, threads=-bad or 1), ValueError, culprit)
    other = domain.balanced(np.arange(42.0).reshape(7, 6)) if bad else domain
    with pytest.raises(pmd.RankError, match="calls Plan"):
        pmd.Plan(other, world, "cic")
    wrong = pmd.Domain(row.mesh, world.size + bad)
    all_raise(world, lambda: pmd.Plan(wrong, world, "cic"), ValueError, culprit)

    # before positions
    _, plan = plan_of(row, world)
    with pytest.raises(RuntimeError, match="no particles yet"):
        plan.spread(np.zeros(0))
    x = np.random.default_rng(world.rank).random((20 + world.rank, 2))
    plan.set_positions(x)
    values = np.ones(len(x))
    field = plan.spread(values)
    before = assembled(domain, world, field)

    # positions
    for off in (np.nan, 1.5):
        y = x.copy()
        if bad:
            y[3, 1] = off
        text = all_raise(world, lambda y=y: plan.set_positions(y), ValueError, culprit)
        assert "the first is particle 3" in text
    all_raise(world, lambda: plan.set_positions(x[:, : 2 - bad]), ValueError, culprit)
    with pytest.raises(pmd.RankError, match="dtype"):
        plan.set_positions(x.astype(np.float32) if bad else x)
    assert np.array_equal(assembled(domain, world, plan.spread(values)), before)

    # values, fields and outputs
    all_raise(world, lambda: plan.spread(values[bad:]), ValueError, culprit)
    all_raise(world, lambda: plan.spread(values.astype(np.longdouble) if bad else values), TypeError, culprit)
    with pytest.raises(pmd.RankError, match="dtype"):
        plan.spread(values + 1j if bad else values)
    with pytest.raises(
        pmd.RankError, match=re.escape("calls spread of (1,) on the host, and rank 0 calls spread of ()")
    ):
        plan.spread(values[None] if bad else values)
    all_raise(world, lambda: plan.interpolate(field[:1] if bad else field), ValueError, culprit)
    all_raise(world, lambda: plan.interpolate([f[1:] for f in field] if bad else field), ValueError, culprit)
    all_raise(world, lambda: plan.interpolate(field, out=np.empty(len(x) + bad)), ValueError, culprit)
    all_raise(world, lambda: plan.gradient(field, out=np.empty((len(x), 2), "f4" if bad else "f8")), TypeError, culprit)
    all_raise(world, lambda: plan.value_and_gradient(field, out=values if bad else None), TypeError, culprit)
    all_raise(world, lambda: plan.spread(values, accumulate=bad), ValueError, culprit)
    with pytest.raises(pmd.RankError, match="calls interpolate"):
        plan.interpolate(field) if bad else plan.spread(values)
    all_raise(world, lambda: plan.route.send(x[bad:]), ValueError, culprit)
    assert np.array_equal(assembled(domain, world, plan.spread(values)), before)

    # in the midst of the work, at the owners
    local, owners = next(p for p in plan._plans if p is not None), world.allgather(plan.held).index(plan.held)

    def breaks(*_, **__):
        raise MemoryError("no room")

    for verb, given in (("spread", values), ("interpolate", field)):
        if bad:
            vars(local)[verb] = breaks
        all_raise(world, lambda v=verb, g=given: getattr(plan, v)(g), MemoryError, culprit)
        if bad:
            del vars(local)[verb]
        assert np.array_equal(assembled(domain, world, plan.spread(values)), before), owners
    if bad:
        vars(local)["set_positions"] = breaks
    all_raise(world, lambda: plan.set_positions(x), MemoryError, culprit)
    with pytest.raises(RuntimeError, match="no particles yet"):
        plan.spread(values)
    if bad:
        del vars(local)["set_positions"]
    assert np.array_equal(assembled(domain, world, plan.set_positions(x).spread(values)), before)


@on_ranks(2)
def test_overflow_of_a_reserved_plan_is_reported(world):
    row = Row("", (8, 6))
    _, plan = plan_of(row, world, dtype="float64", backend="cpu")
    plan.reserve(10)
    x = np.full((8, 2), 0.25)  # sixteen in one part
    owner = int(pmd.Domain(row.mesh, 2).owner(pm.locate(x[:1], row.mesh).cells)[0])
    text = all_raise(world, lambda: plan.set_positions(x, check=False), ValueError, owner)
    assert "reserve(16)" in text
    plan.set_positions(x)  # grows
    assert plan.interpolate(plan.spread(np.ones(8))).shape == (8,)


@on_ranks(2)
def test_without_checks_no_call_agrees(world):
    row = Row("", (8, 6))
    _, careful = plan_of(row, world)
    _, plan = plan_of(row, world, check=False)
    x = np.random.default_rng(world.rank).random((20, 2))
    plan.set_positions(x)
    careful.set_positions(x)
    reductions, reduce = [], type(world._transport).allreduce
    world._transport.allreduce = lambda *a: reductions.append(a) or reduce(world._transport, *a)
    field = plan.spread(np.ones(20))
    values = plan.interpolate(field)
    assert not reductions
    assert all(map(np.array_equal, listed(field), listed(careful.spread(np.ones(20)))))
    assert np.array_equal(values, careful.interpolate(field))
    assert reductions
    with pytest.raises(ValueError, match="values has shape"):
        plan.spread(np.ones(19))  # on both, so that no rank waits


def test_a_deadlock_and_a_death_are_reported(tmp_path, monkeypatch):
    """The tests themselves notice when ranks wait for ever, or end."""
    monkeypatch.setattr(mpi, "PATIENCE", 4)
    path = Path(tmp_path) / "ranks_that_hang.py"
    lines = [
        "from mpi import on_ranks",
        "@on_ranks(2)", "def test_dies(world):", "    assert world.rank == 0",
        "@on_ranks(2)", "def test_fine(world): pass",
        "@on_ranks(2)", "def test_hangs(world):", "    if world.rank: world.allreduce(1)",
        "    else:", "        import time; time.sleep(60)",
    ]  # fmt: skip
    path.write_text("\n".join(lines))
    outcomes = mpi.reports_of((path,))
    assert outcomes["ranks_that_hang test_fine 0 2"] == mpi.PASSED
    assert "assert world.rank == 0" in outcomes["ranks_that_hang test_dies 0 2"]
    assert "a deadlock" in outcomes["ranks_that_hang test_hangs 0 2"]


def test_a_rank_error_survives_pickling():
    import pickle

    error = pickle.loads(pickle.dumps(pmd.RankError(2, "ValueError: no")))
    assert (error.rank, str(error)) == (2, "rank 2 raised ValueError: no")


@pytest.mark.parametrize("transport", ["mpi", "nccl"])
def test_transports_that_are_not_here_say_so(transport, monkeypatch):
    class Communicator:
        def __init__(self):
            self.Dup = lambda: self

        Get_rank = staticmethod(lambda: 0)
        Get_size = staticmethod(lambda: 1)
        allgather = staticmethod(lambda thing: [thing])

    pytest.importorskip("mpi4py")
    monkeypatch.setattr(transports, "cuda_aware", lambda: False)
    monkeypatch.setattr("particlemesh.distributed.world.cuda_aware", lambda: False)
    monkeypatch.setattr("particlemesh.distributed.transports._device", lambda: ("has no GPU", ("here", "")))
    monkeypatch.setattr(transports.Host, "__init__", lambda self, c: vars(self).update(rank=0, size=1, _communicator=c))
    with pytest.raises(ValueError, match="use transport 'host'|Use 'host'"):
        pmd.World(Communicator(), transport)
    assert pmd.World(Communicator()).transport == "host"


def test_one_rank_needs_no_mpi():
    world = pmd.World()
    assert (world.rank, world.size, world.transport) == (0, 1, "alone")
    with pytest.raises(ValueError, match="cannot exchange"):
        world.exchange({1: np.ones(1)}, {})
    with pytest.raises(ValueError, match="transport is 'tcp'"):
        pmd.World(transport="tcp")
    plan = pmd.Plan(pmd.Domain(pm.Mesh(6, 1.0), 1), window="cic", **OPTIONS).set_positions([0.1, 0.7])
    assert np.allclose(
        plan.spread(np.array([1.0, 2.0])), pm.spread([0.1, 0.7], [1.0, 2.0], pm.Mesh(6, 1.0), window="cic")
    )


def test_each_file_of_ranks_compiles_on_one_first():
    """Ranks that wait for others that compile look like a deadlock."""
    tests = Path(__file__).resolve().parents[1]
    files = {p.name: p.read_text(encoding="utf-8") for p in tests.rglob("test_*.py")}
    started = {name: re.findall(r"^@(?:mpi\.)?on_ranks\((\d)", text, re.MULTILINE) for name, text in files.items()}
    assert len([sizes for sizes in started.values() if sizes]) >= 6
    assert not [name for name, sizes in started.items() if sizes and "1" not in sizes]
