# SPDX-License-Identifier: BSD-3-Clause
"""Lists in one call on GPUs that come again: each is one replay, and has the numbers of the CPU."""

import weakref

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.grid.neighbour_list import _Grid, drop_grids
from particlemesh.grid.systems import boxes_of
from particlemesh.kernels import Replays

pytestmark = pytest.mark.backends("opencl", "cuda")
RADIUS = 0.203  # positions and boxes are multiples of 1 / 64, so no distance is near it
COUNT = 240
SYSTEM = (np.arange(COUNT) % 3).astype("i4")
BOXES = np.array([[1.0, 1.0, 1.0], [1.25, 1.0, 1.0], [1.0, 1.5, 1.0]])
FORMS = {
    "one box": {},
    "half": {"half": True},
    "open axes": {"periodic": (True, False, False)},
    "systems": {"system": SYSTEM},
    "boxes": {"system": SYSTEM, "boxes": BOXES},
    "half of boxes": {"system": SYSTEM, "boxes": BOXES, "half": True},
}


def positions(seed, real, size=64):
    return (np.random.default_rng(seed).integers(0, size, (COUNT, 3)) / 64).astype(real)


def rows(backend, arrays):
    return sorted(np.column_stack([a if isinstance(a, np.ndarray) else backend.host(a) for a in arrays]).tolist())


def compare(backend, x, form, layout="planar", monkeypatch=None):
    """Compare a list with that of the CPU; return its length. With ``monkeypatch`` it must not be made anew."""
    right = rows(backend, pm.neighbour_list("ijS", x, (1.0,) * 3, RADIUS, **form))
    given = {name: backend.array(a) if name == "system" else a for name, a in form.items()}
    here = tuple(map(backend.array, x.T)) if layout == "columns" else backend.array(x, layout)
    for name in ("build", "_build", "pairs") if monkeypatch else ():
        monkeypatch.setattr(pm.UniformGrid, name, lambda *_, **__: pytest.fail("the list is made anew"))
    ours = rows(backend, pm.neighbour_list("ijS", here, (1.0,) * 3, RADIUS, **given))
    assert ours == right
    return len(ours)


@pytest.fixture
def played(backend, monkeypatch):
    """The tapes that were played."""
    with backend.library.taping() as tape:
        kind = type(tape)
    tapes, play = [], kind.play
    monkeypatch.setattr(kind, "play", lambda tape, *arrays: (tapes.append(tape), play(tape, *arrays))[1])
    drop_grids()
    return tapes


@pytest.mark.parametrize("layout", ["planar", "columns", "strided"])
@pytest.mark.parametrize("real", ["f4", "f8"])
@pytest.mark.parametrize("form", FORMS)
def test_a_repeated_list_is_one_replay(backend, monkeypatch, played, form, real, layout):
    for turn in range(5):
        compare(backend, positions(turn, real), FORMS[form], layout)
    played.clear()
    compare(backend, positions(5, real), FORMS[form], layout, monkeypatch)
    assert len(played) == 1


@pytest.mark.parametrize("form", ["one box", "boxes"])
def test_many_pairs_and_none_in_turn(backend, played, form):
    apart = np.stack(np.unravel_index(np.arange(60), (4, 4, 4)), -1) / np.float32(4)
    given, lengths = {name: a[:60] if name == "system" else a for name, a in FORMS[form].items()}, {}
    for turn, name in enumerate(["even", "even", "even", "dense", "dense", "dense", "dense", "even", "apart"] * 2):
        x = apart if name == "apart" else positions(turn, "f4", 64 if name == "even" else 12)[:60]
        lengths[name] = compare(backend, x, given)
        if turn % 4 == 3:
            bad = x.copy()
            bad[17, 1] = np.nan
            with pytest.raises(ValueError, match="17"):
                pm.neighbour_list("ij", backend.array(bad), (1.0,) * 3, RADIUS)
    assert lengths["dense"] > 10 * lengths["even"] > 10 * lengths["apart"] == 0 and played


def test_builds_are_played_where_the_number_of_pairs_changes(backend, played):
    with pm.UniformGrid((1.0,) * 3, shape=(4, 4, 4), backend=backend.name) as grid:
        for turn in range(12):
            grid.build(backend.array(positions(turn, "f4", 32 if turn % 2 else 64)))
            grid.pairs(RADIUS)
    assert len(played) >= 6


def test_lists_within_a_call_that_is_recorded_are_made_each_time(backend):
    replays, lengths = Replays(backend.library), []
    out = backend.array(np.zeros(1))
    for turn in range(4):
        x = positions(turn, "f4")
        replays("lists", (out,), lambda x=x: lengths.append(compare(backend, x, {})))
    assert len(lengths) == 4


@pytest.mark.parametrize("listing", [True, False])
def test_other_boxes_are_sent_behind_the_work_that_reads_the_last_ones(backend, monkeypatch, listing):
    x, system = backend.array(positions(0, "f4")), backend.array(SYSTEM)
    kind, steps = type(backend.library), []
    grid = pm.UniformGrid((1.0,) * 3, shape=(4, 4, 4), systems=3, backend=backend.name)
    kept = [boxes_of(boxes, 3, grid.box, None) for boxes in (BOXES, BOXES[::-1])]
    with monkeypatch.context() as patch:
        for name in ("follow", "copy"):
            method = getattr(kind, name)
            patch.setattr(kind, name, lambda *a, name=name, method=method: (steps.append(name), method(*a))[1])
        for turn in range(10):
            steps.clear()
            if listing:
                pm.neighbour_list("ij", x, (1.0,) * 3, RADIUS, system=system, boxes=BOXES[:: 1 - 2 * (turn % 2)])
            else:
                grid.build(x, system=system, boxes=kept[turn % 2], check=False)
            assert "follow" in steps[: steps.index("copy")]


def test_no_error_is_taken_for_one_of_positions(backend, monkeypatch):
    x = positions(0, "f4")

    def fails(error):
        def listed(*_, **__):
            raise error("made up by a test")

        return listed

    monkeypatch.setattr(_Grid, "listed", fails(AttributeError))
    with pytest.raises(AttributeError, match="made up"):
        compare(backend, x, {})
    monkeypatch.setattr(_Grid, "listed", fails(OverflowError))
    assert compare(backend, x, {})


def test_a_call_that_lacked_memory_has_all_of_it_when_it_is_repeated(backend, monkeypatch):
    for _ in range(4):
        pm.neighbour_list("i", backend.array(positions(0, "f8")[:, :2]), (1.0, 1.0), RADIUS)  # is kept
        compare(backend, positions(0, "f4"), {})
    listed, pairs, held = _Grid.listed, pm.UniformGrid.pairs, []

    def lacking(grid, *given, **options):
        if not held:
            held.extend(map(weakref.ref, (grid, grid._built, grid._rooms.current)))
            raise MemoryError("made up by a test")
        assert [ref() for ref in held] == [None] * 3
        return listed(grid, *given, **options)

    def too_few(grid, *given, **options):
        if grid in [ref() for ref in held]:
            raise MemoryError("made up by a test")
        return pairs(grid, *given, **options)

    monkeypatch.setattr(_Grid, "listed", lacking)
    monkeypatch.setattr(pm.UniformGrid, "pairs", too_few)
    compare(backend, positions(1, "f4"), {})
    assert len(held) == 3
