# SPDX-License-Identifier: BSD-3-Clause
"""Compiled functions of users have the values in force, whatever was compiled before, here or by other processes."""

import importlib
import os
import subprocess
import sys
import types

import numpy as np
import pytest
from numba import cfunc, njit, vectorize
from numba.extending import register_jitable

from particlemesh.backends import jit
from particlemesh.kernels import cpu

# Modules of a user whose f(x) is x times VALUE, by what holds the number.
PARAMS = {"params": "SIGMA = VALUE"}
FORCES = "from numba import njit\nimport params\n@njitOPTIONS\ndef inner(x): return x * params.SIGMA\n"
KINDS = {
    "global": {"mine": "SIGMA = VALUE\ndef f(x): return x * SIGMA"},
    "imported": {**PARAMS, "mine": "from params import SIGMA\ndef f(x): return x * SIGMA"},
    "attribute": {**PARAMS, "mine": "import params\ndef f(x): return x * params.SIGMA"},
    "chain": {**PARAMS, "deep": "import params as b", "mine": "import deep as a\ndef f(x): return x * a.b.SIGMA"},
    "second name": {**PARAMS, "mine": "import params\ndef f(x):\n    m = params\n    return x * m.SIGMA"},
    "second chain": {
        **PARAMS, "deep": "import params as b", "mine": "import deep\ndef f(x):\n    a = deep\n    return x * a.b.SIGMA",  # noqa: E501
    },
    "constant": {"mine": "def f(x): return x * VALUE"},
    "default": {"mine": "def f(x, s=VALUE): return x * s"},
    "closure": {"mine": "def make(s):\n    def f(x): return x * s\n    return f\nf = make(VALUE)"},
    "closure of a module": {
        **PARAMS, "mine": "import params\ndef make(m):\n    def f(x): return x * m.SIGMA\n    return f\nf = make(params)",  # noqa: E501
    },
    "module as default": {
        **PARAMS, "mine": "import params\ndef f(x, m=params): return x * m.SIGMA",
    },
    "lambda": {"mine": "s = VALUE\nf = lambda x: x * s"},
    "inner": {
        **PARAMS, "mine": "import params\ndef f(x):\n    def g(y): return y * params.SIGMA\n    return g(x)",
    },
    "array": {"mine": "import numpy as np\ns = np.array([0.0, VALUE])\ndef f(x): return x * s[1]"},
    "tuple": {"mine": "s = (1, VALUE)\ndef f(x): return x * s[1]"},
    "named tuple": {
        "mine": "from typing import NamedTuple\nclass S(NamedTuple):\n    s: float\np = S(VALUE)\ndef f(x): return x * p.s",  # noqa: E501
    },
    "enumeration": {"mine": "import enum\nclass E(enum.Enum):\n    s = VALUE\ndef f(x): return x * E.s.value"},
    "number of NumPy": {"mine": "import numpy as np\ns = np.float64(VALUE)\ndef f(x): return x * s"},
    "called": {"forces": "from numba import njit\n@njit\ndef g(x): return x * VALUE", "mine": "import forces\ndef f(x): return forces.g(x)"},  # noqa: E501
    "called by a called": {
        **PARAMS, "forces": FORCES + "@njit\ndef g(x): return inner(x)", "mine": "from forces import g\ndef f(x): return g(x)",  # noqa: E501
    },
    "called and kept by Numba": {
        **PARAMS, "forces": FORCES.replace("OPTIONS", "(cache=True)"), "mine": "import forces\ndef f(x): return forces.inner(x)",  # noqa: E501
    },
    "called and kept by us": {
        **PARAMS, "forces": FORCES.replace("@njitOPTIONS", "@compiled").replace("from numba import njit", "from particlemesh.kernels.cpu import compiled"),  # noqa: E501
        "mine": "import forces\ndef f(x): return forces.inner(x)",
    },
}  # fmt: skip


def fill(x, out):
    for i in range(x.size):
        out[i] = term(x[i])  # noqa: F821


def with_loop(f):
    out = np.empty(1)
    cpu.loop_with(fill, "term", f)(np.ones(1), out)
    return out[0]


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Yield a function that writes modules and returns the last, imported as by a new process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    names = set()

    def made(texts, value):
        jit._loops.clear()
        for name, text in texts.items():
            path = tmp_path / f"{name}.py"
            text = text.replace("VALUE", repr(value)).replace("OPTIONS", "") + "\n"
            if not path.exists() or path.read_text() != text:
                path.write_text(text)
        for name in texts:
            sys.modules.pop(name, None)
        names.update(texts)
        importlib.invalidate_caches()
        return importlib.import_module("mine")

    yield made
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.turns(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["loop_with", "compiled"])
def test_an_edited_file_counts(kind, how, modules):
    for value in (2.0, 3.0, 2.0):
        f = modules(KINDS[kind], value).f
        if how == "compiled":
            assert cpu.compiled(f)(1.0) == value
        else:
            assert with_loop(f) == value


def edited(name, module, value):
    """Change a number of a user's modules in this process."""
    if name == "closure":
        module.f.__closure__[0].cell_contents = value
    elif name == "default":
        module.f.__defaults__ = (value,)
    elif name == "array":
        module.s[1] = value
    elif name in ("global", "imported"):
        module.SIGMA = value
    elif name == "lambda":
        module.s = value
    else:
        sys.modules["params"].SIGMA = value


@pytest.mark.turns(6)
@pytest.mark.parametrize("direct", [False, True], ids=["", "used before"])
@pytest.mark.parametrize(
    "kind", ["global", "imported", "attribute", "chain", "second name", "second chain", "default", "module as default",
             "closure", "closure of a module", "lambda", "inner",
             "array", "called by a called", "called and kept by Numba", "called and kept by us"],
)  # fmt: skip
def test_a_value_that_changes_in_this_process_counts(kind, direct, modules):
    module = modules(KINDS[kind], 2.0)
    if direct and "forces" in sys.modules:
        assert sys.modules["forces"].inner(1.0) == 2.0  # compiled with this value
    for value in (2.0, 3.0, 2.0):
        edited(kind, module, value)
        assert with_loop(module.f) == value
        assert with_loop(njit(module.f) if kind == "global" else module.f) == value


@pytest.mark.parametrize(
    "text",
    ["@register_jitable\ndef g(x): return x * VALUE", "@vectorize\ndef g(x): return x * VALUE",
     "@cfunc('f8(f8)')\ndef g(x): return x * VALUE"],
    ids=["register_jitable", "vectorize", "cfunc"],
)  # fmt: skip
def test_what_has_no_description_counts_by_identity(text, modules):
    module = modules({"mine": "g = None\ndef f(x): return g(x)"}, 0.0)
    for value in (2.0, 3.0):
        scope = {"__name__": "mine", "register_jitable": register_jitable, "vectorize": vectorize, "cfunc": cfunc}
        exec(text.replace("VALUE", repr(value)), scope)
        module.g = scope["g"]
        assert with_loop(module.f) == value
        assert not jit.Frozen(module.f).lasting


def test_what_cannot_be_described_is_kept_for_this_process_only(modules, tmp_path):
    module = modules({"mine": "def f(x): return x * 2.0"}, 0.0)
    assert jit.Frozen(module.f).lasting
    for strange in (object(), types.SimpleNamespace(a=1), lambda x: x, pytest, np.frompyfunc(abs, 1, 1)):
        module.strange = strange
        exec("def h(x): return strange", vars(module))
        assert not jit.Frozen(module.h).lasting


NAMES = """
import os, sys
import numpy as np
from particlemesh.backends.jit import compiled

def term(x): return x
names = [[], []]
def keep(to, real):
    f = compiled(cached=False)(term)
    f(np.zeros(1, [("x", real)])[0])
    to.extend(str(made.fndesc.mangled_name) for made in f.overloads.values())
read, write = os.pipe()
if os.fork() == 0:
    keep(names[1], "f8")
    os.write(write, " ".join(names[1]).encode())
    os._exit(0)
os.wait()
keep(names[0], "f4")
print(*names[0], os.read(read, 4096).decode())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_processes_name_their_code_apart():
    """Code of one name would run in place of another's, as soon as a process reads both from the disk."""
    # Records are numbered by the process, so that both types here have the same name.
    runs = [subprocess.run([sys.executable, "-c", NAMES], capture_output=True, text=True, check=True) for _ in range(2)]
    names = [name for run in runs for name in run.stdout.split()]
    assert len(names) == len(set(names)) == 4


def test_a_function_that_calls_itself_is_not_kept(modules):
    text = "from numba import njit\n@njit\ndef g(n, x):\n    if n <= 0: return x\n    return g(n - 1, x)\n"
    module = modules(
        {"mine": text + "def f(x): return g(3, x) + g(2, x)\ndef h(x): return x + k(x) + k(x)\ndef k(x): return x"}, 0.0
    )
    assert with_loop(module.f) == 2.0
    assert not jit.Frozen(module.f).lasting
    module.k = njit(module.k)
    assert jit.Frozen(module.h).lasting  # twice the same, but not within itself


LOOPS = """
K = VALUE
def one(x, out):
    for i in range(x.size):
        out[i] = term(x[i]) * 2.0
def two(x, out):
    for i in range(x.size):
        out[i] = term(x[i]) * 3.0
def own(x, out):
    for i in range(x.size):
        out[i] = term(x[i]) * K
def f(x): return x
"""


def test_loops_differ_by_their_constants_and_globals(modules):
    """Their bytecode may be the same."""
    for value in (5.0, 7.0, 5.0):
        module = modules({"mine": LOOPS}, value)
        for name, right in (("one", 2.0), ("two", 3.0), ("own", value)):
            out = np.empty(1)
            cpu.loop_with(getattr(module, name), "term", module.f)(np.ones(1), out)
            assert out[0] == right, (name, value)


def test_types_of_locals_count(modules):
    text = "from numba import njit, float32\n@njit(locals=VALUE)\ndef f(x):\n    y = x / 3.0\n    return y * 1.0\n"
    for kind, right in (("{}", 1 / 3), ("{'y': float32}", float(np.float32(1 / 3))), ("{}", 1 / 3)):
        module = modules({"mine": text.replace("VALUE", kind) + "def g(x): return f(x)\n"}, 0.0)
        assert with_loop(module.f) == with_loop(module.g) == right


TRIES = """
from numba import njit
@njit
def g(x):
    if x > 0.5: raise ValueError("too large")
    return x
def f(x):
    try: y = 1.0
    except Exception: y = 100.0
    BODY
    except Exception: y = 200.0
    return y
"""


def test_what_is_inside_of_try_counts(modules):
    """The bytecode of both is the same."""
    for within in (True, False, True):
        body = "try: y = g(x); y = y + g(x - 1.0)" if within else "y = g(x)\n    try: y = y + g(x - 1.0)"
        f = modules({"mine": TRIES.replace("BODY", body)}, 0.0).f
        if within:
            assert with_loop(f) == 200.0
        else:
            with pytest.raises(ValueError, match="too large"):
                with_loop(f)


def test_helpers_that_others_compiled_meanwhile_count(modules):
    text = "from numba import njit\nK = 1.0\n@njit\ndef g(x): return x * K\ndef f(x): return g(x)\n"
    module = modules({"mine": text}, 0.0)
    assert cpu.compiled(cached=False)(module.f)(2) == 2  # of integers
    assert with_loop(module.f) == 1.0
    module.g.recompile()
    module.K = 2.0
    assert module.g(np.float32(1)) == 2.0  # compiled with another value, which then goes back
    module.K = 1.0
    jit._loops.clear()
    out = np.empty(1, "f4")
    cpu.loop_with(fill, "term", module.f)(np.ones(1, "f4"), out)
    assert out[0] == 1.0


def test_text_that_is_executed_has_no_name_of_a_library():
    for value in (2.0, 3.0, 2.0):
        scope = {"register_jitable": register_jitable}
        exec(f"@register_jitable\ndef g(x): return x * {value}\ndef f(x): return g(x)", scope)
        assert with_loop(scope["f"]) == value
        assert not jit.Frozen(scope["f"]).lasting


OVERLOADS = {
    "function": ("@overload(np.i0)\ndef _(x): return lambda x: x * K", "np.i0(x)"),
    "method": ("@overload_method(types.Float, 'times')\ndef _(x): return lambda x: x * K", "x.times()"),
    "attribute": ("@overload_attribute(types.Float, 'timed')\ndef _(x): return lambda x: x * K", "x.timed"),
    "operator": ("@overload(operator.matmul)\ndef _(x, y): return lambda x, y: x * K", "x @ x"),
}
OVERLOADED = """
import operator, sys
import numpy as np
from numba import types
from numba.extending import overload, overload_attribute, overload_method
from particlemesh.kernels import cpu
K = float(sys.argv[1])
DEFINITION
def f(x): return USE
def fill(x, out):
    for i in range(x.size):
        out[i] = term(x[i])
out = np.empty(1)
cpu.loop_with(fill, "term", f)(np.ones(1), out)
print(out[0])
"""


@pytest.mark.parametrize("kind", OVERLOADS)
def test_what_others_told_numba_is_not_kept(kind, tmp_path):
    definition, use = OVERLOADS[kind]
    path = tmp_path / "overloaded.py"
    path.write_text(OVERLOADED.replace("DEFINITION", definition).replace("USE", use))
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    for value in ("2.0", "3.0"):
        command = [sys.executable, str(path), value]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert run.stdout.strip() == value


def test_code_of_another_version_of_this_is_not_read(modules, tmp_path, monkeypatch):
    """How functions are named and kept may have changed, not only what they are."""
    module = modules({"mine": "def f(x): return x * 2.0"}, 0.0)
    misses = []
    for version in range(3):
        if version == 2:
            other = tmp_path / "jit.py"
            other.write_text("another")
            monkeypatch.setattr(jit, "__file__", str(other))
        f = cpu.compiled(module.f)
        assert f(1.0) == 2.0
        misses.append(sum(f.stats.cache_misses.values()))
    assert misses == [1, 0, 1]
