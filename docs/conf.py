# SPDX-License-Identifier: BSD-3-Clause
"""Sphinx configuration: ``sphinx-build -W -b html docs docs/_build`` from the root."""

import importlib.metadata
import inspect
import sys
from pathlib import Path

from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # also without an installation

project = "particlemesh"
author = "The particlemesh developers"
copyright = "2026, the particlemesh developers"
try:
    release = importlib.metadata.version("particlemesh")
except importlib.metadata.PackageNotFoundError:
    release = "unreleased"

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
exclude_patterns = ["_build", "generated"]
default_role = "literal"  # docstrings write `name`, which need not be a link

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings give shapes and units, which types do not
napoleon_google_docstring = False
napoleon_use_ivar = True  # else attributes are listed twice

html_theme = "furo"
html_title = "particlemesh"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072B2", "color-brand-content": "#0072B2"},
    "dark_css_variables": {"color-brand-primary": "#56B4E9", "color-brand-content": "#56B4E9"},
}


class Methods(SphinxDirective):
    """``.. methods:: spread``: the table of the methods in a folder, from its ``METHODS``."""

    required_arguments = 1

    def run(self):
        lines = [".. list-table::", "   :header-rows: 1", "   :widths: 18 42 20 20", ""]
        rows = [("method", "what it does", "runs on", "same bits")]
        for method in importlib.import_module(f"particlemesh.{self.arguments[0]}").METHODS:
            bits = (
                "for any order of particles"
                if method.order_independent
                else "yes"
                if method.deterministic
                else ""
            )
            summary = inspect.getdoc(method).partition("\n\n")[0].replace("\n", " ")
            rows.append((f"``{method.name}``", summary, ", ".join(sorted(method.backends)), bits))
        for row in rows:
            lines += [f"   {'*' if i == 0 else ' '} - {cell}" for i, cell in enumerate(row)]
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app):
    app.add_directive("methods", Methods)
