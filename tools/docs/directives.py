# SPDX-License-Identifier: BSD-3-Clause
"""What the pages in docs derive from the library: tables of methods and builders, the papers, the changes."""

import importlib
import inspect
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from sphinx.util.docutils import SphinxDirective

from particlemesh.grid.builders.builder import Builder
from particlemesh.grid.sizes import Problem

ROOT = Path(__file__).resolve().parents[2]
BIBLIOGRAPHY = ROOT / "src" / "particlemesh" / "reference.bib"


def reproducible(method):
    """Return the table cell that says where a method or a builder supports ``deterministic=True``."""
    if not issubclass(method, Builder):
        return "in any order of particles" if method.order_independent else "yes" if method.deterministic else ""
    supported = []
    for name in sorted(method.backends):
        backend, real = SimpleNamespace(name=name), np.dtype(np.float32)  # needs no device
        problem = Problem(backend, 8, 3, 8, real, True, True, extents=1, levels=1, shape=(2, 2, 2), options={})
        if method.declines(problem) is None:
            supported.append(name)
    return "yes" if len(supported) == len(method.backends) else ", ".join(supported)


class Methods(SphinxDirective):
    """``.. methods:: spread``: the table of the methods (or builders of grids) in a folder, from its ``METHODS``."""

    required_arguments = 1

    def run(self):
        rows = [("method", "algorithm", "backends", "reproducible", "paper")]
        for method in importlib.import_module(f"particlemesh.{self.arguments[0]}").METHODS:
            summary = inspect.getdoc(method).partition("\n\n")[0].replace("\n", " ")
            cite = f"[{method.cite}]_" if method.cite else ""
            where = ", ".join(sorted(method.backends))
            rows.append((f"``{method.name}``", summary, where, reproducible(method), cite))
        lines = [".. list-table::", "   :header-rows: 1", "   :widths: 14 40 16 16 14", ""]
        for row in rows:
            lines += [f"   {'*' if i == 0 else ' '} - {cell}".rstrip() for i, cell in enumerate(row)]
        return self.parse_text_to_nodes("\n".join(lines))


class Options(SphinxDirective):
    """``.. options:: spread interpolate``: the options of the methods in these folders."""

    required_arguments = 1
    optional_arguments = 1

    def run(self):
        rows = {}
        for folder in self.arguments:
            for method in importlib.import_module(f"particlemesh.{folder}").METHODS:
                for name, option in method.options.items():
                    rows[method.name, name] = (
                        f"``{method.name}``",
                        f"``{name}``",
                        option.allowed_words(),
                        option.words,
                    )
        lines = [".. list-table::", "   :header-rows: 1", "   :widths: 16 16 30 38", ""]
        for row in [("method", "option", "allowed values", "meaning"), *rows.values()]:
            lines += [f"   {'*' if i == 0 else ' '} - {cell}".rstrip() for i, cell in enumerate(row)]
        return self.parse_text_to_nodes("\n".join(lines))


class Changelog(SphinxDirective):
    """``.. changelog::``: CHANGELOG.md, whose headings, items and code are all the Markdown that it has."""

    def run(self):
        file = ROOT / "CHANGELOG.md"
        self.env.note_dependency(str(file))
        lines = []
        for line in file.read_text(encoding="utf-8").splitlines()[1:]:
            if heading := re.match(r"(#+) (.*)", line):
                lines += [heading[2], ("-" if heading[1] == "##" else "~") * len(heading[2]), ""]
            elif line.startswith("- ") and lines[-1]:
                lines += ["", line]
            else:
                lines.append(line)
        text = "\n".join(lines).replace("*", r"\*")
        return self.parse_text_to_nodes(re.sub(r"`+", "``", text), allow_section_headings=True)


class References(SphinxDirective):
    """``.. references::``: everything in reference.bib, as targets of ``[key]_``."""

    def run(self):
        self.env.note_dependency(str(BIBLIOGRAPHY))
        entries = re.findall(r"@\w+\{(\w+),(.*?)\n\}", BIBLIOGRAPHY.read_text(encoding="utf-8"), re.DOTALL)
        lines = []
        for key, body in sorted(entries):
            lines += [f".. [{key}] \\{written(fields(body))}", ""]  # \\: "R. W." would begin a list
        return self.parse_text_to_nodes("\n".join(lines))


def fields(body):
    """Return the fields of a BibTeX entry that has one to a line."""
    pairs = re.findall(r"^\s*(\w+)\s*=\s*[{\"](.*)[}\"],?\s*$", body, re.MULTILINE)
    return {key.lower(): plain(value) for key, value in pairs}


def plain(text):
    """Return text of BibTeX without its mark-up."""
    text = re.sub(r"\\[\"'`^~=.vcHku]\s*\{?(\w)\}?", r"\1", text)
    text = re.sub(r"(?<!`)`([^`']+)'(?!')", "\u2018\\1\u2019", text)
    for old, new in (("``", "“"), ("''", "”"), ("---", "—"), ("--", "–"), ("{", ""), ("}", ""), ("\\", "")):
        text = text.replace(old, new)
    return text.replace("*", r"\*")


def written(entry):
    """Return an entry as a sentence."""
    people = [" ".join(reversed(name.split(", ", 1))) for name in entry.get("author", "").split(" and ")]
    parts = [", ".join(people), entry["title"]]
    where = entry.get("journal") or entry.get("booktitle") or entry.get("publisher") or entry.get("institution", "")
    where = f"*{where}*" if where else ""
    if "volume" in entry and "journal" in entry:
        where += f" {entry['volume']}"
    if "pages" in entry:
        where += f", {entry['pages']}"
    parts.append(f"{where} ({entry.get('year', 'no year')})".strip())
    if "doi" in entry:
        parts.append(f"`doi:{entry['doi']} <https://doi.org/{entry['doi']}>`__")
    return ". ".join(part for part in parts if part) + "."


def escape_stars(app, what, name, thing, options, lines):
    """Let docstrings write ``(..., *mesh.field_shape)`` as Python does: it is no emphasis."""
    for i, line in enumerate(lines):
        if ">>>" not in line:
            lines[i] = re.sub(r"(?<=, )\*(?=\w)", r"\\*", line)


def without_aliases(app, what, name, thing, skip, options):
    """Leave out the fields of named tuples, which their parameters describe: Python calls each an alias of a number."""
    return True if (getattr(thing, "__doc__", None) or "").startswith("Alias for field number") else None


def setup(app):
    app.add_directive("methods", Methods)
    app.add_directive("options", Options)
    app.add_directive("references", References)
    app.add_directive("changelog", Changelog)
    app.connect("autodoc-process-docstring", escape_stars, priority=400)  # before napoleon, at 500
    app.connect("autodoc-skip-member", without_aliases)
    return {"parallel_read_safe": True}
