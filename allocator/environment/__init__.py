"""Step by step: the simulator as an environment of Gymnasium, for agents that decide from outside.

    import gymnasium
    import allocator.environment

    environment = gymnasium.make("allocator/Cluster-v0", cluster="v100:4,k80:4", reward="average_jct")
    observation, info = environment.reset(seed=0)

Needs the package gymnasium, the extra ``gym``.
"""

try:
    import gymnasium
except ModuleNotFoundError as error:
    message = "allocator.environment needs Gymnasium: pip install 'cluster-allocator[gym]'"
    raise ModuleNotFoundError(message, name=error.name) from error

from allocator.environment.environment import ClusterEnvironment
from allocator.environment.rewards import REWARDS, Progress

__all__ = ["ENVIRONMENT", "REWARDS", "ClusterEnvironment", "Progress"]

ENVIRONMENT = "allocator/Cluster-v0"
"""What the environment is called in `gymnasium.make`."""

if ENVIRONMENT not in gymnasium.registry:
    gymnasium.register(ENVIRONMENT, entry_point="allocator.environment.environment:ClusterEnvironment")
