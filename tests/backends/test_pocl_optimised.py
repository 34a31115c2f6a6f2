# SPDX-License-Identifier: BSD-3-Clause
"""PoCL as users have it: kernels that it optimises do not crash it, and nothing chooses what it compiles for minutes.

Every other test has PoCL compile without optimising, and none would notice. A crash ends a process, and what was
compiled is kept: so a process of its own, with an empty cache, compiles the kernels that most methods stand on.
"""

import functools
import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import particlemesh as pm
from particlemesh import backends
from particlemesh.backends import opencl
from particlemesh.choosing import candidates
from particlemesh.choosing.choice import METHODS
from particlemesh.choosing.predict import Timings
from particlemesh.command import tune
from particlemesh.methods.contract import Problem
from pocl_processor import known_to_children

SOURCE = Path(__file__).parents[2] / "src"
START = """
import numpy as np
import particlemesh as pm
from particlemesh import backends
from particlemesh.sorting import counting
from particlemesh.orders import block_order

library, rng = backends.current("opencl"), np.random.default_rng(1)
"""
PLAN = """
x = rng.random((500, 3), np.float32)
mesh = pm.Mesh((9, 10, 11), (1.0, 1.0, 1.0))
q, f = rng.normal(size=500).astype(np.float32), rng.normal(size=mesh.field_shape).astype(np.float32)

def plan_of(**more):
    return pm.Plan(mesh, "bspline4", dtype=np.float32, **more).set_positions(x)

expected = plan_of().spread(q), plan_of().interpolate(f)  # on the processor, by other code
"""
METHOD = """
with plan_of(backend="opencl", method="{0}", interpolation="{0}") as plan:
    assert np.allclose(plan.spread(q), expected[0], atol=1e-5)
    print("interpolates", flush=True)
    assert np.allclose(plan.interpolate(f), expected[1], atol=1e-5)
"""
PARTS = {
    "particle, ordered": PLAN + METHOD.format("particle") + METHOD.format("ordered"),
    "owner by matrix instructions": PLAN
    + """
with plan_of(backend="opencl", method="owner", options={"owner": {"form": "matrix"}}) as plan:
    assert np.allclose(plan.spread(q), expected[0], atol=1e-5)
""",
    "radix sort": """
keys = rng.integers(-3, 60, 5000).astype(np.int32)
allocate = lambda _, *of: library.empty(*of)
_, order, _ = counting.counting_sort(library, library.upload(keys), 5000, 60, stable=True, allocate=allocate)
ordered = np.argsort(keys, kind="stable")[(keys < 0).sum():]
assert np.array_equal(library.download(order)[:len(ordered)], ordered)
""",
    "order by blocks": PLAN
    + """
block_order.STAGED_FROM = dict.fromkeys(block_order.STAGED_FROM, 1)
for stable in (False, True):
    print("stable" if stable else "through buckets", flush=True)
    with plan_of(backend="opencl") as plan:
        order = block_order.block_order(plan.workspace, (3, 3, 4), stable=stable)
        start = library.download(order.start).astype(np.int64)
        index = library.download(order.records).reshape(-1, 4)[:500, 3]
        by_block = [index[a:b] for a, b in zip(start[:-1], start[1:])]
        assert start[0] == 0 and start[-1] == 500
        assert np.array_equal(np.sort(index), np.arange(500))
        if stable:
            assert all(np.all(np.diff(block.astype(np.int64)) > 0) for block in by_block)
            assert [set(block) for block in by_block] == before
        before = [set(block) for block in by_block]
""",
}

if opencl.available() is not None:
    pytestmark = pytest.mark.skip(reason=f"no OpenCL: {opencl.available()}")
elif backends.current("opencl").facts()["HAS_WARP"]:
    pytestmark = pytest.mark.skip(reason="OpenCL has a GPU whose lanes share registers")
else:
    pytestmark = pytest.mark.opencl


@pytest.mark.turns(4)
@pytest.mark.parametrize("part", PARTS)
def test_optimised_kernels_compile_and_are_right(part, tmp_path):
    known_to_children()
    path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "POCL_CACHE_DIR": str(tmp_path), "PYOPENCL_NO_CACHE": "1"}
    code = START + PARTS[part] + "print('done')"
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{ran.returncode} at: {ran.stdout.splitlines()[-1:]}\n{ran.stderr}"
    assert ran.stdout.endswith("done\n")


def problems():
    """Problems of all sizes that PoCL may get; asking about them allocates nothing."""
    library = backends.current("opencl")
    for nodes, support, real, components, ordered in itertools.product(
        (4, 24, 128, 300), (2, 4, 6, 8), ("float32", "float64"), (1, 2, 8), (False, True)
    ):
        mesh, window = pm.Mesh((nodes,) * 3, (1.0,) * 3), pm.bspline(support)
        for count, deterministic in itertools.product((1, 100, 10**4, 10**6, 10**8), (False, True)):
            if count <= 1000 * mesh.field_shape[0] ** 3:
                yield Problem(
                    mesh, window, np.dtype(real), components, 1, count, deterministic, library, sorted=ordered
                )


@pytest.mark.parametrize("direction", METHODS)
def test_nothing_chooses_or_tries_a_walk_by_itself(direction, monkeypatch, request):
    # Models are asked: with little memory few others would be left to compare with.
    monkeypatch.setattr(backends.current("opencl"), "free_bytes", lambda: 2**62)
    cost = functools.partial(Timings(backends.current("opencl"), (), "").predict, direction)
    seen = set()
    for problem in itertools.islice(problems(), 0, None, 31 if request.config.thins else 1):  # 31 divides no factor
        asked = {m.name: candidates.ask(m, problem, cost) for m in METHODS[direction]}
        able = {name: c for name, c in asked.items() if c.reason is None}
        walks = {name for name in able if name.startswith("walk")}
        seen |= walks
        for applications in tune.APPLICATIONS:
            total = {name: c.total(applications) for name, c in able.items()}
            least = min(total.values())
            assert all(total[name] > max(candidates.FAR, tune.FAR) * least for name in walks), (problem, total)
    assert seen == {m.name for m in METHODS[direction] if m.name.startswith("walk")}


@pytest.mark.parametrize(("deterministic", "order"), [(False, "caller"), (True, "caller"), (False, "sorted")])
def test_a_plan_chooses_no_walk(deterministic, order):
    x = np.random.default_rng(1).random((4000, 3))
    with pm.Plan(
        pm.Mesh((20, 20, 20), (1.0, 1.0, 1.0)), "bspline6", backend="opencl", deterministic=deterministic, order=order
    ) as plan:
        plan.set_positions(x)
        explained = plan.explain()
    starred = [line.split()[1] for line in explained.splitlines() if line.startswith("* ")]
    assert len(starred) == 2, explained
    assert not any(name.startswith("walk") for name in starred), explained
    assert "  walk" in explained  # it was asked
