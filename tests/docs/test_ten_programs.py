# SPDX-License-Identifier: BSD-3-Clause
"""A program for each field, from the text of its page, beside a truth: where it stands, and that tests run it."""

import re
import textwrap
from pathlib import Path

import numpy as np
import pytest

import mri_cases as mri
import test_docstrings

DOCS = Path(__file__).resolve().parents[2] / "docs"
# Field, page, and the lines in which its program ends; test_examples_of_pages runs all of them.
PROGRAMS = {
    "electrostatics": ("guide/pme.rst", "1.74756459"),  # Madelung's constant of rock salt
    "imaging": ("howto/from_sigpy.rst", "(10, True)"),  # the direct sum with its phases
    "halos": ("tutorials/power_spectrum.rst", "0.7"),  # deviations from the known spectrum, in errors
    "plasmas": ("guide/pic.rst", "step 0.05: momentum 0.008, energy 9e-06"),  # quarters for each half step
    "vortices": ("guide/vortex.rst", "(1.562, [0.401, 0.2])"),  # Kirchhoff's ellipse: 1.571, 0.4 and 0.2
    "immersed boundaries": (
        "guide/immersed.rst",
        "1.08 radii, 0.5 spacings more",
    ),  # the drag of a sphere, nearly its radius
    "grains": ("guide/dem.rst", "(0.2, 1.0)"),  # height and energy after a bounce
    "spheres in shear": ("guide/brownian.rst", "0.99"),  # over Taylor's dispersion
    "dynamics with ASE": ("howto/pme_dynamics.rst", "(True, True)"),  # drift and fluctuation of the energy
    "ranks": ("guide/distributed.rst", "True"),
}


@pytest.mark.parametrize("field", PROGRAMS)
def test_a_field_has_a_program_that_tests_run(field):
    page, end = PROGRAMS[field]
    assert page in test_docstrings.WITH_EXAMPLES
    text = (DOCS / page).read_text(encoding="utf-8")
    results = re.findall(r"^   (?!>>>|\.\.\.)(\S.*)$", text, re.MULTILINE)
    assert end in results, end


@pytest.mark.filterwarnings("ignore:Samples will be rescaled")
def test_the_program_of_mri_nufft():
    pytest.importorskip("mrinufft", reason="mri-nufft is not installed")
    text = (DOCS / "tutorials" / "mri.rst").read_text(encoding="utf-8")
    (code,) = re.findall(r"\.\. code-block:: python\n\n((?:   .*\n|\n)+)", text)
    rng, shape = np.random.default_rng(2), (12, 12)
    maps = rng.normal(size=(8, *shape)) + 1j * rng.normal(size=(8, *shape))
    names = {"samples": mri.radial(9, 24) * 0.99, "image": rng.normal(size=shape) + 0j, "maps": maps}
    samples, image = names["samples"], names["image"]
    exec(textwrap.dedent(code), names)
    exact = mri.samples_of(image[None, None], samples, shape, maps)
    np.testing.assert_allclose(names["measured"], exact[0], atol=1e-5 * abs(exact).max())
    expected = mri.images_of(exact, samples, shape, maps, names["operator"].density)[0, 0]
    np.testing.assert_allclose(names["reconstructed"], expected, atol=1e-5 * abs(expected).max())
