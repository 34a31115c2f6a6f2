# SPDX-License-Identifier: BSD-3-Clause
"""Options of a transform: FINUFFT's and cuFINUFFT's names, and those of particlemesh."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

from particlemesh.kernels import checks

# Options of the peers about details of their kernels, their FFT library or their messages. Here they have no effect.
WITHOUT_EFFECT = frozenset({
    "debug", "spread_debug", "showwarn", "fftw", "fftw_timelimit", "spread_sort", "spread_kerevalmeth", "spread_kerpad",
    "spread_thread", "spread_nthr_atomic", "spread_max_sp_size", "spread_kerformula", "chkbnds", "hint_nj",
    "gpu_method", "gpu_sort", "gpu_binsizex", "gpu_binsizey", "gpu_binsizez", "gpu_obinsizex", "gpu_obinsizey",
    "gpu_obinsizez", "gpu_maxsubprobsize", "gpu_kerevalmeth", "gpu_np", "gpu_stream",
})  # fmt: skip
# Options that particlemesh.Plan takes.
OF_PLANS = frozenset({"applications", "deterministic", "interpolation", "method"})
# What the automatic choice takes for transforms of any size on a CPU. It takes 2 to 5 ms for 10,000 points.
_ON_CPU = {"method": "colouring", "interpolation": "tiles"}


@dataclass
class Options:
    """What a user may choose; see `particlemesh.apps.nufft.Plan`."""

    modeord: int = 0
    upsampfac: float | None = None
    spreadinterponly: bool = False
    threads: int | None = None
    batch: int = 0
    device: int | None = None
    real: bool = False
    quiet: bool = False
    of_plan: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, options: dict[str, Any]) -> Options:
        """Return the options of a call; unknown names are warned about, as FINUFFT does."""
        self = cls()
        for name, value in options.items():
            if name == "modeord":
                self.modeord = checks.one_of(value, name, (0, 1))
            elif name == "upsampfac":
                self.upsampfac = _sigma(value)
            elif name in ("spreadinterponly", "gpu_spreadinterponly"):
                self.spreadinterponly = bool(value)
            elif name == "nthreads":
                self.threads = checks.integer(value, name, 0, 4096) or None
            elif name in ("maxbatchsize", "gpu_maxbatchsize"):
                self.batch = checks.integer(value, name, 0, 2**31)
            elif name == "gpu_device_id":
                self.device = checks.integer(value, name, 0, 2**31)
            elif name == "real":
                self.real = checks.flag(value, name)
            elif name == "allow_eps_too_small":
                self.quiet = bool(value)
            elif name in OF_PLANS:
                self.of_plan[name] = value
            elif name not in WITHOUT_EFFECT:
                warnings.warn(f'finufft_opts does not have attribute "{name}": the option has no effect.', stacklevel=4)
        if self.threads is not None:
            self.of_plan["threads"] = self.threads
        return self

    @property
    def plain(self) -> bool:
        """Whether the user leaves the plans of particlemesh to us."""
        return not self.of_plan.keys() - {"threads"}

    def of_plans(self, backend: Any) -> dict[str, Any]:
        """Return options of `particlemesh.Plan` on a backend."""
        return {**self.of_plan, **_ON_CPU} if backend.name == "cpu" and self.plain else self.of_plan


def _sigma(value: Any) -> float | None:
    """Return the oversampling factor; 0 leaves the choice to the plan, as in FINUFFT."""
    if value == 0:
        return None
    if not checks.positive(value, "upsampfac") > 1:
        raise ValueError(f"upsampfac is {value}; give a number above 1, or 0 for the plan's choice.")
    return float(value)
