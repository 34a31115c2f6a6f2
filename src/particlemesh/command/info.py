# SPDX-License-Identifier: BSD-3-Clause
"""``particlemesh info``: versions, devices, tests of all methods, and folders of compiled code."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rich.markup import escape

import particlemesh as pm
from particlemesh import backends
from particlemesh.backends import nvrtc
from particlemesh.backends.folders import cache
from particlemesh.command import self_test
from particlemesh.command.consoles import plural

# Distributions of each library, in order of preference: CuPy's name has its CUDA version.
LIBRARIES = {
    "numpy": ("numpy",), "scipy": ("scipy",), "numba": ("numba",),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"), "pyopencl": ("pyopencl",),
    "pocl": ("pocl-binary-distribution",), "matplotlib": ("matplotlib",),
}  # fmt: skip
SECONDS = 8.0  # after which no test begins: with what is being compiled then, at most 20


def info(console: Any, everything: bool = False) -> bool:
    """Print the backends of this machine and their tests as they end; return whether every test passed."""
    console.print(
        f"particlemesh {pm.__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )
    console.print(", ".join(f"{name} {_version(of)}" for name, of in LIBRARIES.items()) + "\n")
    devices = self_test.usable()
    for name in backends.NAMES:
        what = escape(describe(devices[name]) if name in devices else str(backends.module(name).available()))
        console.print(f"{name}: {'' if name in devices else '[yellow]not available[/yellow], '}{what}", soft_wrap=True)
    console.print(f"\n[bold]{_row('backend', 'operation', 'method', 'error', 'result')}[/bold]")
    passed, left = True, sum(map(self_test.checks, devices.values()))
    with console.status("compiling and testing") if console.is_terminal else contextlib.nullcontext():
        for run in self_test.rows(None if everything else SECONDS):
            passed, left = passed and run.wrong is None, left - 1
            result = "[green]ok[/green]"
            if run.wrong is not None:
                result = f"[bold red]FAILED[/bold red] {escape(run.wrong)}"
            elif run.declined is not None:
                result = f"[yellow]declined[/yellow] {escape(run.declined)}"
            row = _row(run.backend, run.operation, run.method, number(run.error), "")
            console.print(row + result, soft_wrap=True)
    if left > 0 and not everything:
        console.print(
            f"{left} more tests were not started within {SECONDS:.0f} s: [bold]particlemesh info --all[/bold] runs all."
        )
    console.print(
        "\nerror: relative error of <spread(q), f> = <q, interpolate(f)>, 1000 particles;\n"
        "for grids, error of distances / radius against all pairs of 500 particles\n",
        style="dim",
    )
    for store in caches():
        size = f"{sum(store.sizes) / 2**20:.1f} MiB in {len(store.sizes)} files" if store.sizes else "empty"
        console.print(f"cache of {store.owner}: {store.folder} ({size})", markup=False, soft_wrap=True)
    return passed


def _row(backend: str, operation: str, method: str, error: str, result: str) -> str:
    return f"{backend:<8} {operation:<12} {method:<20} {error:>6}  {result}"


def number(error: float) -> str:
    """Return an error with one digit."""
    return "0" if error == 0 else f"{error:.0e}"


def describe(backend: Any) -> str:
    """Return the name of a device and its driver."""
    if backend.name == "cuda":
        import cupy

        runtime = cupy.cuda.runtime
        versions = (f"{n // 1000}.{n % 1000 // 10}" for n in (runtime.driverGetVersion(), runtime.runtimeGetVersion()))
        cuda = "CUDA {} (driver) and {} (runtime)".format(*versions)
        return f"{backend.device}, compute capability {backend.compute / 10}, {cuda}"
    if backend.name == "opencl":
        kind = "GPU kernels emulated on the CPU, for tests" if self_test.emulated(backend) else "GPU"
        return f"{backend.device}, {kind}, {backend.platform.split('  ')[0].split(',')[0]}"
    return f"{backend.device}, {plural(backends.module('cpu').available_threads(), 'thread')}"


def _version(distributions: tuple[str, ...]) -> str:
    for distribution in distributions:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(distribution)
    return "not installed"


class Cache(NamedTuple):
    """One folder of compiled code, and the sizes of its files."""

    owner: str
    folder: Path
    sizes: list[int]


def _numba() -> Path | None:
    # Numba selects a folder per source file: beside it, or the user's if that is read-only. Compiled functions
    # have the path in attributes that are not public in Numba, so they may be missing.
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("particlemesh")]
    members = (getattr(member, "stats", None) for module in modules for member in vars(module).values())
    paths = [path for stats in members if isinstance(path := getattr(stats, "cache_path", None), str)]
    return Path(os.path.commonpath(paths)) if paths else None


def caches() -> Iterator[Cache]:
    """Yield the caches of the backends' compilers; a folder may not exist yet.

    Numba's folders are those of loaded modules: run something first.
    """
    pocl = os.environ.get("POCL_CACHE_DIR")
    folders = {"Numba": _numba(), "PoCL": Path(pocl) if pocl else cache("pocl", "kcache"), "NVRTC": nvrtc.folder()}
    for owner, folder in folders.items():
        sizes = list[int]()
        for file in () if folder is None else folder.rglob("*.nb[ic]" if owner == "Numba" else "*"):
            with contextlib.suppress(OSError):  # another process has just removed it
                sizes += [file.stat().st_size] if file.is_file() else []
        if folder is not None:
            yield Cache(owner, folder, sizes)
