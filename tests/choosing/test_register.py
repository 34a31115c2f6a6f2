# SPDX-License-Identifier: BSD-3-Clause
"""Methods of programs beside those of the library."""

from pathlib import Path

import numpy as np
import pytest

import oracle
import particlemesh as pm
from particlemesh.backends.base import Unread
from particlemesh.choosing.choice import METHODS
from particlemesh.methods import Method
from particlemesh.methods.launches import LANES, Form, KernelMethod, adding_width, kernel

MESH = pm.Mesh((5, 6, 7), (1.0, 2.0, 3.0))
X = np.random.default_rng(1).random((50, 3)) * (1, 2, 3)
Q = np.random.default_rng(2).normal(size=50)
KERNEL = '#include "spread/particle.c"\n'


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch):
    for direction in METHODS:
        monkeypatch.setitem(METHODS, direction, METHODS[direction])


class OneByOne(Method):
    name, backends, derivatives = "one_by_one", frozenset({"cpu"}), 0

    @classmethod
    def cost(cls, problem):
        return 0.0, 0.0

    def apply(self, workspace, values, field, **form):
        field.array.reshape(MESH.shape)[...] += oracle.spread(MESH, workspace.window, X, values.array.reshape(1, -1))[0]


def kernels_of(file):
    class Mine(KernelMethod):
        name, backends, derivatives = "mine", frozenset({"cuda", "opencl"}), 0

        def compile(self, workspace, form, group, field, *values):
            width = adding_width(workspace, group, field)
            return (kernel(workspace, file, "spread_particle", group, width, **form.facts(), **LANES),)

        def apply(self, workspace, values, field, gradient=False, hessian=False, **_):
            particles, none = workspace.particles, Unread(workspace.particles.node)
            for run, *layouts in self.launches(workspace, Form(gradient, hessian=hessian), field, values):
                run(
                    LANES["LANES_ALL"] * workspace.count, particles.node, particles.fraction, values.array, field.array,
                    none, none, workspace.count, particles.rows, *layouts, workspace.window_record,
                    workspace.jacobian_record,
                )  # fmt: skip

    return Mine


def test_plans_take_it_by_name_and_by_cost_and_explain_it():
    assert pm.register("spread", OneByOne) is OneByOne
    expected = oracle.spread(MESH, pm.bspline(3), X, Q[None])[0]
    with pm.Plan(MESH, "bspline3", method="one_by_one") as plan:
        np.testing.assert_allclose(plan.set_positions(X).spread(Q), expected, atol=1e-13)
        assert "one_by_one" in plan.explain()
    with pm.Plan(MESH, "bspline3", interpolation="tiles") as plan:
        plan.set_positions(X).spread(Q)
        assert repr(plan).count("one_by_one") == 1  # its cost is the least
    again = type("OneByOne", (OneByOne,), {"__module__": OneByOne.__module__, "__qualname__": OneByOne.__qualname__})
    pm.register("spread", again)
    assert [m for m in METHODS["spread"] if m.name == "one_by_one"] == [again]


def test_derivatives_are_left_to_methods_that_have_them():
    pm.register("spread", OneByOne)
    vectors = np.random.default_rng(3).normal(size=(50, 3))
    with pm.Plan(MESH, "bspline3") as plan:
        plan.set_positions(X).spread(Q)
        assert repr(plan).count("one_by_one") == 1
        expected = oracle.spread_gradient(MESH, pm.bspline(3), X, vectors[None])[0]
        np.testing.assert_allclose(plan.spread_gradient(vectors), expected, atol=1e-11)
        assert plan.spread_hessian(np.zeros((50, 3, 3))).sum() == 0
    with (
        pm.Plan(MESH, "bspline3", method="one_by_one") as plan,
        pytest.raises(pm.MethodNotSuitable, match="'one_by_one' has no first derivatives"),
    ):
        plan.set_positions(X).spread_gradient(vectors)


def test_a_cost_that_is_no_pair_is_named():
    pm.register("spread", type("Other", (OneByOne,), {"name": "other", "cost": classmethod(lambda cls, problem: 1.0)}))
    with pm.Plan(MESH, "bspline3") as plan, pytest.raises(TypeError, match=r"Other.cost returned 1.0: return two"):
        plan.set_positions(X).spread(Q)


@pytest.mark.backends("cuda", "opencl")
def test_its_kernel_may_lie_outside_the_package(backend, tmp_path):
    file = Path(tmp_path) / "mine.c"
    file.write_text(KERNEL, encoding="utf-8")
    pm.register("spread", kernels_of(file))
    with pm.Plan(MESH, "bspline3", method="mine", backend=backend.name) as plan:
        field = plan.set_positions(backend.array(X)).spread(backend.array(Q))
    np.testing.assert_allclose(backend.host(field), oracle.spread(MESH, pm.bspline(3), X, Q[None])[0], atol=1e-13)


@pytest.mark.parametrize(
    ("direction", "facts", "error", "words"),
    [
        ("scatter", {}, ValueError, "direction is 'scatter'; choose one of spread, interpolate"),
        ("spread", {"name": "auto"}, ValueError, "name is 'auto'"),
        ("spread", {"name": "two words"}, ValueError, "must be an identifier"),
        ("spread", {"name": "particle"}, ValueError, "a method 'particle' to spread already"),
        ("spread", {"backends": {"cpu"}}, ValueError, "must be a frozenset"),
        ("spread", {"backends": frozenset({"tpu"})}, ValueError, "of some of"),
        (["spread"], {}, ValueError, "direction is"),
        ("spread", {"name": "other", "options": {"k": 3}}, TypeError, "must be particlemesh.methods.Option"),
        ("spread", None, TypeError, "must be a subclass of"),
    ],
)
def test_what_is_no_method_is_refused(direction, facts, error, words):
    before = dict(METHODS)
    with pytest.raises(error, match=words):
        pm.register(direction, 3 if facts is None else type("Other", (OneByOne,), facts))
    assert before == METHODS
