# SPDX-License-Identifier: BSD-3-Clause
"""What users choose of a method: checked at once, described in words, kept by copies."""

import pickle

import numpy as np
import pytest

import particlemesh as pm
from devices import METHODS, laws
from particlemesh.methods.contract import Option

MESH = pm.Mesh((8, 8), (1.0, 1.0))


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (3, TypeError, "give a dict by method"),
        ({"line_mesh": 3}, TypeError, "give a dict by method"),
        ({"spam": {}}, ValueError, "'spam', which is unknown; methods are particle, "),
        ({"particle": {"spam": 1}}, ValueError, "'particle' has no option 'spam'; it has none"),
        ({"line_mesh": {"spam": 1}}, ValueError, "'line_mesh' has no option 'spam'; it has lanes_per_cell"),
        ({"line_mesh": {"lanes_per_cell": 3}}, ValueError, "is 3; give one of None, 1, 2, 4, 8, 16, 32"),
        ({"line_mesh": {"lanes_per_cell": True}}, ValueError, "is True; give one of"),
        ({"line_mesh": {"lanes_per_cell": 4.0}}, ValueError, "is 4.0; give one of"),
    ],
)
def test_what_is_not_allowed_is_reported(given, error, words):
    with pytest.raises(error, match=words):
        pm.Plan(MESH, "cic", options=given)


def test_options_are_copied_and_pickled():
    given = {"line_mesh": {"lanes_per_cell": 4}}
    plan = pm.Plan(MESH, "cic", options=given)
    given["line_mesh"]["lanes_per_cell"] = 5
    for one in (plan, pickle.loads(pickle.dumps(plan))):
        assert one.options == {"line_mesh": {"lanes_per_cell": 4}}


@pytest.mark.parametrize(
    ("option", "good", "bad"),
    [
        (Option(None, (1, 2), ""), [None, 1, 2], [0, 3, 1.0, True, "1"]),
        (Option("a", ("a", "b"), ""), ["a", "b"], ["c", None]),
        (Option(None, range(3, 10), ""), [None, 3, 9, np.int32(4)], [2, 10, 3.0, True, "3"]),
        (Option(None, tuple, ""), [None, (1,), (4, 4, 32)], [(), (0, 1), [1, 2], (1.0,), 3]),
    ],
)
def test_an_option_knows_what_suits(option, good, bad):
    assert all(option.suits(value) for value in good)
    assert not any(option.suits(value) for value in bad)


def test_every_option_has_words_and_suits_itself():
    described = 0
    for law in laws():
        for name, option in law.method.options.items():
            assert option.suits(option.default), (law, name)
            assert option.words, (law, name)
            assert not option.words.endswith("."), (law, name)
            assert option.allowed_words(), (law, name)
            described += 1
    assert described > 0
    # one name, one table: what a method of both directions has in both is the same
    by_name = {}
    for methods in METHODS.values():
        for method in methods:
            known = by_name.setdefault(method.name, {})
            assert all(known.setdefault(name, option) == option for name, option in method.options.items())


def test_options_reach_the_method(backend):
    if backend.name == "cpu":
        pytest.skip("line_mesh runs on GPUs")
    x = np.random.default_rng(5).random((20, 2))
    fields = []
    for lanes in (1, 32):
        plan = pm.Plan(MESH, "cic", method="line_mesh", options={"line_mesh": {"lanes_per_cell": lanes}})
        plan.set_positions(backend.array(x))
        fields.append(backend.host(plan.spread(backend.array(np.ones(20)))))
        assert plan.methods.known["spread"].lanes(plan.workspace) == lanes
    np.testing.assert_allclose(*fields, rtol=1e-14)


def test_numpy_integers_become_pythons():
    given = {"hybrid_mesh": {"width": np.uint8(200)}, "domain_copies": {"block": (np.int16(4), 4)}}
    chosen = pm.Plan(MESH, "cic", options={**given, "single_mesh": {"threads_per_row": np.int64(8)}}).options
    assert chosen == {**given, "single_mesh": {"threads_per_row": 8}}
    assert type(chosen["hybrid_mesh"]["width"]) is type(chosen["domain_copies"]["block"][0]) is int
