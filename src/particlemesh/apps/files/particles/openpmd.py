# SPDX-License-Identifier: BSD-3-Clause
"""Particles of openPMD 1.x and 2.0 in HDF5, by the layout of the standard."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from particlemesh.apps.files.boxes import Cell
from particlemesh.apps.files.libraries import FileError
from particlemesh.apps.files.openpmd import box_of, components_of, groups, text
from particlemesh.apps.files.particles.hdf5 import HDF5, attribute
from particlemesh.apps.files.particles.reader import Column

WEIGHTS = "weighting"  # record: how many real particles one particle of the file stands for


class OpenPMD(HDF5):
    """Records of species, as ``SPECIES/RECORD`` in SI units: ``electrons/position``, ``electrons/charge``.

    Positions are the sum of ``position`` and ``positionOffset``. A particle of the file stands for several real
    ones. Values of one of these (``macroWeighted`` 0) are multiplied by ``weighting`` to the power ``weightingPower``.
    The box is that of the Cartesian meshes of the iteration, open where ``particleBoundary`` or ``fieldBoundary``
    is not periodic. Without one it is an attribute ``BoxSize`` of the root or a header, if positions are in the same
    unit.
    """

    suffixes = ()
    unit = "m"

    @staticmethod
    def matches(file: Any) -> bool:
        """Return whether a file is of this kind, and has particles."""
        return "openPMD" in file.attrs and any("particles" in groups(file, k) for k in range(_iterations(file)))

    def inspect(self) -> None:
        self.frames = _iterations(self.file)
        for name, species in self._species(self.frames - 1).items():
            rows = _rows(species)
            for record, thing in species.items():
                if record not in ("positionOffset", "particlePatches"):
                    components = components_of(thing)
                    if components:
                        tail = (len(components),) if components[0] is not thing else ()
                        self.columns[f"{name}/{record}"] = Column(tail, rows)
        self.take_attributes()

    def select(self, chosen: tuple[str, ...], ndim: int) -> None:
        super().select(chosen, ndim)
        species = self._species(self.frames - 1)
        for name in chosen:
            owner, _, record = name.partition("/")
            power = _power(species[owner][record])
            if power:
                factor = f"{owner}/{WEIGHTS}" + ("" if power == 1 else f" to the power {power:g}")
                self.notes.append(f"{name} is that of one real particle: times {factor}")
            elif WEIGHTS in species[owner] and not {record, "macroWeighted"} & {
                "position", WEIGHTS, *species[owner][record].attrs,
            }:  # fmt: skip
                self.notes.append(f"{name} as it is: the file does not say whether it has {owner}/{WEIGHTS} in it")
            elif (
                record != "position"
                and "weightingPower" not in species[owner][record].attrs
                and _is_real(species[owner][record])
            ):
                self.notes.append(
                    f"{name} is that of one real particle, and the file has no weightingPower: {record}*{WEIGHTS} "
                    "counts all of them"
                )

    def multiply(self, factors: tuple[str, ...]) -> None:
        species = self._species(self.frames - 1)
        for number, name in enumerate(factors):
            owner, _, record = name.partition("/")
            others = [*factors[:number], *factors[number + 1 :]]
            if _power(species[owner][record]) and (twice := [other for other in others if self._weighted(other)]):
                raise FileError(
                    f"{name} is multiplied by {owner}/{WEIGHTS} already: give it alone, not times {twice[0]}"
                )

    def _weighted(self, name: str) -> bool:
        """Return whether values have weights in them, from the file or from here."""
        owner, _, record = name.partition("/")
        power = self._species(self.frames - 1)[owner][record].attrs.get("weightingPower", 0)
        return record == WEIGHTS or bool(np.ravel(power)[0])

    def box(self, frame: int) -> Cell | None:
        cells = dict[str, Cell]()
        for name, record in groups(self.file, frame).get("meshes", {}).items():
            with contextlib.suppress(ValueError, KeyError):  # not Cartesian, or no mesh: particles are read without
                box, said = box_of(record)
                cells[name] = Cell(box.matrix, box.periodic if said else None, box.origin)
        cells = {name: cell for name, cell in cells.items() if len(cell.rows) == self.ndim} or cells
        for name, cell in cells.items():
            first = next(iter(cells))
            if not cell.same(cells[first], 1e-6):
                raise FileError(f"its meshes {first} and {name} have different boxes: give --box")
        return next(iter(cells.values()), None) or (super().box(frame) if self._in_own_unit(frame) else None)

    def _in_own_unit(self, frame: int) -> bool:
        """Return whether positions have the unit of numbers that say none."""
        owner = self.chosen[0].partition("/")[0] if self.chosen else next(iter(self._species(frame)), "")
        position = self._species(frame).get(owner, {}).get("position", {})
        return all(float(part.attrs.get("unitSI", 1.0)) == 1 for part in position.values())

    def rows(self, name: str, frame: int) -> int:
        owner = name.partition("/")[0]
        if owner not in self._species(frame):
            raise FileError(f"frame {frame} has no species {owner}")
        return _rows(self._species(frame)[owner])

    def part(self, name: str, start: int, stop: int, frame: int) -> np.ndarray:
        owner, _, record = name.partition("/")
        species = self._species(frame)[owner]
        values = _values(species[record], start, stop, _rows(species))
        power = _power(species[record])
        if power:
            if WEIGHTS not in species:
                raise FileError(f"{name} is that of one real particle (macroWeighted 0), and {owner} has no {WEIGHTS}")
            weights = _values(species[WEIGHTS], start, stop, _rows(species)) ** power
            values = values * (weights if values.ndim == 1 else weights[:, None])
        if record == "position" and "positionOffset" in species:
            axes, others = (
                [name for name in ("x", "y", "z") if name in species[key]] for key in (record, "positionOffset")
            )
            if axes != others:
                raise FileError(
                    f"{owner} has a position of {', '.join(axes)} and a positionOffset of {', '.join(others)}"
                )
            values = values + _values(species["positionOffset"], start, stop, _rows(species))
        return values

    def _species(self, frame: int) -> dict[str, Any]:
        return dict(groups(self.file, frame).get("particles", {}))


def _iterations(file: Any) -> int:
    return len(file["data"]) if "data" in file else 0


def _is_real(record: Any) -> bool:
    """Return whether a record is that of one real particle."""
    return "macroWeighted" in record.attrs and not np.ravel(record.attrs["macroWeighted"])[0]


def _power(record: Any) -> float:
    """Return the power of the weights by which values of a record are multiplied; 0 if the file says none."""
    return float(np.ravel(record.attrs.get("weightingPower", 0))[0]) if _is_real(record) else 0.0


def _rows(species: Any) -> int:
    """Return the number of particles of a species."""
    if "position" not in species:
        raise FileError(f"{species.name} has no position")
    first = components_of(species["position"])[0]
    return int(attribute(first, "shape")[0]) if hasattr(first, "keys") else int(first.shape[0])


def _values(record: Any, start: int, stop: int, rows: int) -> np.ndarray:
    """Return rows of a record in SI units, (n,) or (n, components), in float64, or float32 if all of it is."""
    stop = min(stop, rows)
    parts = []
    for component in components_of(record):
        unit = float(component.attrs.get("unitSI", 1.0))
        if hasattr(component, "keys"):  # one value for all
            part = np.full(stop - start, attribute(component, "value"))
        else:
            part = component[start:stop]
        if len(part) != stop - start:
            raise FileError(f"{text(component.name)} has {component.shape[0]} rows; its species has {rows}")
        parts.append(part if unit == 1 else np.asarray(part, np.float64) * unit)
    return parts[0] if components_of(record)[0] is record else np.stack(parts, axis=1)
