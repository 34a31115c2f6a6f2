# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints in HDF5, replaced as one step, and read only if no byte has changed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from particlemesh import Box
from particlemesh.apps.files.hdf5 import sealed, sealing
from particlemesh.apps.files.libraries import library
from particlemesh.apps.files.replacing import check_no_device

MARK = b"particlemesh checkpoint, sha256 "


@contextlib.contextmanager
def writing(path: Any, application: str, form: int) -> Iterator[Any]:
    """Yield an open h5py file, which takes the place of ``path`` once it is whole; else an OSError names the path.

    ``application`` says which one can read it; ``form`` is the number of its format, which grows with each change.
    """
    h5py = library("h5py", "a checkpoint")
    path = Path(path)
    check_no_device(path)
    part = path.with_name(f"{path.name}.part")
    try:
        with sealing(h5py, part, MARK) as file:
            file.attrs.update(checkpoint=application, format=form)
            yield file
        os.replace(part, path)  # noqa: PTH105 - as one step
    except OSError as error:
        text = f"the checkpoint {path} cannot be written ({error.strerror or error}): make room, or give another name"
        raise (OSError(error.errno, text) if error.errno else OSError(text)) from error
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def reading(path: Any, application: str, form: int) -> Iterator[Any]:
    """Yield an open h5py file that `writing` has written for this application and format, with no byte changed."""
    h5py = library("h5py", "a checkpoint")
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path} does not exist, or is no file.")
    whole = sealed(path, MARK)
    if whole is None:
        raise ValueError(f"{path} is no checkpoint: give a file that save() has written.")
    if not whole:
        raise ValueError(f"{path} is damaged: its checksum is another one. Give an earlier checkpoint.")
    try:
        with h5py.File(path, "r") as file:
            was = file.attrs["checkpoint"], file.attrs["format"]
            if was != (application, form):
                raise ValueError(
                    f"{path} is a checkpoint of {was[0]}, format {was[1]}; {application}, {form}, is needed."
                )
            yield file
    except (KeyError, TypeError, IndexError, AttributeError, OSError) as error:
        raise ValueError(f"{path} lacks what a checkpoint of {application} has: {error}") from error


def put(group: Any, name: str, thing: Any, shipped: Mapping[str, Any]) -> None:
    """Store a number, text, array, tuple of numbers, box, list, dict or object under a name; None is left out.

    Objects of ``shipped`` classes, by name, are stored with their ``settings()``; of others there is the name only.
    """
    if thing is None:
        return
    if isinstance(thing, (str, int, float, tuple, np.ndarray, np.generic)):  # tuples of numbers
        group[name] = thing
        return
    inner = group.create_group(name)
    if isinstance(thing, Box):
        inner.attrs.update(type="Box", lengths=thing.matrix, origin=thing.origin, periodic=thing.periodic)
        return
    inner.attrs["type"] = type(thing).__name__
    items = dict(enumerate(thing)) if isinstance(thing, list) else thing if isinstance(thing, dict) else {}
    if shipped.get(type(thing).__name__) is type(thing):
        items = thing.settings()
    for key, value in items.items():
        put(inner, str(key), value, shipped)


def get(group: Any, name: str, shipped: Mapping[str, Any]) -> Any:
    """Return what `put` has stored under a name, or None."""
    if name not in group:
        return None
    thing = group[name]
    if not hasattr(thing, "keys"):
        value = thing[()]
        return value.decode() if isinstance(value, bytes) else value if value.ndim else value.item()
    kind = thing.attrs["type"]
    if kind == "Box":
        return Box(thing.attrs["lengths"], thing.attrs["origin"], [bool(x) for x in thing.attrs["periodic"]])
    if kind == "list":
        return [get(thing, str(n), shipped) for n in range(len(thing))]
    if kind == "dict":
        return {key: get(thing, key, shipped) for key in thing}
    if kind not in shipped:
        argument = thing.name.split("/")[1]  # the first group of the path
        raise ValueError(f"the checkpoint has only the name of a {kind}: give load() {argument}= again.")
    return shipped[kind](**{key: get(thing, key, shipped) for key in thing})
