# SPDX-License-Identifier: BSD-3-Clause
"""``python -m particlemesh``: the same as the command ``particlemesh``."""

from particlemesh.command.cli import app

app(prog_name="particlemesh")
