# SPDX-License-Identifier: BSD-3-Clause
"""What users call (`plan`), the way of values (`calls`, `integers`), the methods and the memory of a plan."""

from particlemesh.plan.plan import Plan as Plan
