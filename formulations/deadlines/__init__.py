"""Jobs with deadlines: least shares that meet them, admission, and what to do with the rest (ElasticFlow, ASPLOS 2023).

>>> from formulations.deadlines import DeadlineJob, DeadlineOrder, Filling, FreeProfile, ScalingCurve
>>> curve = ScalingCurve([1, 2, 4], [1.0, 1.8, 3.0], capacity=4)
>>> order = DeadlineOrder.filled(Filling(), FreeProfile(0.0, 4))
>>> order.admit([DeadlineJob(curve, 100.0, 90.0)]), order.admit([DeadlineJob(curve, 300.0, 101.0)])
(True, False)
>>> order.plans[0].starts, order.plans[0].gpus
([0.0], [2])
"""

from formulations.deadlines.elastic import use_left_over
from formulations.deadlines.filling import Filling, earliest_share
from formulations.deadlines.jobs import DeadlineJob, ScalingCurve
from formulations.deadlines.order import DeadlineOrder
from formulations.deadlines.profile import FreeProfile, JobPlan
from formulations.deadlines.repair import cheapest_share, plans_by_repair

__all__ = [
    "DeadlineJob",
    "DeadlineOrder",
    "Filling",
    "FreeProfile",
    "JobPlan",
    "ScalingCurve",
    "cheapest_share",
    "earliest_share",
    "plans_by_repair",
    "use_left_over",
]
