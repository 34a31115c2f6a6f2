# SPDX-License-Identifier: BSD-3-Clause
"""The column against a plain oracle, by every builder and search, and what must hold of the physics."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from particlemesh.backends import cuda
from ptx import NVRTC, kernels_of

sys.path.append(str(Path(__file__).parents[2]))

from studies.barbieri import fused as column_fused
from studies.barbieri import rows as column_rows
from studies.barbieri import steps as column_steps
from studies.barbieri.column import BUILDERS, Column, fused_design
from studies.barbieri.green import Green, left_half

CELLS, COUNT, STEPS = 8, 400, 5
GREEN = Green()


def overlapping(x):
    """Whether each pair of spheres (N, N) pushes each other."""
    square = ((x[None] - x[:, None]).astype(float) ** 2).sum(-1)
    return (square < 1) & (square > 1e-12)


def oracle(x, v, steps, green=GREEN, cells=CELLS):
    """The motion in float64, all pairs, no grid."""
    x, v = x.astype(float), v.astype(float)
    for _ in range(steps):
        d, w, hit = x[None] - x[:, None], v[None] - v[:, None], overlapping(x)[..., None]
        r = np.sqrt(np.where(hit, (d**2).sum(-1, keepdims=True), 1))
        n = d / r
        across = w - (w * n).sum(-1, keepdims=True) * n
        push = -green.spring * (1 - r) * n + green.dashpot * w + green.shear * across
        v = v + np.where(hit, push, 0).sum(1)
        v[:, 1] -= green.gravity * green.time_step
        speed = np.sqrt((v**2).sum(1, keepdims=True))
        v = v * np.minimum(1, green.most_speed / np.maximum(speed, 1e-300))
        y = x + v * green.time_step
        x = np.clip(y, 0.5, cells - 0.5)
        v = np.where(x != y, green.restitution * v, v)
    return x, v


def cloud(dtype="float32", count=COUNT):
    rng = np.random.default_rng(3)
    x = rng.uniform(0.5, CELLS - 0.5, (count, 3)).astype(dtype)
    x[:4] = [[0.5, 0.5, 0.5], [7.5, 7.5, 7.5], [1, 2, 3], [4, 4, 4.5]]  # walls, and borders of cells
    return {"positions": x, "velocities": (rng.normal(size=(count, 3)) * 0.2).astype(dtype)}


def column(backend, count=COUNT, dtype="float32", **how):
    return Column(count, cells=CELLS, backend=backend.name, dtype=dtype, **{**cloud(dtype, count), **how})


GENERAL = [*({"builder": name, "search": "storage"} for name in BUILDERS),
           *({"builder": name, "search": "stream"} for name in ("scan", "linked_list_tight", "fixed"))]  # fmt: skip
FUSED = [
    {"builder": "scan", "lanes": 1, "queue": 0}, {"builder": "scan", "lanes": 1, "queue": 32},
    {"builder": "scan", "lanes": 2, "queue": 16}, {"builder": "linked_list_packed", "lanes": 1},
    {"builder": "linked_list_packed", "lanes": 8},
]  # fmt: skip


@pytest.fixture(scope="module")
def exact():
    return oracle(*cloud().values(), STEPS)


def check(made, exact, tolerance):
    np.testing.assert_allclose(made.positions, exact[0], rtol=0, atol=tolerance)
    np.testing.assert_allclose(made.velocities, exact[1], rtol=0, atol=tolerance)


@pytest.mark.turns(4)
@pytest.mark.parametrize("how", GENERAL, ids=lambda how: " ".join(how.values()))
def test_every_builder_moves_spheres_as_the_oracle_does(backend, how, exact):
    made = column(backend, **how)
    made.broad_phase()
    assert (made.in_reach == overlapping(cloud()["positions"]).sum(1)).all()
    check(made.run(STEPS), exact, 5e-6)
    assert made.taken == STEPS and made.repeated == 0


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("how", FUSED, ids=lambda how: " ".join(map(str, how.values())))
def test_fused_steps_are_those_of_the_oracle(backend, how, exact):
    made = column(backend, search="fused", **how)
    made.broad_phase()
    assert (made.in_reach == overlapping(cloud()["positions"]).sum(1)).all()
    made.build()
    check(made.run(2).run(STEPS - 2), exact, 5e-6)


@pytest.mark.turns(4)
@pytest.mark.backends("cpu")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("height", [1, 2, 4, 8])
def test_swept_rows_are_those_of_the_oracle(backend, monkeypatch, threads, height, exact):
    monkeypatch.setattr(column_rows, "height_bits", lambda count, cells: height.bit_length() - 1)
    made = column(backend, threads=threads)
    assert made.design.search == "fused"
    made.broad_phase()
    assert (made.in_reach == overlapping(cloud()["positions"]).sum(1)).all()
    check(made.run(STEPS), exact, 5e-6)


@pytest.mark.backends("cpu")
def test_rows_of_any_length_are_sorted(backend):
    """All spheres in one row, in any order: more than the longest gap of the sort, and far more than neighbours."""
    x = np.full((2000, 3), 2.5, "float32")
    x[:, 2] = np.random.default_rng(9).uniform(0.5, CELLS - 0.5, len(x))
    x[:40, 1], x[:, 0] = 3.4, np.linspace(2.1, 2.9, len(x))
    made = column(backend, len(x), positions=x, velocities=np.zeros_like(x), search="fused")
    made.broad_phase()
    assert (made.in_reach == overlapping(x).sum(1)).all()


def test_float64_is_that_of_the_oracle(backend):
    exact = oracle(*cloud("float64").values(), STEPS)
    check(column(backend, dtype="float64").run(STEPS), exact, 1e-13)


@pytest.mark.backends("opencl", "cuda")
def test_lists_are_sorted_now_and_then_and_heads_take_turns(backend):
    """Contacts are so soft that rounding does not grow; 31 steps pass a sort and all phases of the buffers."""
    green = Green(spring=0.01, dashpot=0.01, shear=0.01)
    how = {"forces": green, "builder": "linked_list_packed", "lanes": 2}
    made = column(backend, 60, **how).run(20).run(31)
    check(made, oracle(*cloud(count=60).values(), 51, green), 2e-5)


def test_a_crowd_fills_queues_and_strips(backend):
    """600 spheres in a few cells: several hundred in reach of each."""
    x = np.random.default_rng(5).uniform(3, 5, (600, 3)).astype("float32")
    v = np.zeros_like(x)
    exact = oracle(x, v, 1)
    ways = [{"search": "storage"}, {"search": "fused"}] if backend.name == "cpu" else [
        {"builder": "scan", "queue": 16}, {"builder": "scan", "queue": 32, "lanes": 4}]  # fmt: skip
    for how in ways:
        made = Column(600, cells=CELLS, backend=backend.name, positions=x, velocities=v, **how).run(1)
        check(made, exact, 2e-4)


def test_spheres_at_one_place_do_not_push_each_other(backend):
    x = np.full((3, 3), 4.25, "float32")
    made = Column(3, cells=CELLS, backend=backend.name, positions=x).run(2)
    assert (made.positions == made.positions[0]).all()
    check(made, oracle(x, np.zeros_like(x), 2), 1e-6)


def test_no_sphere_leaves_the_walls(backend):
    rng = np.random.default_rng(7)
    v = rng.normal(size=(COUNT, 3)) * 5  # slowed down to the greatest speed
    made = column(backend, velocities=v)
    for _ in range(4):
        x, v = made.run(10).positions, made.velocities
        assert ((x >= 0.5) & (x <= CELLS - 0.5)).all()
        assert np.sqrt((v**2).sum(1)).max() <= GREEN.most_speed * 1.00001
    assert len(np.unique(x, axis=0)) == COUNT  # no sphere was lost


@pytest.mark.parametrize("count", [0, 1, 31, 128, 1000, 4096])
def test_the_start_fills_the_left_half(count):
    x = left_half(count, 16, np.dtype("float32"), 1)
    assert x.shape == (count, 3) and ((x >= 0.5) & (x <= 15.5)).all()
    assert count == 0 or x[:, 0].max() <= 8
    if count >= 1000:
        upper = [(x[:, a] > m).mean() for a, m in ((0, 4.0), (1, 8.0), (2, 8.0))]
        assert np.abs(np.array(upper) - 0.5).max() < 0.1
    assert (left_half(count, 16, np.dtype("float32"), 1) == x).all()


# ---- what goes wrong --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("search", ["storage", "stream"])
def test_steps_are_repeated_when_a_cell_has_overflowed(backend, search):
    """Without pushes all spheres of a column of the box fall onto the floor, into one cell."""
    green = Green(spring=0.0, dashpot=0.0, shear=0.0, restitution=0.0)
    at = np.arange(CELLS) + 0.5
    x = np.array(list(itertools.product((2.5, 5.5), at[:-1], (1.5, 6.5))), "float32")  # one in each cell
    made = Column(len(x), cells=CELLS, backend=backend.name, positions=x, builder="fixed", search=search, forces=green,
                  capacity=2, grow=True).run(60)  # fmt: skip
    assert (made.repeated >= 1) == (backend.name != "cpu")  # there a build makes room itself
    assert made.taken == 60
    exact = oracle(x, np.zeros_like(x), 60, green)
    assert (exact[0][:, 1] == 0.5).mean() > 0.5
    check(made, exact, 1e-4)


def test_a_capacity_that_may_not_grow_is_an_error_and_the_column_as_before(backend):
    x = np.array([[2.5, 2.5 + n, 2.5] for n in range(5)], "float32")
    green = Green(spring=0.0, dashpot=0.0, shear=0.0, restitution=0.0)
    made = Column(5, cells=CELLS, backend=backend.name, positions=x, builder="fixed", forces=green, capacity=2)
    with pytest.raises(OverflowError, match="a cell has|capacity"):
        made.run(100)
    assert made.taken == 0 and (made.positions == x).all()


@pytest.mark.parametrize("search", ["auto", "storage"])
def test_a_speed_that_is_not_finite_is_an_error_and_the_column_as_before(backend, search):
    made = column(backend, search=search, forces=Green(spring=3e38))
    with pytest.raises(FloatingPointError, match="is not finite, of sphere"):
        made.run(3)
    assert made.taken == 0
    assert (made.positions == cloud()["positions"]).all()
    assert (made.velocities == cloud()["velocities"]).all()


@pytest.mark.backends("opencl", "cuda")
@pytest.mark.parametrize("fused", ["scan", "linked_list_packed"])
def test_an_interrupted_run_can_go_on(backend, monkeypatch, exact, fused):
    made = column(backend, builder=fused).run(2)
    plain, before = made._steps.kernel, made.positions

    def interrupted(file, name, **defines):
        if name in ("place", "step_lists"):
            raise KeyboardInterrupt
        return plain(file, name, **defines)

    with monkeypatch.context() as patch:
        patch.setattr(made._steps, "kernel", interrupted)
        patch.setattr(made._steps, "restore", lambda restore=made._steps.restore: (patch.undo(), restore()))
        with pytest.raises(KeyboardInterrupt):
            made.run(1)
    assert made.taken == 2 and (made.positions == before).all()
    check(made.run(STEPS - 2), exact, 5e-6)


# ---- what is selected, and CUDA ---------------------------------------------------------------------------------


def test_the_fused_design_follows_from_the_number_of_spheres():
    k = 1024
    designs = [fused_design(n * k, 64) for n in (1, 32, 128, 256, 512, 1024, 4096)]
    assert [d.builder for d in designs] == ["linked_list_packed"] * 2 + ["scan"] * 5
    assert [d.lanes for d in designs] == [8, 4, 1, 1, 1, 1, 1]
    assert [d.queue for d in designs] == [0, 0, 32, 32, 32, 0, 0]
    assert fused_design(256 * k, 32).queue == 0  # dense


class Graph:
    """Stands for a captured graph: it may only be launched in the phase that it was captured in."""

    def __init__(self, steps, work):
        self.steps, self.work, self.phase = steps, work, steps.phase

    def launch(self):
        assert self.steps.phase == self.phase
        self.work()


@pytest.mark.backends("opencl")
@pytest.mark.parametrize("how", [{"builder": "linked_list_packed"}, {"builder": "scan"}], ids=lambda h: h["builder"])
def test_every_phase_has_a_graph_of_its_own(backend, monkeypatch, how):
    green = Green(spring=0.01, dashpot=0.01, shear=0.01)
    made = column(backend, 60, forces=green, **how)
    steps, graphs = made._steps, []

    def captured(work):
        graphs.append(Graph(steps, work))
        with monkeypatch.context() as patch:  # only the phase changes
            patch.setattr(steps, "kernel", lambda *_, **__: lambda *_, **__: None)
            patch.setattr(column_fused, "scan", lambda *_: None)
            patch.setattr(steps.backend, "clear", lambda array: None, raising=False)
            work()
        return graphs[-1]

    monkeypatch.setattr(column_steps, "captured", captured)
    steps.backend.name = "cuda"
    made.prepare(96, 50)
    prepared = len(graphs)
    assert prepared > 1
    check(made.run(96).run(50), oracle(*cloud(count=60).values(), 146, green), 1e-3)
    assert len(graphs) == prepared  # nothing was left to capture
    assert made.taken == 146


@pytest.mark.backends("cuda")
@pytest.mark.parametrize("how", [{}, {"builder": "linked_list_packed"}, {"builder": "fixed", "search": "storage"},
                                 {"builder": "scan", "search": "stream"}], ids=str)  # fmt: skip
def test_graphs_take_the_steps_of_plain_launches(backend, how):
    """Soft contacts, since rounding grows with hard ones and atomics leave the order to chance.

    Few spheres: friction begins at once where two touch. With 400, two of them pass so closely that rounding decides.
    """
    green = Green(spring=0.01, dashpot=0.01, shear=0.01)
    made = column(backend, 100, forces=green, **how).run(150)
    assert made._steps._graphs
    check(made, oracle(*cloud(count=100).values(), 150, green), 2e-3)


class TestCuda:
    pytestmark = NVRTC

    @pytest.mark.turns(3)
    @pytest.mark.parametrize("how", [{"builder": "scan", "lanes": 2, "queue": 32}, {"builder": "linked_list_packed"},
                                     {"builder": "linked_list_tight"}, {"builder": "linked_list_packed",
                                     "search": "storage"}, {"builder": "fixed"}, {"builder": "sort"},
                                     {"builder": "linked_list_loose"}], ids=str)  # fmt: skip
    def test_kernels_compile_without_a_gpu(self, monkeypatch, how):
        def call():
            made = Column(40, cells=CELLS, backend="opencl", **how).run(1)
            made.broad_phase()

        for file, name, defines in kernels_of(monkeypatch, call):
            if not isinstance(file, str):  # the library's kernels have tests of their own
                assert name.encode() in cuda.compile_only(file, dict(defines), 90)
