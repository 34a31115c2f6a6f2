# SPDX-License-Identifier: BSD-3-Clause
"""Formulas as MathML, which browsers render themselves: pages need no script, no fonts and no network.

The conversion is that of docutils, on which Sphinx stands. A formula that it cannot convert is a warning, so an error.
"""

from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

logger = logging.getLogger(__name__)


def converted(node, block):
    """Return the MathML of a formula's node."""
    try:
        return tex2mathml(node.astext(), as_block=block)
    except MathError as error:
        logger.warning("formula %r: %s", node.astext(), error, location=node)
        return ""


def inline(translator, node):
    translator.body.append(converted(node, block=False))


def display(translator, node):
    translator.body.append(f'<div class="math">{converted(node, block=True)}</div>')


def leave(translator, node):
    """Write nothing after a formula; without this function Sphinx would look for another writer's."""


def setup(app):
    app.add_html_math_renderer("mathml", (_skipping(inline), leave), (_skipping(display), leave))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _skipping(visit):
    """Let a visit end the node: its text is in the formula already."""
    from docutils.nodes import SkipNode

    def visited(translator, node):
        visit(translator, node)
        raise SkipNode

    return visited
