# SPDX-License-Identifier: BSD-3-Clause
"""Formulas as MathML, which browsers render themselves: pages need no script, no fonts and no network.

The conversion is that of docutils, on which Sphinx stands. A formula that it cannot convert is a warning, so an error,
and so is one that it would show as another.
"""

import re

from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

logger = logging.getLogger(__name__)


def checked(tex):
    """Return a formula, unless docutils would show another one.

    It takes all digits that follow as one argument, where TeX takes the first: 4/3 E, as TeX has it without braces, is
    shown as 43/E. It joins formulas between which a line is empty.
    """
    if re.search(r"\n\s*\n", tex.strip()):  # Sphinx ends a formula beside its directive with an empty line
        raise MathError("a line is empty: give each formula a directive.")
    if re.search(r"[\^_]\s*\d\d|\\sqrt\s*\d", tex):
        raise MathError("an argument has no braces: write x^{12} and \\sqrt{2}.")
    for command in re.finditer(r"\\(?:[tdc]?frac|binom)(?![a-zA-Z])", tex):
        rest = tex[command.end() :].lstrip()
        for _ in range(2):
            if not rest.startswith("{"):
                raise MathError(f"{command.group()} has an argument without braces: write {command.group()}{{1}}{{2}}.")
            depth = end = 0
            while end < len(rest) and (depth or not end):
                depth += {"{": 1, "}": -1}.get(rest[end], 0)
                end += 1
            rest = rest[end:].lstrip()
    return tex


def converted(node, block):
    """Return the MathML of a formula's node."""
    try:
        return tex2mathml(checked(node.astext()), as_block=block)
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
