# SPDX-License-Identifier: BSD-3-Clause
"""Orders of particles that methods share: by node, block or tile, and copies of the domain."""
