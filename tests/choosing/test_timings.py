# SPDX-License-Identifier: BSD-3-Clause
"""Tables of measured times, and what is predicted from them."""

import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import particlemesh as pm
from devices import METHODS
from particlemesh import backends
from particlemesh.backends import nvrtc
from particlemesh.choosing import predict, tables
from particlemesh.choosing.tables import Row, Table
from particlemesh.command.info import caches
from particlemesh.methods.contract import Method, Problem

CPU = backends.current("cpu")


class Modelled(Method):
    """A method whose model is simple."""

    name = "modelled"
    backends = frozenset({"cpu"})
    cost = classmethod(lambda cls, problem: (0.0, problem.count * problem.stencil * 1e-9))


def rows(count=30, method="modelled", seed=3):
    """Rows of a method that takes other times than its model says, here and there."""
    rng, some = np.random.default_rng(seed), []
    for _ in range(count):
        nodes, support, components = (int(rng.integers(*ends)) for ends in ((20, 300), (2, 9), (1, 5)))
        dtype, particles = str(rng.choice(["float32", "float64"])), int(10 ** rng.uniform(3, 7))
        filled, prepare, apply = rng.uniform(0.01, 1), rng.uniform(0, 1e-3), rng.uniform(1e-6, 1e-2)
        lies = filled, int(rng.integers(2)), rng.uniform(0.1, 1)
        axes = int(rng.integers(1, 4))
        some.append(Row("spread", method, nodes, support, dtype, components, particles, *lies, prepare, apply, axes))
    return tuple(some)


def problem(nodes=64, support=4, dtype="float32", components=1, count=10**5, ndim=3, **more):
    mesh = pm.Mesh((nodes,) * ndim, (1.0,) * ndim)
    return Problem(mesh, pm.bspline(support), np.dtype(dtype), components, 1, count, False, CPU, **more)


def table(some=None, of=None, device=None):
    some = some or rows()
    return Table("cpu", device or tables.device_of(CPU), "2026-01-31", of or tables.sources_of("cpu", some), some)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache folder of its own, and nothing known from before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tables, "shipped", lambda _: ())
    predict.forget()
    yield tmp_path / "particlemesh" / "timings"
    predict.forget()


# ---- interpolation ----------------------------------------------------------------------------------------


def near_the_model(drawn, scatter, seed=4):
    """Rows whose ratios to the model follow the number of particles, and scatter; problems; times without scatter."""
    rng, problems = np.random.default_rng(seed), [predict.problem_of(row, CPU) for row in drawn]
    times = np.array([row.particles**0.1 * Modelled.cost(p)[1] for row, p in zip(drawn, problems, strict=True)])
    scattered = times * np.exp(scatter * rng.standard_normal(len(times)))
    return tuple(row._replace(prepare=0.0, apply=t) for row, t in zip(drawn, scattered, strict=True)), problems, times


def predicted(some, problems):
    times = predict.Timings(CPU, some, "")
    return np.array([times.predict("spread", Modelled, p)[1] for p in problems])


def test_times_that_follow_the_model_are_met():
    some, problems, true = near_the_model(rows(60), 0.0)
    np.testing.assert_allclose(predicted(some, problems), true, rtol=0.02)


def test_a_bend_between_problems_far_apart_is_met():
    particles = [10**3, 10**4, 10**5, 10**6, 10**7]
    drawn = [rows(1)[0]._replace(particles=n, filled=1.0) for n in particles]
    problems = [predict.problem_of(row, CPU) for row in drawn]
    slower = np.array([1.0, 1.0, 3.0, 3.0, 1.0]) * [Modelled.cost(p)[1] for p in problems]
    some = tuple(row._replace(prepare=0.0, apply=t) for row, t in zip(drawn, slower, strict=True))
    np.testing.assert_allclose(predicted(some, problems), slower, rtol=0.1)


def test_times_of_similar_problems_are_smoothed():
    particles = np.geomspace(50_000, 200_000, 40).astype(int).tolist()
    some, problems, true = near_the_model([rows(1)[0]._replace(particles=n) for n in particles], 0.2)
    errors = [np.log(times / true).std() for times in (predicted(some, problems), [row.apply for row in some])]
    assert errors[0] < 0.6 * errors[1]


def test_a_method_without_rows_is_taken_at_its_word():
    times = predict.Timings(CPU, rows(method="another"), "")
    assert times.predict("spread", Modelled, problem()) == Modelled.cost(problem())
    # nor do rows of one direction count in the other
    assert predict.Timings(CPU, rows(), "").predict("interpolate", Modelled, problem()) == Modelled.cost(problem())


def test_far_from_all_rows_the_model_goes_on():
    slower = tuple(r._replace(prepare=0.0, apply=3 * Modelled.cost(predict.problem_of(r, CPU))[1]) for r in rows())
    times = predict.Timings(CPU, slower, "")
    for where in (
        problem(),
        problem(count=10**10),
        problem(nodes=2000),
        problem(components=50),
        problem(ndim=1, nodes=10**6),
    ):
        prepare, apply = times.predict("spread", Modelled, where)
        assert prepare == pytest.approx(0.0, abs=1e-9)
        assert apply == pytest.approx(3 * Modelled.cost(where)[1], rel=0.05)  # but for times of almost nothing


def test_no_particles_and_all_methods():
    """Every method can be predicted anywhere, whatever the rows say of it."""
    names = {(d, m.name) for d, methods in METHODS.items() for m in methods if "cpu" in m.backends}
    some = tuple(r._replace(direction=d, method=name) for d, name in names for r in rows(8))
    times = predict.Timings(CPU, some, "")
    for direction, name in names:
        method = next(m for m in METHODS[direction] if m.name == name)
        for where in (problem(count=0), problem(ndim=2), problem(ndim=1, components=3), problem(nodes=1)):
            assert all(t >= 0 and np.isfinite(t) for t in times.predict(direction, method, where))


def test_of_a_method_without_a_model_and_without_rows_nothing_is_known():
    class Plain(Method):
        name = "plain"
        backends = frozenset({"cpu"})

    class Derived(Modelled):
        name = "derived"

    assert not Plain.has_model() and Modelled.has_model() and Derived.has_model()
    assert predict.Timings(CPU, (), "").predict("spread", Plain, problem()) == (np.inf, np.inf)
    assert predict.Timings(CPU, rows(), "").predict("spread", Plain, problem()) == (np.inf, np.inf)
    assert max(predict.Timings(CPU, rows(method="plain"), "").predict("spread", Plain, problem())) < 1
    assert max(predict.Timings(CPU, (), "").predict("spread", Derived, problem())) < 1
    assert [m.__module__ for methods in METHODS.values() for m in methods if not m.has_model()] == [], "give it cost"


def test_a_method_needs_no_model_of_its_own():
    class Plain(Method):
        name = "plain"
        backends = frozenset({"cpu"})

    class Prepared(Plain):
        def prepare(self, plan):
            pass

    small, large = problem(count=1000), problem(count=10**6)
    assert Plain.cost(small)[0] == 0.0 < Prepared.cost(small)[0] < Prepared.cost(large)[0]
    assert 0 < Plain.cost(small)[1] < Plain.cost(large)[1]
    some = rows(method="plain")
    times = predict.Timings(CPU, some, "")
    for row in some:
        table = times.predict("spread", Plain, predict.problem_of(row, CPU))
        np.testing.assert_allclose(table, (row.prepare, row.apply), rtol=1e-6, atol=1e-12)


# ---- files ------------------------------------------------------------------------------------------------


def test_a_table_is_what_was_written(cache):
    wrote = table()
    path = tables.write(wrote)
    assert path.parent == cache and path == tables.path_of("cpu", tables.device_of(CPU))
    back = tables.read(path)
    assert (back.backend, back.device, back.sources, back.measured) == (
        wrote.backend, wrote.device, wrote.sources, wrote.measured
    )  # fmt: skip
    assert back.changed() == [] and back.sources.keys() == {"spread/modelled"}
    for one, other in zip(back.rows, wrote.rows, strict=True):
        assert one[:-6] == other[:-6] and (one.in_order, one.axes) == (other.in_order, other.axes)
        np.testing.assert_allclose(one[-6:], other[-6:], rtol=1e-3)
    times = predict.known(CPU)
    assert times.rows == back.rows and not times.hint
    assert times.source() == f"measured on {tables.device_of(CPU)} by `particlemesh tune`, 2026-01-31"


def test_without_a_table_models_are_used_and_tune_is_named():
    times = predict.known(CPU)
    assert times.rows == () and times.source() == "the methods' own models"
    assert times.hint == "`particlemesh tune` measures this device"


def test_without_a_home_folder_models_are_used(monkeypatch):
    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", home)
    assert tables.folder() is None and tables.path_of("cpu", "x") is None
    assert nvrtc.folder() is None and "NVRTC" not in {cache.owner for cache in caches()}
    assert predict.known(CPU).source() == "the methods' own models"
    plan = pm.Plan(pm.Mesh((8, 8, 8), (1.0, 1.0, 1.0)), "cic")
    plan.set_positions(np.random.default_rng(1).random((100, 3)))
    np.testing.assert_allclose(plan.spread(np.ones(100)).sum(), 100)
    with pytest.raises(ValueError, match="no home folder to keep times in; name a folder in XDG_CACHE_HOME"):
        tables.write(table())


def test_what_cannot_be_written_is_reported(cache, monkeypatch):
    cache.parent.mkdir()
    cache.write_text("a file where the folder should be")
    with pytest.raises(ValueError, match=r"timings cannot be written \(.+\); name another folder in XDG_CACHE_HOME"):
        tables.write(table())
    assert predict.known(CPU).rows == ()
    cache.unlink()
    path = tables.path_of("cpu", tables.device_of(CPU))
    path.mkdir(parents=True)
    with pytest.raises(ValueError, match=r"\.csv is a folder"):
        tables.write(table())
    assert list(cache.iterdir()) == [path]


def test_a_method_takes_no_less_than_the_one_it_includes():
    class More(Modelled):
        name = "more"
        includes = Modelled

    some, problems, _ = near_the_model(rows(), 0.1)
    faster = tuple(row._replace(method="more", prepare=1e-3, apply=0.5 * row.apply) for row in some)
    times = predict.Timings(CPU, some + faster, "a test")
    for asked in problems:
        less, more = (times.predict("spread", m, asked) for m in (Modelled, More))
        assert more[1] == less[1] and more[0] > less[0]


def test_a_stale_table_is_not_used_and_named():
    path = tables.write(table(of={"spread/modelled": "0123"}))
    times = predict.known(CPU)
    assert times.rows == ()
    assert times.hint == (
        f"{path} has outdated times, which are not used, for spread/modelled: `particlemesh tune` renews them"
    )


def test_times_are_dropped_of_changed_methods_only():
    kept, dropped = rows(20, "modelled"), rows(10, "colouring")
    of = {**tables.sources_of("cpu", kept + dropped), "spread/colouring": "0123"}
    tables.write(table(kept + dropped, of))
    times = predict.known(CPU)
    assert {row.method for row in times.rows} == {"modelled"} and len(times.rows) == 20
    assert "for spread/colouring:" in times.hint and "measured on" in times.source()


CORRUPT = {
    "empty": "",
    "binary": b"\xff\xfe\x00",
    "other": "a,b\n1,2\n",
    "later format": "# format: 99\n# backend: cpu\n",
    "no facts": "# format: 4\ndirection,method\n",
    "no rows": "# format: 4\n# backend: cpu\n# device: x\n# measured: x\n",
    "cut": lambda text: text[: len(text) // 2].rpartition(",")[0],
    "words": lambda text: text.replace("spread,modelled,", "spread,modelled,many,", 1),
    "nan": lambda text: text.rpartition(",")[0] + ",nan\n",
    "negative": lambda text: text.rpartition(",")[0] + ",-1\n",
    "no nodes": lambda text: text + "spread,modelled,0,4,float32,1,100,1.0,0,1.0,1e-3,1e-3,3\n",
    "support": lambda text: text + "spread,modelled,9,99,float32,1,100,1.0,0,1.0,1e-3,1e-3,3\n",
    "filled": lambda text: text + "spread,modelled,9,4,float32,1,100,1.1,0,1.0,1e-3,1e-3,3\n",
    "occupied": lambda text: text + "spread,modelled,9,4,float32,1,100,1.0,0,0.0,1e-3,1e-3,3\n",
    "integers": lambda text: text + "spread,modelled,9,4,int32,1,100,1.0,0,1.0,1e-3,1e-3,3\n",
    "order": lambda text: text + "spread,modelled,9,4,float32,1,100,1.0,2,1.0,1e-3,1e-3,3\n",
    "earlier format": lambda text: text.replace("# format: 5", "# format: 4"),
}


@pytest.mark.parametrize("kind", CORRUPT)
def test_a_corrupt_table_is_not_used_and_named(kind):
    path = tables.write(table())
    broken = CORRUPT[kind]
    if callable(broken):
        broken = broken(path.read_text())
    path.write_bytes(broken if isinstance(broken, bytes) else broken.encode())
    with pytest.warns(UserWarning, match="it is not used, and `particlemesh tune` writes it anew") as caught:
        times = predict.known(CPU)
    assert str(path) in str(caught[0].message)
    assert times.rows == ()
    with warnings.catch_warnings():  # once is enough
        warnings.simplefilter("error")
        assert predict.known(CPU) is times
    tables.write(table())
    predict.forget()
    assert predict.known(CPU).rows


def test_a_writer_that_fails_leaves_the_table_before(cache):
    path = tables.write(table())
    before = path.read_bytes()
    with pytest.raises(TypeError):
        tables.write(Table("cpu", tables.device_of(CPU), "today", {}, 3))
    assert path.read_bytes() == before
    assert len(list(cache.iterdir())) == 1


def test_an_import_reads_nothing(cache):
    path = tables.write(table())
    path.write_text("no table")
    code = "import sys, warnings; warnings.simplefilter('error'); import particlemesh"
    code += "; assert not {'scipy.linalg', 'scipy.special', 'scipy.fft'} & sys.modules.keys()"  # half a second
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


# ---- which table ------------------------------------------------------------------------------------------


def gpu(device="NVIDIA H200", name="cuda", warp=1):
    return SimpleNamespace(name=name, device=device, facts=lambda: {"HAS_WARP": warp})


def shipped(*keys):
    return lambda backend: tuple(
        Table(b, d, "a day", {"spread/modelled": "old"}, (rows(1)[0]._replace(nodes=n),))
        for n, (b, d) in enumerate(keys, 1)
        if b == backend
    )


@pytest.mark.parametrize(
    ("place", "taken", "hinted"),
    [
        (gpu(), 1, False),
        (gpu(name="opencl"), 2, False),
        (gpu("NVIDIA B300", "opencl"), 3, False),
        (gpu("NVIDIA A100"), 1, True),  # the same interface
        (gpu("NVIDIA A100", "opencl"), 2, True),
        (gpu("NVIDIA B300"), 3, True),  # the same device
        (gpu("pthread", "opencl", warp=0), None, True),  # emulated
        (CPU, 4, True),
    ],
)
def test_shipped_tables_serve_akin_devices(monkeypatch, place, taken, hinted):
    known = [
        ("cuda", "NVIDIA H200"),
        ("opencl", "NVIDIA H200"),
        ("opencl", "NVIDIA B300"),
        ("cpu", "another, 3 threads"),
    ]
    monkeypatch.setattr(tables, "shipped", shipped(*known))
    times = predict.known(place)
    assert [row.nodes for row in times.rows] == ([taken] if taken else [])
    assert bool(times.hint) == hinted
    assert (known[taken - 1][1] if taken else "models") in times.source()
    assert ("; the code of 1 of 1 methods has changed since" in times.source()) == bool(taken)


def test_a_processor_without_a_table_takes_that_of_about_as_many_threads(monkeypatch):
    keys = [("cpu", f"processor {n}, {n} thread{'s' if n > 1 else ''}") for n in (1, 8, 32)]
    monkeypatch.setattr(tables, "shipped", shipped(*keys))
    for ours, nearest in ((1, 1), (2, 1), (4, 8), (8, 8), (12, 8), (64, 32)):
        monkeypatch.setattr(tables, "available_threads", lambda ours=ours: ours)
        predict.forget()
        times = predict.known(CPU)
        assert f"measured on processor {nearest}, " in times.source()
        assert f"; applied to {tables.device_of(CPU)}, " in times.source()
        assert times.hint == "`particlemesh tune` measures this device"
    assert tables.threads_of("NVIDIA H200") is None


def test_the_users_table_comes_before_a_shipped_one(monkeypatch):
    monkeypatch.setattr(tables, "shipped", shipped(("cpu", tables.device_of(CPU))))
    assert len(predict.known(CPU).rows) == 1
    tables.write(table())
    predict.forget()
    assert len(predict.known(CPU).rows) == 30
    tables.write(table(of={"spread/modelled": "old"}))
    predict.forget()
    assert len(predict.known(CPU).rows) == 1 and "renews them" in predict.known(CPU).hint


def test_what_is_shipped_can_be_read_and_names_methods():
    names = {(d, m.name) for d, methods in METHODS.items() for m in methods}
    for path in sorted(tables.SHIPPED.glob("*.csv")):
        table = tables.read(path)
        assert {(r.direction, r.method) for r in table.rows} <= names, path
        backend = SimpleNamespace(name=table.backend, device=table.device)
        assert path.name == tables.path_of(backend.name, backend.device).name
