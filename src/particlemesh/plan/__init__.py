# SPDX-License-Identifier: BSD-3-Clause
"""What users call (`plan`), and what its calls work with (`calls`, `integers`)."""

from particlemesh.plan.plan import Plan as Plan
