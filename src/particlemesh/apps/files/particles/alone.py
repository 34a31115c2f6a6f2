# SPDX-License-Identifier: BSD-3-Clause
"""Readers in processes of their own: a crash of a library ends that process, and becomes an error here.

Requests and answers are lines of JSON; arrays follow an answer as bytes. Nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from particlemesh.apps.files.isolated import command
from particlemesh.apps.files.libraries import FileError, blame
from particlemesh.apps.files.particles.boxes import Cell
from particlemesh.apps.files.particles.reader import Column, Reader

PROGRAM = """
import importlib, sys
from particlemesh.apps.files.particles import alone
module, name, *files = sys.argv[1:]
alone.main(getattr(importlib.import_module(module), name), *files)
"""
SECONDS, RATE = 30.0, 2e7  # an answer takes at most this, and a second for so many bytes of the file


class Alone(Reader):
    """A reader whose library works in another process. It has what that one has."""

    def __init__(self, form: type[Reader], path: Path, topology: Path | None = None) -> None:
        self.form, self._asked = form, 0
        super().__init__(path, topology)

    def open(self) -> None:
        files = [str(self.path), *([] if self.topology is None else [str(self.topology)])]
        self.process = self.start(self.form, files)
        first, _ = self._answer()
        self.columns = {name: Column(tuple(tail), rows) for name, (tail, rows) in first["columns"].items()}
        self.frames, self.unit = first["frames"], first["unit"]

    @staticmethod
    def start(form: type[Reader], files: list[str]) -> Any:
        """Return a process that answers to its standard input."""
        return subprocess.Popen(
            command(PROGRAM, form.__module__, form.__name__, *files),
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
            answer = json.loads(line) if line else {}
            arrays = [_exactly(self.process.stdout, dtype, shape) for dtype, shape in answer.get("arrays", ())]
        except EOFError:
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
        if not arrays:
            return None
        periodic = answer["periodic"]
        return Cell(arrays[0], None if periodic is None else tuple(periodic), *arrays[1:])

    def chunks(self, names: Sequence[str], size: int, frame: int) -> Iterator[list[np.ndarray]]:
        self._asked += 1
        key = self._asked
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


def _exactly(stream: IO[bytes], dtype: str, shape: list[int]) -> np.ndarray:
    count = np.dtype(dtype).itemsize * math.prod(shape)
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return np.frombuffer(data, dtype).reshape(shape)


def main(form: type[Reader], path: str, topology: str | None = None) -> None:
    """Serve a file on the standard streams, of which a library has none."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    serve(form, [path, *([] if topology is None else [topology])], sys.stdin.buffer, answers)


def serve(form: type[Reader], files: list[str], requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests to a reader until they end."""
    parts: dict[int, Iterator[list[np.ndarray]]] = {}
    reader: Reader | None = None

    def answer(request: dict[str, Any]) -> tuple[dict[str, Any], Sequence[np.ndarray]]:
        nonlocal reader
        if reader is None:
            reader = form(*map(Path, files))
            columns = {name: [column.tail, column.rows] for name, column in reader.columns.items()}
            return {"columns": columns, "frames": reader.frames, "unit": reader.unit}, ()
        if request["what"] == "box":
            cell = reader.box(request["frame"])
            if cell is None:
                return {"box": None}, ()
            return {"periodic": cell.periodic}, [cell.rows, *([] if cell.origin is None else [cell.origin])]
        if request["what"] == "chunks":
            parts[request["key"]] = reader.chunks(request["names"], request["size"], request["frame"])
            return {"ready": True}, ()
        return {"more": True}, next(parts[request["key"]], ())

    for line in _chain(requests):
        try:
            request = json.loads(line)
            frame = request.get("frame") if reader is not None and reader.frames > 1 else None
            with blame(Path(files[0]), frame=frame):
                said, arrays = answer(request)
            arrays = [np.ascontiguousarray(array) for array in arrays]
            said["arrays"] = [(array.dtype.str, array.shape) for array in arrays]
        except (FileError, ImportError) as error:
            said, arrays = {"error": str(error), "missing": isinstance(error, ImportError)}, []
        answers.write(json.dumps(said).encode() + b"\n")
        for array in arrays:
            answers.write(array.tobytes())
        answers.flush()


def _chain(requests: IO[bytes]) -> Iterator[bytes]:
    """Yield a first request, to open the file, and those of the other process."""
    yield b"{}"
    yield from requests
