# SPDX-License-Identifier: BSD-3-Clause
"""Records are a kernel's last parameters: CUDA's launches pack them behind all others, and OpenCL would not notice."""

import functools
import re
from pathlib import Path

import numpy as np
import pytest

import particlemesh
from particlemesh.backends.base import Record
from particlemesh.backends.signature import ArgumentError, Signatures, behind_a_record, parameters
from particlemesh.backends.source import code_of

ROOT = Path(particlemesh.__file__).parent
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
KERNEL = re.compile(r"\bKERNEL\s+(\w+)\s*\(([^)]*)\)")
MACRO = re.compile(r"^\s*#\s*define\s+(\w+)[ \t]+(.*)$", re.MULTILINE)
STRUCT = re.compile(r"typedef\s+struct\s*\{[^{}]*\}\s*(\w+)\s*;")
BEFORE, LAST = "const i64 count, const Pair pair", "const Pair pair, const i64 count"


@functools.cache
def plain(file):
    return COMMENT.sub(" ", file.read_text()).replace("\\\n", " ")


@functools.cache
def structs():
    return {s for file in [*ROOT.rglob("*.h"), *ROOT.rglob("*.c")] for s in STRUCT.findall(plain(file))}


def definitions():
    """Each definition of each macro with parameters of kernels, by name: those of all files and conditions."""
    bodies = {}
    for file in [*ROOT.rglob("*.h"), *ROOT.rglob("*.c")]:
        for name, body in MACRO.findall(plain(file)):
            if re.search(r"\bconst\b|\bGLOBAL\b", body) and "(" not in body:
                bodies.setdefault(name, set()).add(body)
    return bodies


def orders(declared, macros):
    """Return the kinds of a kernel's parameters in order, one list for each way to expand its macros."""
    name = next((n for n in re.findall(r"\w+", declared) if n in macros), None)
    if name is None:
        words = [(("*" in d), set(re.findall(r"\w+", d))) for d in declared.split(",")]
        return [["record" if not pointer and w & structs() else "other" for pointer, w in words if w]]
    return [
        kinds
        for body in macros[name]
        for kinds in orders(re.sub(rf"\b{name}\b", lambda _, body=body: body, declared, count=1), macros)
    ]


KERNELS = [(file, *kernel) for file in sorted(ROOT.rglob("*.c")) for kernel in KERNEL.findall(plain(file))]


def test_of_every_kernel_of_the_package_records_are_last():
    macros, with_records, wrong = definitions(), 0, []
    for file, name, declared in KERNELS:
        for kinds in orders(declared, macros):
            with_records += "record" in kinds
            if kinds != sorted(kinds):  # "other" before "record"
                wrong.append(f"{file.relative_to(ROOT)}: {name}")
    assert not wrong
    assert len(KERNELS) > 150 and with_records > 100


@pytest.mark.parametrize(("declared", "last"), [(BEFORE, True), (LAST, False)])
@pytest.mark.parametrize("prelude", ["backends/opencl.h", "backends/cuda.h"])
def test_a_launch_is_refused_if_something_follows_a_record(declared, last, prelude):
    struct = "typedef struct { i64 first, second; } Pair;"
    file = code_of(f"{struct}\nKERNEL order(GLOBAL const int* x, {declared} WITH_LOCAL_POOL) {{}}")
    facts = {"GROUP_SIZE": 32, "HAS_FP64": 1, "HAS_WARP": 0, "HAS_PTX": 0, "HAS_MMA": 0, "HAS_VECTOR_ATOMIC": 0}
    known = Signatures(prelude, file, facts | {"REAL_IS_DOUBLE": 0})
    x, pair = np.zeros(1, np.int32), Record("=2q", 1, 2)
    if last:
        known.check("order", (x, 3, pair))
        return
    message = "'order' has the parameter 'count' behind the record 'pair'; records come last. Move 'count' before"
    with pytest.raises(ArgumentError, match=message):
        known.check("order", (x, pair, 3))


def test_local_memory_may_follow_records():
    code = """
        typedef long i64;
        typedef struct { i64 a; } One;
        KERNEL k(const i64 n, const One one, const One other, __local ulong2* pool_) { }
        KERNEL wrong(const One one, const One other, const i64 n) { }
    """
    known = parameters(code)
    assert behind_a_record(known["k"]) is None
    assert [p.name for p in behind_a_record(known["wrong"])] == ["one", "n"]
