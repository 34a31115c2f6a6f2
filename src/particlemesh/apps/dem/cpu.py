# SPDX-License-Identifier: BSD-3-Clause
"""The kernels of step.c for the CPU, compiled by Numba; step.c says what the arrays are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from particlemesh.kernels.cpu import compiled, ranges

STOP, LIMIT = 0, 1  # status words
SHARE = 512  # particles that a thread claims at once


class ParticleArrays(NamedTuple):
    """Particles, as compiled functions see them."""

    x: np.ndarray  # (N, 4), as all of these
    u: np.ndarray
    s: np.ndarray
    v: np.ndarray
    w: np.ndarray
    a: np.ndarray
    b: np.ndarray
    origin: np.ndarray  # places at the last search


class Pairs(NamedTuple):
    """Lists of neighbours and what they remember."""

    start: np.ndarray
    rows: np.ndarray
    list: np.ndarray
    history: np.ndarray  # (entries, 4)


class Numbers(NamedTuple):
    """Constants of the motion, in the particles' type."""

    motion: np.ndarray  # step, half a step, squared reach, gravity, origin, lengths, inverse lengths
    law: np.ndarray  # normal, tangential, damping, friction, share, ratio, lag
    planes: np.ndarray  # (W, 26)
    wall_history: np.ndarray  # (N, W, 4)
    clock: np.ndarray  # (1,) of int64: steps for which walls have moved


@compiled
def _drift(p, motion, begin, end):
    """Move particles; return whether one has left the reach of the lists."""
    real = p.x.dtype.type
    step, half = motion[0], motion[1]
    left = False
    for i in range(begin, end):
        moved = real(0)
        for c in range(3):
            u = p.v[i, c] + half * p.a[i, c]
            place = p.x[i, c] + step * u
            low, length = motion[6 + c], motion[9 + c]
            if length > 0:
                at = place - low
                turns = np.floor(at * motion[12 + c])
                if at < 0:
                    place -= length * min(turns, real(-1))
                    place = place if place - low < length else low  # rounding
                elif at >= length:
                    place -= length * max(turns, real(1))
            d = place - p.origin[i, c]
            if length > 0:
                d -= length * np.rint(d * motion[12 + c])
            moved += d * d
            p.x[i, c] = place
            p.u[i, c] = u
            p.s[i, c] = p.w[i, c] + half * p.b[i, c]
        p.u[i, 3] = p.v[i, 3]
        p.s[i, 3] = p.w[i, 3]
        if not moved <= motion[2]:
            left = True
    return left


@compiled(forceinline=True)
def _contact(law, hertz, overlap, radius, mass, n0, n1, n2, v0, v1, v2, twist, step, h0, h1, h2, h3):
    """Return the force on the first of two that touch, and the history."""
    real = law.dtype.type
    zero, one = real(0), real(1)
    root = np.sqrt(radius * overlap) if hertz else one
    slope, along = law[0] * root, law[1] * root
    speed = v0 * n0 + v1 * n1 + v2 * n2
    damper = law[2] * np.sqrt(mass * slope)
    way = np.abs(speed) * step
    if overlap < way + way:  # the contact begins or ends: see step.c
        q = overlap / way
        if hertz:
            rise = real(1.32803) * q if q < one else real(1.46685) - real(0.13882) * q
            damper *= rise / np.sqrt(np.sqrt(q)) if q > zero else zero
        else:
            damper *= real(1.5) * q if q < one else real(2) - real(0.5) * q
    damper /= one + law[6] * damper * step / mass
    normal = law[4] * slope * overlap - damper * speed
    f0, f1, f2 = normal * n0, normal * n1, normal * n2
    if law[3] > 0:
        most = law[3] * normal if normal > 0 else zero
        before = h0 * h0 + h1 * h1 + h2 * h2
        out, angle = h0 * n0 + h1 * n1 + h2 * n2, step * twist
        h0, h1, h2 = h0 - out * n0, h1 - out * n1, h2 - out * n2
        g0 = h0 + angle * (n1 * h2 - n2 * h1)
        g1 = h1 + angle * (n2 * h0 - n0 * h2)
        g2 = h2 + angle * (n0 * h1 - n1 * h0)
        after = g0 * g0 + g1 * g1 + g2 * g2
        keep = np.sqrt(before / after) if after > 0 else zero
        if along < h3:
            keep *= along / h3
        w0, w1, w2 = v0 - speed * n0, v1 - speed * n1, v2 - speed * n2
        stiff = along * step
        h0, h1, h2, h3 = keep * g0 - stiff * w0, keep * g1 - stiff * w1, keep * g2 - stiff * w2, along
        size = h0 * h0 + h1 * h1 + h2 * h2
        if size > most * most:
            less = most / np.sqrt(size)
            h0, h1, h2 = less * h0, less * h1, less * h2
        drag = law[5] * damper
        w0, w1, w2 = drag * w0, drag * w1, drag * w2
        dot, rate = h0 * w0 + h1 * w1 + h2 * w2, w0 * w0 + w1 * w1 + w2 * w2
        size = h0 * h0 + h1 * h1 + h2 * h2
        part = one
        if size - (dot + dot) + rate > most * most and rate > 0:
            left = most * most - size if most * most > size else zero
            part = (dot + np.sqrt(dot * dot + rate * left)) / rate
            part = min(max(part, zero), one)
        f0, f1, f2 = f0 + (h0 - part * w0), f1 + (h1 - part * w1), f2 + (h2 - part * w2)
    return f0, f1, f2, h0, h1, h2, h3


@compiled(forceinline=True)
def _near(wall, x0, x1, x2, time):
    """Return the distance of a wall, the unit vector from it, and the nearest point: `near` in step.c."""
    real = wall.dtype.type
    zero, one = real(0), real(1)
    a0, a1, a2, e0, e1, e2 = wall[4], wall[5], wall[6], wall[11], wall[12], wall[13]
    q0, q1, q2 = x0 - (wall[1] + time * wall[14]), x1 - (wall[2] + time * wall[15]), x2 - (wall[3] + time * wall[16])
    if wall[0] == 0:
        n0, n1, n2 = a0, a1, a2
        distance = a0 * x0 + a1 * x1 + a2 * x2 - (wall[7] + time * (a0 * wall[14] + a1 * wall[15] + a2 * wall[16]))
    else:
        height = q0 * a0 + q1 * a1 + q2 * a2
        if wall[0] == 1:
            o0, o1, o2 = q0 - height * a0, q1 - height * a1, q2 - height * a2
            rho = np.sqrt(o0 * o0 + o1 * o1 + o2 * o2)
            if rho > 0:
                o0, o1, o2 = o0 / rho, o1 / rho, o2 / rho
            else:
                o0, o1, o2 = e0, e1, e2
            along, up = wall[9] - wall[7], wall[10] - wall[8]
            part = ((rho - wall[7]) * along + (height - wall[8]) * up) / (along * along + up * up)
            part = min(max(part, zero), one)
            a, b = rho - wall[7] - part * along, height - wall[8] - part * up
            n0, n1, n2 = a * o0 + b * a0, a * o1 + b * a1, a * o2 + b * a2
        else:
            o0, o1, o2 = a1 * e2 - a2 * e1, a2 * e0 - a0 * e2, a0 * e1 - a1 * e0
            a, b = q0 * e0 + q1 * e1 + q2 * e2, q0 * o0 + q1 * o1 + q2 * o2
            a -= min(max(a, -wall[7]), wall[7])
            b -= min(max(b, -wall[8]), wall[8])
            n0, n1, n2 = a * e0 + b * o0 + height * a0, a * e1 + b * o1 + height * a1, a * e2 + b * o2 + height * a2
        distance = np.sqrt(n0 * n0 + n1 * n1 + n2 * n2)
        if distance > 0:
            n0, n1, n2 = n0 / distance, n1 / distance, n2 / distance
        else:
            n0, n1, n2 = a0, a1, a2
    return distance, n0, n1, n2, q0 - distance * n0, q1 - distance * n1, q2 - distance * n2


@compiled
def nearest(walls, x, distance, unit):
    """Write the distance of each place from its wall, and the unit vector to it."""
    for k in range(len(x)):
        distance[k], unit[k, 0], unit[k, 1], unit[k, 2], _, _, _ = _near(walls[k], x[k, 0], x[k, 1], x[k, 2], 0.0)


@compiled
def _forces(p, pairs, numbers, hertz, step, half, begin, end):
    """Write forces, and speeds at the end of the step."""
    real = p.x.dtype.type
    zero, one = real(0), real(1)
    x, u, s, motion, law, planes = p.x, p.u, p.s, numbers.motion, numbers.law, numbers.planes
    p0, p1, p2, q0, q1, q2 = motion[9], motion[10], motion[11], motion[12], motion[13], motion[14]
    images = p0 + p1 + p2 > 0
    remembers = law[3] > 0
    history, wall_history = pairs.history, numbers.wall_history
    for i in range(begin, end):
        x0, x1, x2, radius = x[i, 0], x[i, 1], x[i, 2], x[i, 3]
        u0, u1, u2, mass = u[i, 0], u[i, 1], u[i, 2], u[i, 3]
        s0, s1, s2 = s[i, 0], s[i, 1], s[i, 2]
        a0 = a1 = a2 = b0 = b1 = b2 = zero
        first = pairs.start[i]
        for at in range(first, first + pairs.rows[i]):
            entry = pairs.list[at]
            code = entry if entry >= 0 else ~entry
            j = code >> 1
            n0, n1, n2 = x0 - x[j, 0], x1 - x[j, 1], x2 - x[j, 2]
            if images:
                n0, n1, n2 = n0 - p0 * np.rint(n0 * q0), n1 - p1 * np.rint(n1 * q1), n2 - p2 * np.rint(n2 * q2)
            r2, both = n0 * n0 + n1 * n1 + n2 * n2, radius + x[j, 3]
            if not r2 < both * both:
                if entry < 0:
                    pairs.list[at] = code
                continue
            is_first = code & 1
            sign = one if is_first else -one
            distance = np.sqrt(r2)
            per = sign / distance if distance > 0 else zero
            n0, n1, n2 = n0 * per, n1 * per, n2 * per
            if distance == 0:
                n0 = one
            v0, v1, v2 = sign * (u0 - u[j, 0]), sign * (u1 - u[j, 1]), sign * (u2 - u[j, 2])
            per = one / both
            arm, twist = distance * (radius * per), zero
            if remembers:  # what spins add is across the normal
                far = distance * (x[j, 3] * per)
                t0, t1, t2 = s[j, 0], s[j, 1], s[j, 2]
                r0, r1, r3 = arm * s0 + far * t0, arm * s1 + far * t1, arm * s2 + far * t2
                v0, v1, v2 = v0 - (r1 * n2 - r3 * n1), v1 - (r3 * n0 - r0 * n2), v2 - (r0 * n1 - r1 * n0)
                twist = real(0.5) * ((s0 + t0) * n0 + (s1 + t1) * n1 + (s2 + t2) * n2)
            h0 = h1 = h2 = h3 = zero
            if entry < 0 and remembers:
                h0, h1, h2, h3 = history[at, 0], history[at, 1], history[at, 2], history[at, 3]
            light, heavy = min(mass, u[j, 3]), max(mass, u[j, 3])
            f0, f1, f2, h0, h1, h2, h3 = _contact(
                law, hertz, max(both - distance, zero), radius * x[j, 3] * per, light / (one + light / heavy),
                n0, n1, n2, v0, v1, v2, twist, step, h0, h1, h2, h3,
            )  # fmt: skip
            if remembers:
                history[at, 0], history[at, 1], history[at, 2], history[at, 3] = h0, h1, h2, h3
            if entry >= 0:
                pairs.list[at] = ~code
            a0, a1, a2 = a0 + sign * f0, a1 + sign * f1, a2 + sign * f2
            b0, b1 = b0 - arm * (n1 * f2 - n2 * f1), b1 - arm * (n2 * f0 - n0 * f2)
            b2 -= arm * (n0 * f1 - n1 * f0)
        touched, touches = np.int64(s[i, 3]), np.int64(0)
        for wall in range(planes.shape[0]):
            row = planes[wall]
            distance, n0, n1, n2, r0, r1, r2 = _near(row, x0, x1, x2, real(numbers.clock[0]) * row[25])
            if not distance < radius:
                continue
            h0 = h1 = h2 = h3 = zero
            h = wall_history[i, wall]
            rule = row[18:25]
            if (touched >> wall) & 1 and rule[3] > 0:
                h0, h1, h2, h3 = h[0], h[1], h[2], h[3]
            t0, t1, t2 = row[17] * row[4], row[17] * row[5], row[17] * row[6]
            v0 = u0 - distance * (s1 * n2 - s2 * n1) - (row[14] + t1 * r2 - t2 * r1)
            v1 = u1 - distance * (s2 * n0 - s0 * n2) - (row[15] + t2 * r0 - t0 * r2)
            v2 = u2 - distance * (s0 * n1 - s1 * n0) - (row[16] + t0 * r1 - t1 * r0)
            twist = real(0.5) * ((s0 + t0) * n0 + (s1 + t1) * n1 + (s2 + t2) * n2)
            f0, f1, f2, h0, h1, h2, h3 = _contact(
                rule, hertz, radius - distance, radius, mass, n0, n1, n2, v0, v1, v2, twist, step, h0, h1, h2, h3
            )
            if rule[3] > 0:
                h[0], h[1], h[2], h[3] = h0, h1, h2, h3
            touches |= np.int64(1) << wall
            a0, a1, a2 = a0 + f0, a1 + f1, a2 + f2
            b0, b1 = b0 - distance * (n1 * f2 - n2 * f1), b1 - distance * (n2 * f0 - n0 * f2)
            b2 -= distance * (n0 * f1 - n1 * f0)
        inertia = real(0.4) * mass * radius * radius
        a0, a1, a2 = a0 / mass + motion[3], a1 / mass + motion[4], a2 / mass + motion[5]
        b0, b1, b2 = b0 / inertia, b1 / inertia, b2 / inertia
        p.a[i, 0], p.a[i, 1], p.a[i, 2] = a0, a1, a2
        p.b[i, 0], p.b[i, 1], p.b[i, 2] = b0, b1, b2
        p.v[i, 0], p.v[i, 1], p.v[i, 2] = u0 + half * a0, u1 + half * a1, u2 + half * a2
        p.w[i, 0], p.w[i, 1], p.w[i, 2] = s0 + half * b0, s1 + half * b1, s2 + half * b2
        p.v[i, 3], p.w[i, 3] = mass, real(touches)


@compiled
def drift(p, numbers, status, counter):
    """Move shares of the particles."""
    for begin, end in ranges(counter, p.x.shape[0], SHARE):
        if _drift(p, numbers.motion, begin, end):
            status[STOP] = 0


@compiled
def forces(p, pairs, numbers, hertz, step, half, counter):
    """Write forces of shares of the particles that have lists."""
    for begin, end in ranges(counter, pairs.rows.shape[0], SHARE):
        _forces(p, pairs, numbers, hertz, step, half, begin, end)


@compiled
def steps(p, pairs, numbers, hertz, status):
    """Make up to ``status[LIMIT]`` steps in one thread."""
    count, motion = p.x.shape[0], numbers.motion
    for k in range(status[LIMIT]):
        numbers.clock[0] += 1
        if _drift(p, motion, 0, count):
            status[STOP] = k
            return
        _forces(p, pairs, numbers, hertz, motion[0], motion[1], 0, count)


@compiled
def match(start, partners, name, old, new, images, ordered, remembers, counter):
    """Make the lists of what a search found, and hand on the history of pairs that touched."""
    for begin, end in ranges(counter, start.size - 1, SHARE):
        for i in range(begin, end):
            first, mine, size = start[i], name[i], 0
            for at in range(first, start[i + 1]):
                j = partners[at]
                known = False
                if images:
                    known = j == i
                    for m in range(size):
                        known |= new.list[first + m] == j
                if not known:
                    new.list[first + size] = j
                    size += 1
            if ordered:
                gap = 701 if size > 32 else 1
                while gap > 0:
                    for m in range(gap, size):
                        j = new.list[first + m]
                        place = m
                        while place >= gap and name[new.list[first + place - gap]] > name[j]:
                            new.list[first + place] = new.list[first + place - gap]
                            place -= gap
                        new.list[first + place] = j
                    gap = 0 if gap == 1 else 1 if gap < 9 else gap * 4 // 9
            for m in range(first, first + size):
                j = new.list[m]
                new.list[m] = 2 * j + (1 if mine < name[j] else 0)
            for at in range(old.start[i], old.start[i] + old.rows[i]):
                entry = old.list[at]
                if entry >= 0:
                    continue
                for m in range(first, first + size):
                    if new.list[m] == ~entry:
                        new.list[m] = entry
                        if remembers:
                            for k in range(old.history.shape[1]):  # rows at once would take seconds to compile
                                new.history[m, k] = old.history[at, k]
                        break
            new.start[i], new.rows[i] = first, size
