# SPDX-License-Identifier: BSD-3-Clause
import pytest

import mpi


@pytest.fixture
def reports(request):
    """How the tests of this file went on the ranks of MPI."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed", exc_type=ImportError)
    return mpi.reports_of(request.path)
