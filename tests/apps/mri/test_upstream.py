# SPDX-License-Identifier: BSD-3-Clause
"""The file that the page offers to mri-nufft works there: either library first, and mri-nufft alone."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import particlemesh as pm

PAGE = Path(__file__).parents[3] / "docs" / "developers" / "mri_nufft.rst"
SHOWN = """
import numpy as np, mrinufft
from mrinufft.operators.interfaces.particlemesh import MRIParticlemesh
assert mrinufft.get_operator("particlemesh") is MRIParticlemesh
assert "particlemesh" in mrinufft.list_backends(available_only=True)
operator = mrinufft.get_operator("particlemesh")(np.zeros((3, 2)), (4, 4))
print(abs(operator.op(np.ones((4, 4), complex))).round(3))
"""
ALONE = """
import sys
sys.modules["particlemesh"] = None  # as if it were not installed
import mrinufft
assert "particlemesh" in mrinufft.list_backends()
assert "particlemesh" not in mrinufft.list_backends(available_only=True)
try:
    mrinufft.get_operator("particlemesh")([[0.0, 0.0]], (4, 4))
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        (SHOWN, "[2. 2. 2.]"),  # 16 pixels over sqrt(16 * 4)
        ("import particlemesh.apps.mri\n" + SHOWN, "[2. 2. 2.]"),
        (ALONE, "particlemesh"),
    ],
    ids=["mri-nufft first", "particlemesh first", "alone"],
)
def test_the_file_of_the_page_is_a_backend(program, printed, tmp_path):
    spec = importlib.util.find_spec("mrinufft")
    if spec is None:
        pytest.skip("mri-nufft is not installed")
    (code,) = re.findall(r"\.\. code-block:: python\n\n((?:   .*\n|\n)+)", PAGE.read_text(encoding="utf-8"))
    shutil.copytree(Path(spec.origin).parent, tmp_path / "mrinufft", ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "mrinufft" / "operators" / "interfaces" / "particlemesh.py"
    file.write_text(textwrap.dedent(code), encoding="utf-8")
    places = [str(tmp_path), str(Path(pm.__file__).parents[1])]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], env=os.environ | {"PYTHONPATH": os.pathsep.join(places)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert printed in done.stdout
