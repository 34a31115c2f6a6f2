# SPDX-License-Identifier: BSD-3-Clause
"""Damaged copies of files."""

import random


def mutated(raw, seed):
    """Return bytes of a file with one kind of damage, which the seed decides."""
    chance = random.Random(seed)
    data = bytearray(raw)
    at = chance.randrange(len(data))
    length = chance.randrange(1, 64)
    kind = chance.randrange(6)
    if kind == 0:
        for _ in range(chance.randrange(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        data[at : at + length] = bytes(chance.choice([0, 255]) for _ in range(length))
    elif kind == 3:
        other = chance.randrange(len(data))
        data[at : at + length] = data[other : other + length]
    elif kind == 4:
        del data[at : at + length]
    else:
        data[at:at] = bytes(chance.randrange(256) for _ in range(length))
    return bytes(data)
