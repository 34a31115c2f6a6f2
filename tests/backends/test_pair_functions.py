# SPDX-License-Identifier: BSD-3-Clause
"""Pair functions: compiled once for all objects and processes, and errors that a person can read."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import particlemesh as pm
from pair_sums import add_value
from particlemesh.backends import folders
from particlemesh.backends.base import CompilationError
from particlemesh.backends.jit import Frozen
from particlemesh.kernels import cpu
from ptx import without_nvrtc

TABLE = np.arange(3.0)


def fill(x, out):
    for i in range(x.size):
        out[i] = term(x[i])  # noqa: F821


def grid():
    return pm.UniformGrid(1.0, shape=4).build(np.array([0.05, 0.5, 0.95]))


def test_a_function_is_known_by_its_text_and_the_constants_that_it_sees():
    def make(source, **names):
        scope = {"np": np, "__name__": "here", **names}
        exec(source, scope)
        return scope["f"]

    text = "def f(r2, d, i, j, a, b, p, sum):\n    sum[0] += K * np.sqrt(r2)\n"

    def digest_of(function):
        return Frozen(function).digest

    first = digest_of(make(text, K=1.0))
    assert first == digest_of(make("\n\n" + text, K=1.0))
    others = [make(text, K=2.0), make(text, K=1), make(text.replace("sqrt", "exp"), K=1.0), make(text, K=np.float32(1))]
    assert len({first, *map(digest_of, others)}) == 5
    table = digest_of(make(text, K=TABLE))
    assert table != digest_of(make(text, K=TABLE + 1))
    assert not Frozen(make(text, K=object())).lasting
    k = 3.0
    assert Frozen(lambda r2: r2 * k).lasting


def test_objects_of_one_text_compile_once(caplog):
    caplog.set_level("INFO", "particlemesh")
    values = np.array([3.0, 5.0, 7.0])
    for _ in range(3):
        sums = grid().stream(0.2, pm.PairFunction(None, add_value, 1, 1), values).ravel()
        np.testing.assert_array_equal(sums, [7.0, 0.0, 3.0])
    assert len([r for r in caplog.records if "compiling 'add_value'" in r.message]) <= 1


# Sums over pairs are such a loop, which takes ten times as long to compile.
LOOP = """
import logging, sys
import numpy as np
from particlemesh.kernels import cpu
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
logging.getLogger("numba").setLevel(logging.ERROR)
def heavy(x):
    return K * x
def fill(x, out):
    for i in range(x.size):
        out[i] = term(x[i])
for K in map(float, sys.argv[1:]):
    out = np.empty(2)
    cpu.loop_with(fill, "term", heavy)(np.array([3.0, 5.0]), out)
    print(out.tolist())
"""


def test_processes_share_what_was_compiled_and_a_changed_constant_counts(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(LOOP)

    def run(*constants):
        done = subprocess.run(
            [sys.executable, program, *constants], capture_output=True, text=True, timeout=300, check=False,
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    said, result = run("1")
    assert said.startswith("particlemesh: compiling 'heavy' for the CPU") and str(tmp_path) in said
    assert result == "[3.0, 5.0]"
    kept, said, other = run("1", "2")
    assert (kept, other) == (result, "[6.0, 10.0]") and "compiling 'heavy'" in said
    for kept in (tmp_path / "particlemesh" / "cpu").iterdir():  # what cannot be read is compiled again
        kept.write_bytes(b"nothing")
    assert run("1")[1] == result


def test_a_folder_that_cannot_be_written_is_named_and_the_function_serves_all_the_same(tmp_path, monkeypatch):
    def constant(x):
        return x + 17.25

    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    folders.warn.cache_clear()
    with pytest.warns(RuntimeWarning, match=r"compiled pair functions cannot be kept in .*file.*XDG_CACHE_HOME"):
        cpu.loop_with(fill, "term", constant)(TABLE, out := np.empty(3))
    np.testing.assert_array_equal(out, TABLE + 17.25)


@pytest.mark.backends("cuda", "opencl")
def test_one_wrong_word_gives_a_short_error_with_the_users_line(backend):
    wrong = pm.PairFunction("real w = r2;\nsum[0] += w;\nsum[1] += nothing;\n", None, 2)
    x = pm.UniformGrid((1.0, 1.0, 1.0), shape=(4, 4, 4)).build(backend.array(np.random.default_rng(1).random((9, 3))))
    with pytest.raises(CompilationError) as error:
        x.stream(0.3, wrong)
    text = str(error.value)
    assert len(text) < 1000 and "sum[1] += nothing;" in text and "nothing" in text.splitlines()[0]
    assert "KERNEL stream" in error.value.source and error.value.log
    assert str(pickle.loads(pickle.dumps(error.value))) == text


@pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}")
def test_cudas_compiler_names_the_users_line_too():
    from particlemesh.backends import cuda

    defines = {
        "REAL_IS_DOUBLE": 0, "COORDINATE_IS_DOUBLE": 0, "KEYS_ARE_POSITIONS": 1, "CELLS_ARE_SCATTERED": 0, "EXTENTS": 0,
        "RESULTS": 1, "VALUES": 0,
    }  # fmt: skip
    with pytest.raises(CompilationError, match=r"pair function\(2\).*\n    sum\[0\] \+= nothing;") as error:
        cuda.compile_only("grid/queries/sums.c", defines, 90, {"pair function": "\nsum[0] += nothing;"})
    assert len(str(error.value)) < 1000


def test_an_error_has_the_line_of_the_text_instead_of_the_whole_program_s():
    text = "real x = r2;\nsum[0] += y;\n"
    program = (
        f'#define A 1\n#line 1 "kernel.c"\nint before;\n#line 1 "pair function"\n{text}#line 9 "kernel.c"\nint after;\n'
    )
    lines = program.splitlines()
    for wrong, place in (("sum[0] += y;", "pair function:2:12"), ("int after;", "kernel.c:9:12")):
        log = f"<kernel>:{lines.index(wrong) + 1}:12: error: use of undeclared identifier 'y'\n1 error generated.\n"
        assert str(CompilationError("a kernel", log, program, {"pair function": text})).startswith(f"{place}: error")
