# SPDX-License-Identifier: BSD-3-Clause
"""Selection of methods: measured times per device (``*.csv`` here, and the user's), and predictions from them."""
