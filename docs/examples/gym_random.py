"""An agent that learns nothing: random shares of time, episode after episode, beside a policy on the same jobs."""

from __future__ import annotations

import gymnasium

import allocator
import allocator.environment
from throughputs import TraceGenerator

EPISODES = 3

trace = TraceGenerator(n_jobs=30, mean_interarrival=900.0, scale_factors={1: 0.8, 2: 0.2}, seed=1).generate()
environment = gymnasium.make("allocator/Cluster-v0", cluster="v100:4,p100:4,k80:4", trace=trace, reward="average_jct")
environment.action_space.seed(0)

for episode in range(EPISODES):
    environment.reset(seed=episode)
    rewards, over = 0.0, False
    while not over:
        # An agent that learns would look at the observation, and remember the reward.
        observation, reward, terminated, truncated, info = environment.step(environment.action_space.sample())
        rewards, over = rewards + float(reward), terminated or truncated
    print(f"episode {episode}: average JCT {-rewards / 3600:.2f} h, {info['reason']}")

policy = allocator.get_policy("max_min_fairness_perf")
result = allocator.simulate(trace, "v100:4,p100:4,k80:4", policy)
print(f"{policy.name}: average JCT {result.summary().average_jct / 3600:.2f} h")
