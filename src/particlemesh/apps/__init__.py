# SPDX-License-Identifier: BSD-3-Clause
"""Applications: programs on the public interface that users would otherwise write themselves."""
