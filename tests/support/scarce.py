# SPDX-License-Identifier: BSD-3-Clause
"""A device with little memory."""


class Scarce:
    """Lets some allocations pass and then has no memory."""

    def __init__(self, empty, passes):
        self.empty, self.left, self.failed = empty, passes, False

    def __call__(self, *arguments, **options):
        self.left -= 1
        if self.left < 0:
            self.failed = True
            raise MemoryError("no memory (made up by a test)")
        return self.empty(*arguments, **options)
