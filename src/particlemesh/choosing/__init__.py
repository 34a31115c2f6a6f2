# SPDX-License-Identifier: BSD-3-Clause
"""What methods take, measured: tables by device (``*.csv`` here, and the user's), and predictions from them."""
