# SPDX-License-Identifier: BSD-3-Clause
"""Every public name has an entry in the pages: a name without one is a warning of Sphinx, so an error.

Public is what ``__all__`` of a package lists, and every member of its classes without an underscore, inherited
or not. A page leaves out plumbing by ``:exclude-members:``.
"""

import importlib
import inspect
import re
from pathlib import Path

from particlemesh import apps

FOLDERS = sorted(
    path.parent.name
    for path in Path(apps.__path__[0]).glob("*/__init__.py")
    if "__all__" in path.read_text(encoding="utf-8")
)
PACKAGES = (
    "particlemesh",
    "particlemesh.fourier",
    "particlemesh.kernels",
    "particlemesh.kernels.checks",
    "particlemesh.kernels.cpu",
    "particlemesh.kernels.lanes",
    "particlemesh.distributed",
    *(f"particlemesh.adapters.{name}" for name in ("ase", "mdanalysis", "pandas", "xarray")),
    *(f"particlemesh.apps.{name}" for name in FOLDERS),
)
# Of Python's own classes, and of mri-nufft's, whose pages have them.
FOREIGN = ("builtins", "mrinufft")
LEFT_OUT = re.compile(r"^\.\. autoclass:: (\S+)\n((?:   .*\n)*?)   :exclude-members: (.*)$", re.MULTILINE)
REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def public():
    """Return the full names of all public things and of their members."""
    names = set()
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if is_foreign(thing):
                continue
            names.add(f"{package}.{name}")
            if inspect.isclass(thing) and thing.__name__ == name:  # another name has the members of the first
                names |= {f"{package}.{name}.{member}" for member in members(thing)}
    return names


def is_foreign(thing):
    return any(parent.__module__.split(".")[0] == "mrinufft" for parent in getattr(thing, "__mro__", ()))


def members(thing):
    """Return the public members of a class with a docstring of their own, those of its parents included."""
    names = set()
    for parent in thing.__mro__:
        if parent.__module__.split(".")[0] not in FOREIGN:
            names |= {n for n, value in vars(parent).items() if not n.startswith("_") and described(value)}
    return names


def described(value):
    """Whether a member is a method or a property with a docstring: fields are described by their class."""
    value = getattr(value, "__func__", value)
    is_member = inspect.isroutine(value) or isinstance(value, property) or hasattr(value, "attrname")
    return is_member and bool(getattr(value, "__doc__", None))


def left_out(pages):
    """Return the last two parts of the names of members that pages leave out: ``Plan.problem``."""
    return {
        f"{thing.split('.')[-1]}.{member.strip()}"
        for page in pages
        for thing, _, names in LEFT_OUT.findall(page.read_text(encoding="utf-8"))
        for member in names.split(",")
    }


def missing(entries):
    """Return the public names that are neither among the entries of the pages nor left out on purpose."""
    out = left_out(REFERENCE.glob("*.rst"))
    return sorted(name for name in public() - set(entries) if ".".join(name.split(".")[-2:]) not in out)


def report(app, env):
    """Warn of each public name without an entry."""
    from sphinx.util import logging

    for name in missing(env.domaindata["py"]["objects"]):
        logging.getLogger(__name__).warning("%s is public and has no entry: add it to a page of docs/reference", name)


def words(app, env, node, contnode):
    """Leave the words of a docstring's types as they are: ``array (N, d)`` names no class."""
    in_a_type = node.get("refdomain") == "py" and node.get("refspecific") and "refwarn" not in node
    return contnode if in_a_type else None


def setup(app):
    app.connect("env-check-consistency", report)
    app.connect("missing-reference", words)
    return {"parallel_read_safe": True}
