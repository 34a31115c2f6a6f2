# SPDX-License-Identifier: BSD-3-Clause
"""The wheel's PoCL on processors that are newer than its compiler: for tests only, since it writes into PoCL's memory.

LLVM of 2022 calls an unknown processor ``generic``, which its own front end refuses (pocl issue 1049). No option
changes the name. PoCL reads it from its device record at each compilation, so it is corrected there.
"""

import ctypes
import shutil
from pathlib import Path

import pytest

_WORDS = 200  # of PoCL's device record that are searched; the name is among the first 100
NAMES = []  # kept alive: the records point to them


def _readable():
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights = line.split()[:2]
        if rights.startswith("r"):
            yield tuple(int(x, 16) for x in span.split("-"))


def name_processors():
    """Give each PoCL that does not know the processor the name of a generation that it knows."""
    try:
        import pyopencl as cl

        from particlemesh.backends import pocl

        devices = [d for p in cl.get_platforms() for d in p.get_devices() if "PoCL" in d.version]
    except (ImportError, RuntimeError):  # no OpenCL
        return
    if shutil.which("ld") is None or not Path("/proc/self/maps").exists():
        return
    for device in devices:
        if not pocl.knows_processor(cl, device):
            _name(device)


def _name(device):
    # x86-64-v3 is AVX2, FMA, BMI; clang takes these names for any processor.
    flags = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")), "")
    name = ctypes.create_string_buffer(b"x86-64-v3" if {"avx2", "fma", "bmi2"} <= set(flags.split()) else b"x86-64")
    regions = list(_readable())

    def text(address):
        inside = any(begin <= address < end - 32 for begin, end in regions)
        return ctypes.string_at(address, 32).split(b"\0")[0] if inside else b""

    words = (ctypes.c_size_t * _WORDS).from_address(device.int_ptr)
    for n in range(1, _WORDS):
        if text(words[n]) == b"generic" and text(words[n - 1]).startswith(b"x86_64"):  # after the target triple
            NAMES.append(name)
            words[n] = ctypes.addressof(name)
            return


def known_to_children():
    """Skip a test whose child processes use PoCL, if it does not know the processor by itself."""
    if NAMES:
        pytest.skip("PoCL does not know this processor, and processes that tests start cannot be told its name")
