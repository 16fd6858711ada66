"""For those who write policies: the conformance check that every policy passes, ours and others'.

>>> from allocator.testing import check_policy
>>> check_policy("max_min_fairness_perf")
"""

from allocator.testing.check import PolicyCheckError, check_policy

__all__ = ["PolicyCheckError", "check_policy"]
