# SPDX-License-Identifier: BSD-3-Clause
"""How tests are shared out among workers, so that two seldom compile the same at the same time."""

import re
import zlib

from xdist.scheduler import LoadScopeScheduling

ON_RANKS = "0 on ranks"  # all share one mpiexec, which takes long: first of all


def share_of(test, workers):
    """Return the share of a test by its id: its backend and file.

    More than two workers get parts of files, so that none has the largest file alone.
    """
    path, _, name = test.partition("::")
    if re.search(r"\b\d+ranks\b", name):
        return ON_RANKS
    backend = re.search(r"\b(cuda|opencl)\b", name)
    part = zlib.crc32(test.encode()) % max(1, workers // 2)
    return f"{backend[1] if backend else 'cpu'} {path} {part:03d}"


class FromBothEnds(LoadScopeScheduling):
    """Every second worker takes shares from the end of their order, where OpenCL is.

    Tests of a file want the same functions and kernels compiled. Workers that went through the tests side by side
    compiled most of them twice.
    """

    def _split_scope(self, nodeid):
        return share_of(nodeid, self.numnodes)

    def _assign_work_unit(self, node):
        # A worker that crashed also returns what it has done; nothing comes back from a share without tests.
        for share in [s for s, tests in self.workqueue.items() if all(tests.values())]:
            del self.workqueue[share]
        if not self.workqueue:
            node.shutdown()
            return
        ends = min(self.workqueue), max(self.workqueue)
        self.workqueue.move_to_end(ends[self.nodes.index(node) % 2], last=False)
        super()._assign_work_unit(node)
