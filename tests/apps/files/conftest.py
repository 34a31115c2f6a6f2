# SPDX-License-Identifier: BSD-3-Clause
"""Files of other programs are read in processes of their own, which take seconds each; here they are forked."""

from forked import quickly, tried  # noqa: F401
