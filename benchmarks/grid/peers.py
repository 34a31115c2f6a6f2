# SPDX-License-Identifier: BSD-3-Clause
"""Peers of uniform grids: sorts on the GPU, other neighbour lists, published figures."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from harness.tables import PEERS, read


def published(quantity: str) -> list[dict[str, str]]:
    """Return others' published figures of a quantity, ``insertions`` or ``neighbours``, from ``peers``."""
    return [row for row in read(PEERS / "grids-published.csv") if row["quantity"] == quantity]


class Cub:
    """CUB's radix sort, compiled by nvcc."""

    def __init__(self, compute: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._file = Path(self._folder.name) / "cub_sort.so"
        self._compiler: subprocess.Popen[str] | None = None
        self._sort: Any = None
        nvcc = shutil.which("nvcc")
        if nvcc is not None:
            source = str(PEERS / "cub_sort.cu")
            command = [nvcc, "-O3", f"-arch=sm_{compute}", "-shared", "-Xcompiler", "-fPIC", "-o", str(self._file)]
            self._compiler = subprocess.Popen([*command, source], stderr=subprocess.PIPE, text=True)

    def missing(self) -> str | None:
        """Return why there is no CUB here, or None; waits for the compiler."""
        if self._compiler is None:
            return "CUB is not measured: there is no nvcc on this machine."
        if self._sort is None:
            complaint = self._compiler.communicate()[1]
            if self._compiler.returncode:
                return f"CUB is not measured: nvcc failed with {complaint.strip().splitlines()[-1:]}."
            self._sort = ctypes.CDLL(str(self._file)).sort_pairs
            self._sort.restype = ctypes.c_int
            self._sort.argtypes = [*[ctypes.c_void_p] * 6, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
        return None

    def sorter(self, keys: Any, bits: int) -> Callable[[], Any]:
        """Return a call that sorts keys (N,) uint32 and their indices by the lowest bits, on the current stream."""
        import cupy

        values = cupy.arange(keys.size, dtype=np.uint32)
        outputs = cupy.empty_like(keys), cupy.empty_like(values)
        arrays = keys.data.ptr, outputs[0].data.ptr, values.data.ptr, outputs[1].data.ptr
        size = ctypes.c_size_t(0)

        def sort(scratch: int | None, alive: Any = (keys, values)) -> Any:
            stream = cupy.cuda.get_current_stream().ptr
            error = self._sort(scratch, ctypes.addressof(size), *arrays, keys.size, bits, stream)
            if error:
                raise RuntimeError(f"CUB's sort of {keys.size:,} pairs failed with CUDA error {error}.")
            return outputs

        sort(None)
        room = cupy.empty(max(size.value, 1), np.uint8)
        return lambda: sort(room.data.ptr)


def vesin_list(
    x: Any, box: Any, periodic: Any, cutoff: float, full: bool, threads: int = 0, quantities: str = "ij"
) -> Callable[[], Any]:
    """Return a call of vesin for positions (N, 3) float64 of NumPy or CuPy; raises ImportError without vesin."""
    from vesin import NeighborList

    lister = NeighborList(cutoff=cutoff, full_list=full, n_threads=threads)
    return lambda: lister.compute(x, box, periodic, quantities, copy=False)


def host_lists(
    x: np.ndarray, lengths: np.ndarray, system: np.ndarray, periodic: bool, cutoff: float, most: float
) -> Iterator[tuple[str, Callable[[], Any], Callable[[], int]]]:
    """Yield name, call and number of pairs of full lists of each library of the CPU that is installed.

    Systems are called one by one. Lists have indices, distances and, where a library knows them, shifts of images.
    ASE and freud get no lists of more than ``most`` pairs, SciPy none of more than ten times that: they take minutes.
    """
    places = [x[system == s] for s in range(len(lengths))]
    cells = [np.eye(3) * length for length in lengths]
    flags = [periodic] * 3
    expected = len(x) * len(x) / len(lengths) * min(1.0, 4.2 * cutoff**3 / float(np.mean(lengths)) ** 3)
    few = expected < most
    one: dict[str, Callable[[Any, Any], tuple[Any, int]]] = {}

    def counted(indices: Any) -> tuple[Any, int]:
        return indices, len(indices)

    if importlib.util.find_spec("vesin"):
        from vesin import NeighborList

        lister = NeighborList(cutoff=cutoff, full_list=True, n_threads=0)
        one["vesin"] = lambda y, cell: counted(lister.compute(y, cell, periodic, "ijSd", copy=False)[0])
    if importlib.util.find_spec("matscipy"):
        from matscipy.neighbours import neighbour_list

        one["matscipy"] = lambda y, cell: counted(
            neighbour_list("ijSd", positions=y, cell=cell, pbc=np.array(flags), cutoff=cutoff)[0]
        )
    if importlib.util.find_spec("ase") and few:
        from ase.neighborlist import primitive_neighbor_list

        # Its cells are at least 3 long: with a cutoff of 5, as of atoms, they suit the search.
        one["ASE"] = lambda y, cell: counted(
            primitive_neighbor_list("ijSd", flags, 5 / cutoff * cell, 5 / cutoff * y, 5.0)[0]
        )
    if importlib.util.find_spec("freud") and periodic and few:
        import freud

        def by_freud(y: Any, cell: Any) -> tuple[Any, int]:
            search = freud.locality.LinkCell(freud.Box.cube(cell[0, 0]), y - cell[0, 0] / 2, cutoff)
            pairs = search.query(y - cell[0, 0] / 2, {"r_max": cutoff, "exclude_ii": True}).toNeighborList()
            return pairs.distances, len(pairs)

        one["freud"] = by_freud
    if expected < 10 * most:
        from scipy.spatial import cKDTree

        def by_tree(y: Any, cell: Any) -> tuple[Any, int]:
            tree = cKDTree(y, boxsize=cell[0, 0] if periodic else None)
            pairs = tree.sparse_distance_matrix(tree, cutoff, output_type="ndarray")
            return pairs, len(pairs) - len(y)

        one["cKDTree"] = by_tree
    for name, find in one.items():

        def call(find: Any = find) -> Any:
            return [find(y, cell) for y, cell in zip(places, cells, strict=True)]

        yield name, call, lambda call=call: sum(count for _, count in call())


def nvalchemi_lists(
    x: Any, lengths: np.ndarray, axes: Any, system: Any | None, cutoff: float, half: bool, longest: int
) -> Iterator[tuple[str, Callable[[], Any], Callable[[], int]]]:
    """Yield name, call and number of pairs of each prepared list of nvalchemi-toolkit-ops; ImportError without it.

    ``x`` (N, 3) and ``system`` (N,) are arrays of CuPy or NumPy, boxes are cubes that repeat along the ``axes`` that
    are True, and ``longest`` is the room of a row.
    """
    import torch
    from nvalchemiops.torch.neighbors import neighbor_list, prepare_neighbor_list

    places = torch.from_dlpack(x)
    cell = torch.tensor(np.eye(3) * lengths[:, None, None], dtype=places.dtype, device=places.device)
    periodic = torch.tensor(np.tile(axes, (len(lengths), 1)), device=places.device)
    of_systems = {} if system is None else {"batch_idx": torch.from_dlpack(system)}
    before = "batch_" if of_systems else ""
    tiles = places.is_cuda and not half
    methods = [f"{before}cell_list", f"{before}naive", *([f"{before}cluster_tile"] if tiles else [])]
    for method in methods:
        if method == "naive" and len(places) > 50_000:
            continue
        # Pairs by tiles of several systems have gaps: their number is not told.
        for rows in (True,) if method == "batch_cluster_tile" else (False, True):
            name = f"nvalchemi, {method}, {'matrix' if rows else 'pairs'}"
            options = dict(method=method, half_fill=half, return_neighbor_list=not rows, max_neighbors=longest)
            try:
                state = prepare_neighbor_list(places, cutoff, cell, periodic, **of_systems, **options)
            except (RuntimeError, ValueError, TypeError) as error:
                print(f"{name}: {str(error)[:100]}")
                continue

            def call(state: Any = state) -> Any:
                return neighbor_list(places, cell=cell, state=state)

            def number(rows: bool = rows, call: Callable[[], Any] = call) -> int:
                answer = call()
                return int(answer[1].sum() if rows else answer[1][-1])

            yield name, call, number
