# SPDX-License-Identifier: BSD-3-Clause
"""Ctrl-C while the command ``particlemesh`` imports the library, which takes seconds: it ends without a traceback."""

import signal
import sys
from pathlib import PurePath


def is_command() -> bool:
    """Return whether the process is the command, as a script or by ``python -m particlemesh``."""
    first = next(iter(sys.argv), "")
    return "particlemesh" in ([PurePath(first).stem] if first != "-m" else sys.orig_argv)


def begun() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again: the command is imported, and its name may be another one by now."""
    if _ends_at_once and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_ends_at_once = is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
if _ends_at_once:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
