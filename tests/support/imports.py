# SPDX-License-Identifier: BSD-3-Clause
"""What a module imports, read from its text."""

import ast


def imported(tree):
    """The dotted names that a module imports anywhere by the names that it uses, also for type checking: pairs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
