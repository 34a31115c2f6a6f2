# SPDX-License-Identifier: BSD-3-Clause
"""Plans of the functions of torch and JAX: few, found again, one thread each; meshes as text."""

import gc
import json
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.autograd import pool

MESH = pm.Mesh((5, 6), [[1.0, 0.2], [0.1, 1.3]], periodic=(True, False), offset=(0.25, 0.5), ghosts=((0, 0), (1, 2)))


def with_lengths(*lengths):
    return pm.Mesh(MESH.shape, pm.Box(lengths, periodic=MESH.periodic), offset=MESH.offset, ghosts=MESH.ghosts)


@pytest.fixture
def plans():
    plans = pool.Pool(np.array_equal, np.copy, np.where)
    yield plans
    plans.clear()


@pytest.mark.parametrize("window", ["ngp", "bspline7", "m4prime", "peskin4", "kaiser_bessel5"])
def test_a_mesh_and_a_window_come_back_from_their_text(window):
    options = {"deterministic": True, "options": {"tiles": {}}}
    text = pool.text_of(MESH, window, options)
    mesh, same, given = pool.facts_of(json.dumps(json.loads(text)))
    assert mesh == with_lengths(1.0, 1.0)
    assert same == pm.window.window_of(window)
    assert given == options
    assert pool.text_of(with_lengths(9.0, 1.0), window, options) == text  # lengths are no part of it


def test_plans_are_found_again_by_the_content_of_positions(plans):
    text, s = pool.text_of(pm.Mesh(8, 1.0), "cic", {}), np.random.default_rng(1).random((9, 1))
    with plans.plan(text, "float64", "cpu", s) as first:
        pass
    with plans.plan(text, "float64", "cpu", s.copy()) as second:
        assert second is first
        with plans.plan(text, "float64", "cpu", s) as third:  # the first is in use
            assert third is not first
    s[3] += 0.25  # in place
    with plans.plan(text, "float64", "cpu", s) as plan:
        np.testing.assert_allclose(plan.spread(np.eye(9)), pm.spread(s, np.eye(9), pm.Mesh(8, 1.0), window="cic"))
    assert len(plans) == pool.ALIKE


def test_there_are_few_plans(plans):
    held = []
    for nodes in range(4, 4 + 3 * pool.IDLE):
        with plans.plan(pool.text_of(pm.Mesh(nodes, 1.0), "cic", {}), "float64", "cpu", np.zeros((2, 1))) as plan:
            held.append(weakref.ref(plan))
    del plan
    gc.collect()
    assert len(plans) == pool.IDLE == sum(plan() is not None for plan in held)


def test_a_plan_is_not_used_after_an_error(plans):
    text, s = pool.text_of(pm.Mesh(8, 1.0), "cic", {}), np.zeros((3, 1))
    with pytest.raises(ZeroDivisionError), plans.plan(text, "float64", "cpu", s):
        raise ZeroDivisionError
    with pytest.raises(ValueError, match="not finite"), plans.plan(text, "float64", "cpu", s * np.nan):
        pass
    assert len(plans) == 0


def test_threads_share_the_pool(plans):
    mesh, rng = pm.Mesh((6, 7), (1.0, 1.0)), np.random.default_rng(3)
    text, sets = pool.text_of(mesh, "cic", {}), [rng.random((50, 2)) for _ in range(3)]
    expected, wrong = [pm.spread(s, np.ones(50), mesh, window="cic") for s in sets], []

    def work(n):
        for k in range(40):
            which = (n + k) % 3
            with plans.plan(text, "float64", "cpu", sets[which]) as plan:
                if not np.allclose(plan.spread(np.ones(50)), expected[which]):
                    wrong.append((n, k))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(plans) <= pool.IDLE


def test_a_training_that_changes_the_box_keeps_nothing():
    """1,000 steps with a new box and new positions each."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install particlemesh[torch]")
    from particlemesh.autograd import torch as transfer

    mesh, probes = pm.Mesh((8, 8), (1.0, 1.0)), torch.rand((20, 2))
    x, cell = torch.rand((30, 2), requires_grad=True), torch.eye(2, requires_grad=True)
    descent = torch.optim.SGD([x, cell], lr=1e-5)

    def train(steps):
        for _ in range(steps):
            descent.zero_grad()
            field = transfer.spread(x, torch.ones(30), mesh, cell=cell)
            transfer.interpolate(field, probes, mesh, cell=cell).square().sum().backward()
            descent.step()

    before = cell.detach().clone()
    transfer.POOL.clear()
    train(20)
    objects = alive(object)
    train(1000)
    assert not torch.equal(cell, before)
    assert len(transfer.POOL) == pool.ALIKE
    assert alive(object) - objects < 200  # a leak is an object per step at least


def test_single_functions_free_their_plans_with_the_graph():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install particlemesh[torch]")
    x, before = torch.rand((30, 2), requires_grad=True), alive(pm.Plan)
    for n in range(20):
        pm.spread(x, torch.ones(30), pm.Mesh((8, 8), (1.0, 1.0 + n / 7))).sum().backward()
    assert alive(pm.Plan) == before


def alive(kind):
    """Return how many objects of a type there are."""
    gc.collect()
    return sum(issubclass(type(thing), kind) for thing in gc.get_objects())


def test_importing_the_library_imports_neither_torch_nor_jax():
    code = "import sys, particlemesh; print([m for m in sys.modules if m.split('.')[0] in ('torch', 'jax')])"
    source = str(Path(pm.__file__).parents[1])
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": source}, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_a_part_of_a_mesh_stays_a_part(library):
    """Not a mesh of its own, with other nodes at other places."""
    module = pytest.importorskip(f"particlemesh.autograd.{library}")
    array = pytest.importorskip("torch").tensor if library == "torch" else pytest.importorskip("jax.numpy").asarray
    whole = pm.Mesh((8, 6), (1.0, 2.0), offset=(0.25, 0.0))
    part = whole.part((2, 0), (6, 6), [(1, 1), 0])
    mesh = pool.facts_of(pool.text_of(part, "tsc", {}))[0]
    assert mesh == pm.Mesh((8, 6), (1.0, 1.0), offset=(0.25, 0.0)).part((2, 0), (6, 6), [(1, 1), 0])
    random = np.random.default_rng(5)
    x, q = random.uniform((0.4, 0.0), (0.6, 2.0), (9, 2)).astype("f4"), random.random(9).astype("f4")
    plan = pm.Plan(part, "tsc").set_positions(x)
    field = plan.spread(q)
    got = module.spread(array(x), array(q), part, window="tsc")
    np.testing.assert_allclose(np.asarray(got), field, atol=1e-5)
    for name in ("interpolate", "gradient"):
        got = getattr(module, name)(array(field), array(x), part, window="tsc")
        np.testing.assert_allclose(np.asarray(got), getattr(plan, name)(field), rtol=1e-4, atol=1e-4)
