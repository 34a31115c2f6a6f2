# SPDX-License-Identifier: BSD-3-Clause
"""What keeps the tree readable: imports, one method one place, sizes, docstrings, the kernel dialect."""

import ast
import collections
import functools
import graphlib
import importlib
import inspect
import pkgutil
import re
import runpy
from pathlib import Path

import pytest

import particlemesh as pm
import particlemesh.grid
from devices import METHODS
from imports import imported
from particlemesh.choosing import sources
from particlemesh.grid.builders import METHODS as BUILDERS
from particlemesh.grid.builders.builder import Builder
from particlemesh.methods.contract import Method

ROOT = Path(pm.__file__).parent
MODULES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))
KERNELS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.[ch]"))

# What lies beside the folders; a tenth module beside the first two belongs into one of them.
TOP = {
    f"{name}.py"
    for name in [
        "__init__",
        "__main__",
        "box",
        "checks",
        "functions",
        "ghosts",
        "mesh",
    ]
}
# Code is a cost: the most lines of code (no comments, docstrings, blank lines) of each folder. They fall, unless a
# folder gets something new.
BUDGET = {
    ".": 918,
    "adapters": 1598,
    "apps/brownian": 2316,
    "apps/dem": 2759,
    "apps/files": 3527,
    "apps/mri": 667,
    "apps/nufft": 1674,
    "apps/pme": 6166,
    "arrays": 1048,
    "autograd": 1581,
    "backends": 3413,
    "choosing": 855,
    "command": 3087,
    "distributed": 3963,
    "fourier": 3173,
    "grid": 8871,
    "interpolate": 3401,
    "kernels": 267,
    "methods": 744,
    "orders": 2043,
    "particles": 1676,
    "plan": 830,
    "sorting": 1106,
    "spread": 4763,
    "walk": 494,
    "window": 562,
}
# Imports go from a higher rank to a lower or equal one; equal ranks know each other only within one group.
RANKS = [
    ("values", ["box.py", "ghosts.py", "mesh.py", "window/", "checks.py"]),
    ("backends", ["backends/"]),
    ("arrays", ["arrays/"]),
    ("sorting", ["sorting/"]),
    ("particles", ["particles/"]),
    ("orders", ["orders/"]),
    ("methods", ["methods/", "walk/", "choosing/candidates.py", "choosing/arrangement.py"]),
    ("kernels", ["kernels/"]),
    ("directions", ["spread/", "interpolate/", "grid/"]),
    ("choosing", ["choosing/"]),
    ("plan", ["plan/", "functions.py", "__init__.py"]),
    ("adapters", ["adapters/"]),
    ("fourier", ["fourier/"]),
    ("distributed", ["distributed/"]),
    ("apps", ["apps/", "autograd/", "data/"]),
    ("command", ["command/", "__main__.py"]),
]


def rank(module):
    for n, (_, members) in enumerate(RANKS):
        for member in members:
            if module == member or (member.endswith("/") and module.startswith(member)):
                return n
    raise AssertionError(f"{module} has no rank: give it one in RANKS")


@functools.cache
def tree_of(module):
    return ast.parse((ROOT / module).read_text(encoding="utf-8"))


@functools.cache
def ours(module):
    """The dotted names of this package that a file imports."""
    names = (dotted for _, dotted in imported(tree_of(module)))
    return [dotted for dotted in names if dotted.split(".")[0] == "particlemesh"]


@functools.cache
def file_of(name):
    """The file of a dotted name of ours, which may end in something that the file defines."""
    parts = name.split(".")[1:]
    for length in range(len(parts), -1, -1):
        stem = "/".join(parts[:length])
        for candidate in (f"{stem}.py", f"{stem}/__init__.py".lstrip("/")):
            if candidate in MODULES:
                return candidate
    raise AssertionError(name)


def test_no_module_lies_beside_the_folders_that_belongs_into_one():
    assert {module for module in MODULES if "/" not in module} <= TOP


def test_every_folder_says_what_is_in_it():
    folders = {Path(module).parent for module in MODULES}
    assert [f for f in folders if not ast.get_docstring(tree_of((f / "__init__.py").as_posix()))] == []


def bound(tree):
    """The names that a file gives to variables, parameters, attributes and functions."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, (ast.arg, ast.FunctionDef)):
            yield node.arg if isinstance(node, ast.arg) else node.name


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "studies", "tools", "examples"])
def test_names_say_what_they_hold(folder):
    empty = {"told", "wanted", "found", "came", "those", "own"}
    # Whatever changes the code of this file drops measured times.
    paths = [p for p in (Path(__file__).parents[1] / folder).rglob("*.py") if p.parts[-2:] != ("backends", "source.py")]
    named = {p.name: set(bound(ast.parse(p.read_text(encoding="utf-8")))) & empty for p in paths}
    assert {name: words for name, words in named.items() if words} == {}


def test_no_message_says_1_axes():
    others = ("apps/files", "command")  # where files are named
    texts = {path: (ROOT / path).read_text() for path in MODULES if not folder_of(path).startswith(others)}
    wrong = {path: plurals for path, text in texts.items() if (plurals := re.findall(r"\{[^{}]*\} axes", text))}
    assert not wrong, "say 'in {ndim}-D', or take checks.plural"


def test_no_test_reads_another_folders_tests():
    """A folder's tests run by themselves; what several folders need lies in support."""
    tests = Path(__file__).parent
    paths = [p for p in tests.rglob("*.py") if p.parent.name != "support" and p.name != "conftest.py"]
    assert len({path.name for path in paths}) == len(paths), "two test files of one name cannot be imported together"
    for path in paths:
        for name in re.findall(r"^(?:from|import) (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            assert (path.parent / f"{name}.py").exists(), f"{path.relative_to(tests)} reads {name}"


def test_imports_run_one_way():
    pairs = [(module, file_of(name)) for module in MODULES for name in ours(module)]
    assert [
        f"{m} imports the package itself" for m, n in pairs if n == "__init__.py" and rank(m) < rank("apps/x")
    ] == []
    assert [(m, there) for m, there in pairs if rank(there) > rank(m)] == []


def circle(graph):
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return None


def test_no_modules_import_each_other():
    """Two modules that import each other can be read, tested and changed only together."""
    graph = {module: {file_of(name) for name in ours(module)} - {module, "__init__.py"} for module in MODULES}
    assert graph["grid/uniform_grid.py"]
    assert circle(graph) is None
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}


# What users are promised: programs beside the library import nothing else, and applications are such programs.
PUBLIC = (
    "particlemesh", "particlemesh.distributed", "particlemesh.fourier", "particlemesh.kernels",
    "particlemesh.kernels.checks", "particlemesh.kernels.cpu", "particlemesh.kernels.lanes",
    "particlemesh.grid.storage", "particlemesh.autograd.jax", "particlemesh.autograd.torch",
)  # fmt: skip
APPLICATIONS = [module for module in MODULES if module.startswith("apps/")]


def promised(name):
    """Whether a dotted name is that of a public module or of a name in one, or of an application."""
    if name in PUBLIC or name.startswith("particlemesh.apps."):
        return True
    module, _, thing = name.rpartition(".")
    if module not in PUBLIC:
        return False
    return thing in exported(module)


def exported(module):
    """The names in ``__all__`` of a module, or those that it defines without an underscore."""
    tree = tree_of(file_of(module))
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    return {n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and not n.name.startswith("_")}


def test_applications_import_and_read_public_names_only():
    """``pm.fourier.engines.engine`` is no import, and as hidden."""
    hidden = {(module, name) for module in APPLICATIONS for name in ours(module) if not promised(name)}
    for module in APPLICATIONS:
        names = dict(imported(tree_of(module)))
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr != "__version__":
                name = f"{names.get(node.value.id, '')}.{node.attr}"
                if name.rpartition(".")[0] in PUBLIC and not promised(name):
                    hidden.add((module, name))
    assert not hidden, "what applications miss, users miss: make it public"


def test_what_is_not_public_is_found():
    assert promised("particlemesh.kernels.take")
    assert promised("particlemesh.apps.files.trajectory")
    assert promised("particlemesh.autograd.torch.potential")
    for name in ("backends", "backends.cpu.run", "kernels.arrays", "kernels.nothing", "checks", "fourier.engines"):
        assert not promised(f"particlemesh.{name}"), name


def test_the_library_does_not_stand_on_what_it_offers_to_programs():
    """`kernels` is a face: a module of the library imports what lies behind it."""
    users = [m for m in MODULES if not m.startswith(("kernels/", "apps/", "command/"))]
    assert [m for m in users if any(n.startswith("particlemesh.kernels") for n in ours(m))] == []


@pytest.mark.parametrize("module", ["box.py", "mesh.py", "window/window.py"])
def test_box_mesh_and_window_stand_on_their_own(module):
    assert {RANKS[rank(file_of(name))][0] for name in ours(module)} <= {"values"}


def defined(package, contract):
    """Classes with a name that fulfil a contract, whatever their bases are called, in all modules of a package."""
    classes = set()
    for entry in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(entry.name)
        local = (thing for thing in vars(module).values() if inspect.isclass(thing) and thing.__module__ == entry.name)
        classes |= {thing for thing in local if issubclass(thing, contract) and hasattr(thing, "name")}
    return classes


def kernel_beside(thing):
    return Path(inspect.getfile(thing)).with_suffix(".c").exists()


# By name: `particlemesh.spread` is the function.
PACKAGES = {direction: importlib.import_module(f"particlemesh.{direction}") for direction in METHODS}


@pytest.mark.parametrize("direction", METHODS)
def test_no_method_is_missing_in_the_tuple(direction):
    assert defined(PACKAGES[direction], Method) == set(METHODS[direction])


def test_no_builder_is_missing_in_the_tuple():
    assert defined(particlemesh.grid, Builder) == set(BUILDERS)


@pytest.mark.parametrize("direction", METHODS)
def test_every_method_has_its_kernel_beside_it(direction):
    methods = METHODS[direction]
    assert len({m.name for m in methods}) == len(methods)
    for method in methods:
        name = method.name
        assert method.__module__ == f"{PACKAGES[direction].__name__}.{name}"
        assert method.backends
        assert method.backends <= {"cpu", "cuda", "opencl"}
        assert kernel_beside(method) == bool(method.backends & {"cuda", "opencl"}), f"{name}.c is missing, or unused"
        assert (method.__doc__ or "").partition("\n")[0].endswith("."), f"{name} has no docstring of its own"
        if method.order_independent:
            assert method.deterministic


# Methods that are another method with more around it: they run its kernel.
STANDS_ON = {
    "spread/ordered.py": "spread.particle",
    # On the CPU integers are added as the last bits of reals, on GPUs in registers.
    "spread/fixed_point.py": "spread.colouring spread.walk",
    "spread/cpu/integers.py": "spread.colouring",
    "spread/gather.py": "spread.particle",  # for particles without a cell
    "spread/walk_fixed.py": "spread.walk",
    "interpolate/ordered.py": "interpolate.particle",
    "interpolate/ring.py": "interpolate.tile",  # a tile that is walked through; its kernel is its own
    "interpolate/octets.py": "interpolate.ring",
}


def test_a_method_can_be_removed_with_its_two_files():
    """Only its folder imports it."""
    for method in (m.__module__ for methods in METHODS.values() for m in methods):
        name = method.removeprefix("particlemesh.")
        users = {m for m in MODULES if any(f"{dotted}.".startswith(f"{method}.") for dotted in ours(m))}
        expected = {file for file, bases in STANDS_ON.items() if name in bases.split()}
        assert users - {f"{name.split('.')[0]}/__init__.py"} == expected, name


def decided_by_name(tree):
    """Method names that code compares with, or looks up."""
    names = {m.name for methods in METHODS.values() for m in methods}
    for node in ast.walk(tree):
        parts = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript):
            parts = [node.slice]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            parts = node.args[:1]
        for part in parts:
            inner = part.elts if isinstance(part, (ast.Tuple, ast.Set, ast.List)) else [part]
            yield from (c.value for c in inner if isinstance(c, ast.Constant) and c.value in names)


def test_no_code_decides_by_the_name_of_a_method():
    for file in (m for m in MODULES if not m.startswith("grid/")):  # some builders have such names
        stem = Path(file).stem if file.startswith(("spread/", "interpolate/")) else None
        keys = {"tiles"} if file == "orders/node_order.py" else set()  # the order's key
        assert set(decided_by_name(tree_of(file))) <= {stem} | keys, file


def builders_in(path):
    """The classes of a file that are builders, whatever their bases are called."""
    module = importlib.import_module(f"particlemesh.grid.builders.{path.stem}")
    classes = [c for c in vars(module).values() if inspect.isclass(c) and c.__module__ == module.__name__]
    return [c for c in classes if issubclass(c, Builder) and c is not Builder]


def test_every_builder_is_in_the_tuple_and_has_its_kernel_beside_it():
    folder = ROOT / "grid" / "builders"
    assert len({b.name for b in BUILDERS}) == len(BUILDERS)
    for path in folder.glob("*.py"):
        for builder in builders_in(path):
            assert builder in BUILDERS, f"{path.name} defines {builder.__name__}, which METHODS does not have"
    for builder in BUILDERS:
        stem = builder.__module__.split(".")[-1]
        assert builders_in(folder / f"{stem}.py") == [builder]
        assert stem == builder.name
        assert builder.backends
        assert builder.backends <= {"cpu", "cuda", "opencl"}
        assert (folder / f"{stem}.c").exists() == builder.kernels, f"{stem}.c is missing, or unused"
        assert (builder.__doc__ or "").partition("\n")[0].endswith("."), f"{stem} has no docstring of its own"
        assert builder.cite in keys()


def test_a_builder_is_named_in_its_own_files_only():
    """Other files of the grid learn facts from attributes: no builder's name, no type of a storage is asked for."""
    grid = ROOT / "grid"
    for path in sorted(grid.rglob("*.[pch]*")):
        is_builder = path.parent == grid / "builders"
        if path.suffix not in {".py", ".c", ".h"} or (is_builder and path.name == "__init__.py"):
            continue
        text = path.read_text(encoding="utf-8")
        for builder in BUILDERS:
            if not (is_builder and path.stem == builder.name):
                assert not re.search(rf"""(["'`]){builder.name}\1""", text), f"{path.name} names {builder.name!r}"
        for storage in ("SortedCells", "Slots", "LinkedLists", "PackedLists", "TightLists"):
            assert not re.search(rf"isinstance\([^()]*\b{storage}\b", text), f"{path.name} asks whether it is {storage}"


def keys():
    return re.findall(r"^@\w+\{\s*([^,\s]+)\s*,", (ROOT / "reference.bib").read_text(), re.MULTILINE)


def test_references_are_unique():
    assert len(keys()) == len(set(keys())) > 0


def test_what_methods_and_docstrings_cite_is_in_the_bibliography():
    known = set(keys())
    assert {m.__module__ for methods in METHODS.values() for m in methods if m.cite not in known} == set()
    cited = {(m, key) for m in MODULES for key in re.findall(r"\[(\w+)\]_", (ROOT / m).read_text())}
    assert {(module, key) for module, key in cited if key not in known} == set()


def folder_of(path):
    parts = path.split("/")
    return "/".join(parts[: 2 if parts[0] == "apps" else 1]) if len(parts) > 1 + (parts[0] == "apps") else "."


def test_every_folder_keeps_its_budget_of_code():
    lines = collections.Counter()
    for path in [*MODULES, *KERNELS]:
        lines[folder_of(path)] += len(sources.code(ROOT / path).splitlines())
    assert lines.keys() == BUDGET.keys()
    over = {folder: (lines[folder], most) for folder, most in BUDGET.items() if lines[folder] > most}
    assert not over, "take out as much as you add: code is a cost (CONTRIBUTING.md)"
    loose = {folder: (lines[folder], most) for folder, most in BUDGET.items() if lines[folder] < most - 100}
    assert not loose, "these folders have become smaller: lower their budgets"


def test_the_ways_of_calls_stay_short():
    """A reader of `spread` has that many files to read; ARCHITECTURE.md tells each way."""
    ways = runpy.run_path(str(Path(__file__).parents[1] / "tools" / "ways"))
    files = {name: len(ways["entered"](call)) for name, call in ways["ways"]().items()}
    most = {"spread": 8, "neighbour_list": 12, "PME": 30}
    assert files.keys() == most.keys()
    assert {name: n for name, n in files.items() if n > most[name]} == {}, "tools/ways --files names them"


def test_files_are_short_and_licensed():
    for path in [*MODULES, *KERNELS]:
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 900, path  # a class is one file, and a file can be known
        assert not lines or "SPDX-License-Identifier: BSD-3-Clause" in lines[0], path


def public():
    return {name: getattr(pm, name) for name in pm.__all__}


@pytest.mark.parametrize("name", public())
def test_public_names_are_documented(name):
    thing = public()[name]
    text = inspect.getdoc(thing)
    assert text
    assert text.splitlines()[0].endswith(".")
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return
    parameters = [p for p in inspect.signature(thing).parameters if p != "self"]
    if parameters:
        section = "Attributes" if name == "Status" else "Parameters"
        assert f"{section}\n{'-' * len(section)}" in text
        described = re.findall(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)\b.*(?::|$)", text, re.MULTILINE)
        known = {p.strip("* ") for line in described for p in line.split(",")}
        assert set(parameters) <= known, set(parameters) - known
    if name != "Status":
        assert "Examples\n--------" in text


@pytest.mark.parametrize("name", [n for n, v in public().items() if inspect.isclass(v)])
def test_public_methods_are_documented(name):
    for member, thing in vars(public()[name]).items():
        if not member.startswith("_") and (callable(thing) or isinstance(thing, (property, classmethod))):
            assert inspect.getdoc(thing), f"{name}.{member}"


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def test_kernels_keep_to_the_dialect():
    words = (
        "long long", "printf", "__global__", "__global", "__kernel", "__local", "__shared__", "threadIdx",
        "blockIdx", "get_global_id", "get_local_id", "atomicAdd", "atomic_add", "__syncthreads", "barrier",
        "float3", "float2", "double3", "malloc", "template", "size_t",
    )  # fmt: skip
    foreign = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, words))})(?!\w)")
    for path in (k for k in KERNELS if k.endswith(".c")):
        text = without_comments((ROOT / path).read_text())
        assert not foreign.search(text), path
        assert not re.search(r"\b(long|unsigned|double|float)\b", text), f"{path}: types are real, i64, u32, ..."
        for signature in re.findall(r"\bKERNEL\s+\w+\(([^)]*)\)", text):
            assert "#" not in signature, f"{path}: no #ifdef in signatures"
            for parameter in signature.split(","):
                assert "*" not in parameter or re.search(r"\b(GLOBAL|LOCAL|PRIVATE)\b", parameter), (path, parameter)
        assert not re.search(r"\bKERNEL\b", text) or re.search(r"\bKERNEL\s+[a-z]\w*\(", text), path
