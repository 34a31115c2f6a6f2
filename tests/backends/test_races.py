# SPDX-License-Identifier: BSD-3-Clause
"""The look for races in kernels: a run of one method, or the sentence that says why there is none."""

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "races"


def test_races_are_looked_for_or_the_reason_is_given():
    run = subprocess.run([sys.executable, str(TOOL), "particle"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    last = run.stdout.splitlines()[-1]
    assert last == "no races, no bad addresses" or last.startswith("oclgrind is not installed"), run.stdout
