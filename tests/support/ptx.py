# SPDX-License-Identifier: BSD-3-Clause
"""What CUDA's compiler makes of the kernels that a call takes, without a GPU."""

import functools
import re
import zlib

import pytest

from particlemesh.backends import cuda, opencl

ATOMIC = re.compile(r"\b(?:atom|red|atomg|redg)\.")


def kernels_of(monkeypatch, call):
    """Make a call on OpenCL and return the files, names and defines of the kernels that it asked for."""
    asked, plain = {}, opencl.OpenClBackend.kernel

    def kernel(self, file, name, defines, *texts):
        asked[file, name, tuple(sorted(defines.items()))] = None
        return plain(self, file, name, defines, *texts)

    with monkeypatch.context() as patch:
        patch.setattr(opencl.OpenClBackend, "kernel", kernel)
        call()
    return list(asked)


def kernel_of(monkeypatch, expected, call):
    """Return file, name and defines of the kernel of a name that a call on OpenCL takes; nothing runs."""
    launches = []

    def kernel(self, file, name, defines, texts=None):
        launches.append((file, name, defines))
        return lambda *arguments, **more: None

    with monkeypatch.context() as patch:
        patch.setattr(opencl.OpenClBackend, "kernel", kernel)
        call()
    (mine,) = [asked for asked in launches if asked[1] == expected]
    return mine


def ptx(file, name, defines):
    """Return the PTX of one kernel: a chip that the compiler does not know yet gets no binary."""
    return _entries(file, tuple(sorted(dict(defines).items())))[name]


@functools.cache
def _entries(file, defines):
    text = cuda.compile_only(file, dict(defines), 9999).decode()
    return {entry.partition("(")[0].strip(): entry for entry in text.split(".entry ")[1:]}


def single(method):
    """Whether it is float32 of a method that compiles where tests are thinned: for every second one it is float64."""
    return zlib.crc32(method.__module__.encode()) % 2 == 0


def without_nvrtc():
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except Exception as error:  # CuPy wraps a missing library in errors of many kinds
        return str(error).splitlines()[0]
    return None


NVRTC = [
    pytest.mark.opencl,
    pytest.mark.skipif(opencl.available() is not None, reason="no OpenCL device"),
    pytest.mark.skipif(without_nvrtc() is not None, reason=f"no NVRTC: {without_nvrtc()}"),
]


def case(*values, id):
    """A case that needs CUDA's compiler."""
    return pytest.param(*values, marks=NVRTC, id=id)
