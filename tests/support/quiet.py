# SPDX-License-Identifier: BSD-3-Clause
"""A backend that neither allocates nor waits, for calls that promise so."""

import contextlib

import pytest

from particlemesh.fourier.engines import HostEngine

WORDS = ("empty", "upload", "download", "synchronize")


@contextlib.contextmanager
def quiet(backend):
    """Within, memory, copies from and to the host, and waits are errors.

    Without pyvkfft OpenCL arrays are transformed on the host, which needs all of them: there nothing is transformed
    within, so that numbers mean nothing.
    """

    def refuse(word):
        def refused(*arguments, **options):
            raise AssertionError(f"{word} was called")

        return refused

    def untransformed(engine, array, sign, out=None):
        assert out is not None, "a transform would allocate"
        engine.backend.untaped()  # later calls would replay that nothing was transformed
        return out

    with pytest.MonkeyPatch.context() as patch:
        if backend.name == "opencl":
            patch.setattr(HostEngine, "run", untransformed)
        for word in WORDS:
            patch.setattr(backend.library, word, refuse(word))
        yield
