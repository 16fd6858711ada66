"""An audit of any allocation: what it guarantees, to whom it does least, and what its prices say.

>>> import pandas as pd, allocator
>>> speeds = pd.DataFrame({"v100": [4.0, 2.0], "k80": [1.0, 1.0]}, index=["resnet", "lstm"])
>>> report = allocator.solve("max_min_fairness_perf", speeds, "v100:1,k80:1").audit()
>>> bool(report["sharing incentive"].holds), bool(report["Pareto efficiency"].holds)
(True, True)
"""

from allocator.audit.record import Audit, Explanation, Property
from allocator.audit.run import audit

__all__ = ["Audit", "Explanation", "Property", "audit"]
