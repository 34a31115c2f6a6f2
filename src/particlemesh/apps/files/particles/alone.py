# SPDX-License-Identifier: BSD-3-Clause
"""Readers in processes of their own: a crash of a library ends that process, and becomes an error here.

Requests and answers are lines of JSON; arrays follow an answer as bytes. Nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from particlemesh.apps.files.boxes import Cell
from particlemesh.apps.files.libraries import FileError, errors_name_file, isolated
from particlemesh.apps.files.particles.reader import Column, Reader

PROGRAM = """
import importlib, os, sys
from particlemesh.apps.files.particles import alone
module, name, *files = sys.argv[1:]
answers = os.fdopen(os.dup(1), "wb")  # of the standard output a library has none
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
alone.serve(getattr(importlib.import_module(module), name), files, sys.stdin.buffer, answers)
"""
SECONDS, RATE = 30.0, 2e7  # an answer takes at most this, and a second for so many bytes of the file


class Alone(Reader):
    """A reader whose library works in another process. It has what that one has."""

    def __init__(self, form: type[Reader], path: Path, topology: Path | None = None) -> None:
        self.form, self._keys, self.missing = form, itertools.count(), form.missing
        super().__init__(path, topology)

    def open(self) -> None:
        self.process = self.start(self.form, [str(file) for file in (self.path, self.topology) if file is not None])
        first, _ = self._answer()
        self.columns = {name: Column(tuple(tail), rows) for name, (tail, rows) in first["columns"].items()}
        self.frames, self.unit = first["frames"], first["unit"]

    @staticmethod
    def start(form: type[Reader], files: list[str]) -> Any:
        """Return a process that answers to its standard input."""
        return subprocess.Popen(
            isolated(PROGRAM, form.__module__, form.__name__, *files),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def _ask(self, **request: Any) -> tuple[dict[str, Any], list[np.ndarray]]:
        with contextlib.suppress(OSError):  # it has ended, which the answer says
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> tuple[dict[str, Any], list[np.ndarray]]:
        """Return an answer and its arrays, or raise the error that it is."""
        late = threading.Timer(SECONDS + self.path.stat().st_size / RATE, self.process.kill)
        late.start()
        try:
            line = self.process.stdout.readline()
            answer = json.loads(line or b"{}")
            arrays = [_array(self.process.stdout, dtype, shape) for dtype, shape in answer.get("arrays", ())]
        except ValueError:  # it ended within an array
            answer = {}
        finally:
            in_time = late.is_alive()
            late.cancel()
        if not answer:
            raise FileError(f"its library {'crashes on it' if in_time else 'does not return from it'}. Is it whole?")
        if "error" in answer:
            raise (ImportError if answer["missing"] else FileError)(answer["error"])
        return answer, arrays

    def box(self, frame: int) -> Cell | None:
        answer, arrays = self._ask(what="box", frame=frame)
        periodic = answer["periodic"]
        return Cell(arrays[0], None if periodic is None else tuple(periodic), *arrays[1:]) if arrays else None

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        key = next(self._keys)
        self._ask(what="chunks", key=key, names=names, size=size, frame=frame)
        while arrays := self._ask(what="next", key=key, frame=frame)[1]:
            yield arrays

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                stream.close()
        try:
            self.process.wait(5)  # its input has ended
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _array(stream: IO[bytes], dtype: str, shape: list[int]) -> np.ndarray:
    """Return an array of a stream; a ValueError if it ends early."""
    return np.frombuffer(stream.read(np.dtype(dtype).itemsize * math.prod(shape)), dtype).reshape(shape)


def serve(form: type[Reader], files: list[str], requests: IO[bytes], answers: IO[bytes]) -> None:
    """Open a file, and answer requests to its reader until they end."""
    parts: dict[int, Iterator[list[np.ndarray]]] = {}
    reader: Reader | None = None

    def answer(what: str = "", frame: int = 0, key: int = 0, **part: Any) -> tuple[dict[str, Any], Sequence[Any]]:
        nonlocal reader
        if reader is None:
            reader = form(*map(Path, files))
            return {"columns": reader.columns, "frames": reader.frames, "unit": reader.unit}, ()
        if what == "box":
            cell = reader.box(frame)
            if cell is None:
                return {"periodic": None}, ()
            return {"periodic": cell.periodic}, [a for a in (cell.rows, cell.origin) if a is not None]
        if what == "chunks":
            parts[key] = reader.chunks(part["names"], part["size"], frame)
        return {}, next(parts[key], ()) if what == "next" else ()

    for line in itertools.chain((b"{}",), requests):
        try:
            request = json.loads(line)
            frame = request.get("frame") if reader is not None and reader.frames > 1 else None
            with errors_name_file(Path(files[0]), frame=frame):
                head, arrays = answer(**request)
            arrays = [np.ascontiguousarray(array) for array in arrays]
            head["arrays"] = [(array.dtype.str, array.shape) for array in arrays]
        except (FileError, ImportError) as error:
            head, arrays = {"error": str(error), "missing": isinstance(error, ImportError)}, []
        answers.write(json.dumps(head).encode() + b"\n")
        for array in arrays:
            answers.write(array.tobytes())
        answers.flush()
