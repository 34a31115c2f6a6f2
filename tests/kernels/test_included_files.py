# SPDX-License-Identifier: BSD-3-Clause
"""Kernels in users' files: an edited include is compiled again, and what is missing is named."""

from pathlib import Path

import numpy as np
import pytest

from particlemesh import kernels
from particlemesh.backends import source

CODE = """
KERNEL fill(GLOBAL real* x, const i64 count)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) x[i] = FACTOR;
}
"""


def write(folder: Path, **files: str) -> Path:
    """Write files named without their ends, and return the kernel's."""
    (folder / "sub").mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name.replace('__', '/')}.h").write_text(text)
    path = folder / "fill.c"
    path.write_text(files.get("main", '#include "factor.h"\n') + CODE)
    return path


@pytest.mark.backends("opencl", "cuda")
def test_an_error_in_an_included_file_shows_its_line(backend, tmp_path):
    path = write(tmp_path, factor="\n#define FACTOR 1\nDEVICE real wrong(real x) { return absent; }\n")
    with pytest.raises(kernels.CompilationError, match="absent") as error:
        kernels.compile_kernel(backend.library, path, "fill", "float64")
    assert str(error.value).splitlines()[1].strip() == "DEVICE real wrong(real x) { return absent; }"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"factor": '#include "sub/a.h"\n', "sub__a": '#include "b.h"\n', "sub__b": "found\n"}, 1),
        ({"factor": "found\n", "main": '  #include "factor.h"  // why\n'}, 1),
        ({"factor": "#pragma once\nfound\n", "main": '#include "factor.h"\n#include "factor.h"\n'}, 1),
        (
            {"factor": "found\n", "main": '/*\n#include "absent.h"\n*/\n// #include "absent.h"\n#include "factor.h"\n'},
            1,
        ),
        ({"factor": '// guard\n#ifndef A\n#define A\n#include "b.h"\nfound\n#endif', "b": '#include "factor.h"'}, 1),
        ({"factor": "#pragma once\nfound", "b": "#pragma once\n", "main": '#include "b.h"\n#include "factor.h"\n'}, 1),
    ],
)
def test_includes_mean_what_they_mean_in_c(tmp_path, files, expected):
    text = source.read(write(tmp_path, **files)).expanded
    assert text.count("found") == expected
    assert text.rstrip().endswith(CODE.rstrip())
    lines = text.splitlines()
    at = max(n for n, line in enumerate(lines) if line.endswith('"fill.c"') and line.startswith("#line"))
    kernel = next(n for n, line in enumerate(lines) if line.startswith("KERNEL"))
    written = (tmp_path / "fill.c").read_text().splitlines()
    assert written[int(lines[at].split()[1]) - 1 + kernel - at - 1] == lines[kernel]  # the compiler's line numbers


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        ({"factor": '\n#include "absent.h"\n'}, FileNotFoundError, r'factor\.h, line 2: #include "absent\.h" names no'),
        ({"factor": '#include "factor.h"\n'}, ValueError, r"in a circle: 'factor\.h' includes 'factor\.h'"),
        (
            {"factor": '#include "b.h"\n', "b": '#include "factor.h"\n'},
            ValueError,
            r"'b\.h' includes 'factor\.h'\. Give",
        ),
    ],
)
def test_includes_that_cannot_be_read_are_named(tmp_path, files, error, message):
    with pytest.raises(error, match=message):
        source.read(write(tmp_path, **files))


def test_code_in_a_string_is_no_path_and_has_no_folder():
    with pytest.raises(FileNotFoundError, match="kernel, line 2: .* code in a string: give a Path"):
        source.code_of('\n#include "absent.h"\n')
    assert "struct" in source.code_of('#include "particles/coordinates.h"\n').expanded
    with pytest.raises(TypeError, match=r"names a file; give Path\('fill\.c'\)"):
        kernels.compile_kernel(kernels.backend("cpu"), "fill.c", "fill", np.float64)
