# SPDX-License-Identifier: BSD-3-Clause
"""Laws of contact: what force two touching spheres exert on each other.

A law is an elastic normal force F(overlap), and the slopes of normal and tangential force, S_n and S_t. Each has a
damper of ``2 beta sqrt(m S)``, where m is the reduced mass. ``beta`` gives the coefficient of restitution exactly.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from particlemesh.kernels import checks


@dataclass(frozen=True)
class Law:
    """A law as the loops over contacts see it."""

    hertz: int
    normal: float  # stiffness, or reduced modulus
    tangential: float  # stiffness, or eight times the reduced shear modulus
    damping: float  # 2 beta
    friction: float

    def slopes(self) -> list[float]:
        """Return the numbers of `Law` in step.c."""
        slope = (2 * self.normal, self.tangential) if self.hertz else (self.normal, self.tangential)
        share, ratio = 2 / 3 if self.hertz else 1.0, (slope[1] / slope[0]) ** 0.5
        lag = 5 / 22 if self.hertz else 1 / 4  # by which a damper is too strong, in c t / m: see `contact` in step.c
        return [*slope, self.damping, self.friction, share, ratio, lag]

    def in_units(self, length: float, mass: float, time: float) -> Law:
        """Return the law with its stiffness, or its moduli, in other units; a ValueError if it has none there."""
        scale = time * time / mass * (length if self.hertz else 1)
        if not 0 < self.normal * scale < math.inf:
            raise ValueError(
                f"the stiffness would be {self.normal * scale:g} in units of the time step: give another time_step, "
                "nearer to critical_time_step."
            )
        return replace(self, normal=self.normal * scale, tangential=self.tangential * scale)


def _beta(restitution: float) -> float:
    """Return the fraction of critical damping with which a linear spring has a coefficient of restitution."""
    if restitution == 0:
        return 1.0
    logarithm = math.log(restitution)
    return -logarithm / math.hypot(logarithm, math.pi)


def _restitution(value: Any) -> float:
    number = checks.at_least_zero(value, "restitution")
    if number > 1:
        raise ValueError(f"restitution is {value!r}; a number from 0 to 1 is needed: more would create energy.")
    return number


class Contact:
    """A law of contact: see :class:`Hertz` and :class:`LinearSpring`."""

    restitution: float

    def numbers(self) -> Law:
        """Return the law as compiled loops see it."""
        raise NotImplementedError

    def critical_time_step(self, radii: np.ndarray, masses: np.ndarray) -> float:
        """Return the time step beyond which contacts of such spheres are not resolved."""
        raise NotImplementedError

    def _plain_step(self, radii: np.ndarray, masses: np.ndarray) -> float:
        """Return the default time step for a restitution that is not small."""
        raise NotImplementedError

    def default_time_step(self, radii: np.ndarray, masses: np.ndarray) -> float:
        """Return the default time step: with it restitution is met within 1 %.

        Errors of the speed after an impact are of second order in the step. A small restitution is a small part of the
        speed before, so that its steps are shorter.

        Parameters
        ----------
        radii, masses : array (N,)

        Returns
        -------
        float
        """
        loss = -math.log(self.restitution) if self.restitution else 0.0
        return self._plain_step(radii, masses) * min(1.0, 2.3 / max(min(loss, 11.5), 1e-9))

    def resolved_time_step(self, radii: np.ndarray, masses: np.ndarray) -> float:
        """Return the longest time step with which restitution is met within 1 %, as measured.

        For :class:`Hertz` this holds up to overlaps of 3 % of the reduced radius.

        Parameters
        ----------
        radii, masses : array (N,)

        Returns
        -------
        float
        """
        if self.restitution in (0, 1):
            return math.inf
        loss = -math.log(self.restitution)
        return self._plain_step(radii, masses) * min(4.0, 2.5 / math.sqrt(loss), 2.6 / loss)

    def arguments(self) -> dict[str, float]:
        """Return the arguments with which this law was made."""
        return asdict(self)  # type: ignore[call-overload]  # laws are dataclasses


@dataclass(frozen=True)
class Hertz(Contact):
    r"""Elastic spheres: Hertz's normal force, Mindlin's tangential force with history, Coulomb's limit.

    With reduced radius R, mass m and moduli E and G of the pair, and ``a = sqrt(R overlap)``:

    - normal force ``4/3 E a overlap`` and its damper ``sqrt(5/6) 2 beta sqrt(2 E a m)``, with which the coefficient of
      restitution does not depend on the speed [antypov_elliott2011]_. As in the reference, a damper may pull just
      before spheres separate.
    - tangential force: grows by ``-8 G a`` times the tangential motion and turns with the contact. It shrinks with
      ``a`` as the contact opens, so that it never creates energy [thornton2013]_. It is at most ``friction`` times the
      normal force. Then it has a damper like the normal one, up to that limit.

    Parameters
    ----------
    young : number
        Young's modulus of particles and walls, a pressure.
    poisson : number
        Poisson's ratio, above -1 and at most 0.5.
    restitution : number
        From 0 to 1: speed after a head-on impact by that before it.
    friction : number
        Coefficient of Coulomb's law, at least 0.

    Raises
    ------
    ValueError, TypeError
        If a number is not allowed; the message says what is.

    Examples
    --------
    >>> from particlemesh.apps.dem import Hertz
    >>> Hertz(young=5e6, poisson=0.25, restitution=0.8, friction=0.5)
    Hertz(young=5000000.0, poisson=0.25, restitution=0.8, friction=0.5)
    """

    young: float
    poisson: float = 0.3
    restitution: float = 1.0
    friction: float = 0.0

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "young", checks.positive(self.young, "young"))
        poisson = checks.per_axis(self.poisson, 1, "poisson")[0]
        if not -1 < poisson <= 0.5:
            raise ValueError(f"poisson is {self.poisson!r}; a number above -1, up to 0.5, is needed.")
        set_(self, "poisson", poisson)
        set_(self, "restitution", _restitution(self.restitution))
        set_(self, "friction", checks.at_least_zero(self.friction, "friction"))

    def numbers(self) -> Law:
        """Return the law as compiled loops see it."""
        modulus = self.young / (2 * (1 - self.poisson**2))
        shear = self.young / (4 * (1 + self.poisson) * (2 - self.poisson))
        damping = 2 * math.sqrt(5 / 6) * _beta(self.restitution)
        return Law(1, modulus, 8 * shear, damping, self.friction)

    def critical_time_step(self, radii: np.ndarray, masses: np.ndarray) -> float:
        """Return the time a Rayleigh wave takes across the fastest sphere [li_xu_thornton2005]_.

        Parameters
        ----------
        radii, masses : array (N,)

        Returns
        -------
        float
        """
        density = masses / (4 / 3 * np.pi * radii**3)
        shear = self.young / (2 * (1 + self.poisson))
        return float(np.pi * (radii * np.sqrt(density / shear)).min() / (0.1631 * self.poisson + 0.8766))

    def _plain_step(self, radii: np.ndarray, masses: np.ndarray) -> float:
        return 0.1 * self.critical_time_step(radii, masses)


@dataclass(frozen=True)
class LinearSpring(Contact):
    """Springs and dashpots: forces in proportion to overlap and to speed, with the analytic restitution.

    The normal force is ``stiffness * overlap`` and a damper of ``2 beta sqrt(m stiffness)``, where
    ``beta = -ln e / sqrt(ln² e + pi²)`` gives the coefficient of restitution e at any speed [schaefer1996]_. The
    tangential force has a spring with history, a damper of the same form, and Coulomb's limit.

    Parameters
    ----------
    stiffness : number
        Of the normal spring, a force per length.
    tangential : number, optional
        Of the tangential spring; by default 2/7 of the normal one, so that both vibrate at one frequency.
    restitution : number
        From 0 to 1: speed after a head-on impact by that before it.
    friction : number
        Coefficient of Coulomb's law, at least 0.

    Raises
    ------
    ValueError, TypeError
        If a number is not allowed; the message says what is.

    Examples
    --------
    >>> from particlemesh.apps.dem import LinearSpring
    >>> LinearSpring(stiffness=700.0, restitution=0.9).tangential
    200.0
    """

    stiffness: float
    tangential: float | None = None
    restitution: float = 1.0
    friction: float = 0.0

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "stiffness", checks.positive(self.stiffness, "stiffness"))
        along = 2 * self.stiffness / 7 if self.tangential is None else self.tangential
        set_(self, "tangential", checks.positive(along, "tangential"))
        set_(self, "restitution", _restitution(self.restitution))
        set_(self, "friction", checks.at_least_zero(self.friction, "friction"))

    def numbers(self) -> Law:
        """Return the law as compiled loops see it."""
        return Law(0, self.stiffness, self.tangential, 2 * _beta(self.restitution), self.friction)  # type: ignore[arg-type]  # set

    def critical_time_step(self, radii: np.ndarray, masses: np.ndarray) -> float:
        """Return the largest stable time step of the lightest spheres in a dense packing, which has 12 contacts each.

        Its stiffness has the largest eigenvalue K, the larger of 8 (k + k_t), of spheres that move, and 40 k_t, of
        spheres that turn. The same sums of the dampers are C. With the least mass m, the time step t obeys
        ``K t**2 + 2 C t < 4 m``: that of leapfrog with dampers that lag by half a step. Without friction k_t is 0.

        Parameters
        ----------
        radii, masses : array (N,)

        Returns
        -------
        float
        """
        m, along = float(masses.min()), (self.tangential or 0.0) if self.friction else 0.0
        springs = max(8 * (self.stiffness + along), 40 * along)
        one = 2 * _beta(self.restitution) * math.sqrt(m / 2 * self.stiffness)  # of two such spheres
        other = one * math.sqrt(along / self.stiffness)
        dampers = max(8 * (one + other), 40 * other)
        return 4 * m / (dampers + math.sqrt(dampers**2 + 4 * m * springs))

    def _plain_step(self, radii: np.ndarray, masses: np.ndarray) -> float:
        # A contact of two of the lightest spheres takes 63 steps.
        return 0.05 * math.sqrt(float(masses.min()) / 2 / max(self.stiffness, 3.5 * (self.tangential or 0)))


LAWS = {law.__name__: law for law in (Hertz, LinearSpring)}
