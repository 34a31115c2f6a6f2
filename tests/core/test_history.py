# SPDX-License-Identifier: BSD-3-Clause
"""Deterministic results followed from what a plan held or reserved before: they follow from the call alone."""

import numpy as np
import pytest

import particlemesh as pm

MESH = pm.Mesh((10, 10, 9), (1.0, 1.1, 1.2))
FEW, MANY, MOST = 300, 500, 1000  # methods count on lanes, blocks and copies that differ between these numbers
RNG = np.random.default_rng(3)
X = RNG.random((MOST, 3)) * MESH.box.lengths
Q, V = RNG.normal(size=MOST), RNG.normal(size=(MOST, 3))
FIELD = RNG.normal(size=MESH.field_shape)
OPTIONS = {"single_mesh": {"reduction": "shuffle"}, "hybrid_mesh": {"width": 900}}


def results(backend, law, plan, count, real):
    plan.set_positions(backend.array(X[:count].astype(real)))
    if law.direction == "spread":
        made = (
            plan.spread(backend.array(Q[:count].astype(real))),
            plan.spread_gradient(backend.array(V[:count].astype(real))),
        )
    else:
        field = backend.array(FIELD.astype(real))
        made = plan.interpolate(field), plan.gradient(field), *plan.value_and_gradient(field)
    return [backend.host(array) for array in made]


HISTORIES = {
    "held more": lambda plan, use: use(MANY),
    "reserved, then held more": lambda plan, use: (plan.reserve(MOST), use(MANY)),
    "held fewer": lambda plan, use: use(FEW // 2),
}


@pytest.mark.parametrize("order", ["caller", "sorted"])
@pytest.mark.parametrize(("window", "options"), [("bspline4", {}), ("cic", OPTIONS)])
def test_bits_do_not_follow_from_what_a_plan_held_before(backend, law, window, options, order):
    if not law.method.deterministic:
        pytest.skip("another order of additions in every run")
    if options and law.method.name not in options:
        pytest.skip("this method has no such option")
    options = {name: chosen for name, chosen in options.items() if name == law.method.name}
    real = law.real(backend, MESH, window, MANY)
    given = dict(backend=backend.name, dtype=real, deterministic=True, order=order, options=options)

    def use(plan, count):
        return results(backend, law, plan, count, real)

    with law.plan(MESH, window, **given) as fresh:
        right = use(fresh, FEW)
    for name, history in HISTORIES.items():
        with law.plan(MESH, window, **given) as plan:
            history(plan, lambda count, plan=plan: use(plan, count))
            for array, expected in zip(use(plan, FEW), right, strict=True):
                np.testing.assert_array_equal(array, expected, err_msg=name)
