# SPDX-License-Identifier: BSD-3-Clause
"""Sphinx configuration: ``sphinx-build -W -b html docs docs/_build`` from the root."""

import importlib
import importlib.metadata
import importlib.util
import inspect
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools" / "docs"), str(ROOT / "src")]  # directives; the library without an installation

project = "particlemesh"
author = "The particlemesh developers"
copyright = "2026, the particlemesh developers"
try:
    release = importlib.metadata.version("particlemesh")
except importlib.metadata.PackageNotFoundError:
    release = "unreleased"

extensions = [
    "sphinx.ext.autodoc", "sphinx.ext.linkcode", "sphinx.ext.napoleon", "sphinx_gallery.gen_gallery", "directives",
    "mathml", "public_names",
]  # fmt: skip
exclude_patterns = ["_build", "generated"]
sphinx_gallery_conf = importlib.import_module("gallery").CONFIGURATION
suppress_warnings = ["ref.citation"]  # a paper in reference.bib need not be cited in a docstring
default_role = "literal"  # docstrings write `name`, which need not be a link

nitpicky = True  # a role that points nowhere is a warning; words of types are no roles (tools/docs/public_names.py)

autodoc_member_order = "bysource"
# What a class inherits from ours is its own for readers; what it inherits from Python's is not.
autodoc_default_options = {"members": True, "inherited-members": "tuple, BaseException"}
# Pages are also made without this large library; mri-nufft cannot be imported beside a stand-in for it.
autodoc_mock_imports = [] if importlib.util.find_spec("torch") else ["torch", "mrinufft"]
autodoc_typehints = "none"  # the docstrings give shapes and units, which types do not
napoleon_google_docstring = False
napoleon_use_ivar = True  # else attributes are listed twice

SOURCE = "https://github.com/particlemesh/particlemesh"


def linkcode_resolve(domain, info):
    """Return the address of a name's first line on GitHub, None of what is no function or class of ours."""
    thing = sys.modules.get(info["module"])
    for part in info["fullname"].split("."):
        thing = getattr(thing, part, None)
    thing = inspect.unwrap(getattr(thing, "fget", None) or getattr(thing, "func", None) or thing)
    try:
        path, (lines, first) = Path(inspect.getsourcefile(thing)), inspect.getsourcelines(thing)
    except (OSError, TypeError):
        return None
    if not path.is_relative_to(ROOT):
        return None
    return f"{SOURCE}/blob/main/{path.relative_to(ROOT).as_posix()}#L{first}-L{first + len(lines) - 1}"


html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"particlemesh {release}"
html_static_path = ["static"]
html_search_scorer = str(ROOT / "docs" / "scorer.js")  # relative ones are looked for where the command runs
html_css_files = ["math.css", "gallery.css", "figures.css"]
html_theme_options = {
    "source_repository": SOURCE,
    "source_branch": "main",
    "source_directory": "docs/",
    "light_css_variables": {"color-brand-primary": "#0072B2", "color-brand-content": "#0072B2"},
    "dark_css_variables": {"color-brand-primary": "#56B4E9", "color-brand-content": "#56B4E9"},
}
