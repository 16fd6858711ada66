"""Who runs in which round, worked out by hand from constant shares; see `tests.simulator.cases` for the columns."""

from __future__ import annotations

import pytest

from tests.simulator.cases import check, rows, run

TABLE = """
# owed at the end of each round, in rounds: 2 (0.3 k - a) beside 0.5 k - b
a gang is owed the time of all its GPUs | 1e6x2 1e6 | v100:2 | shares! .3/.5 | idle_fill=best_type |
    0 1 1 0 1 1 0 1 1 0 1 0
# owed in rounds: .5, .3, .2; 0, .6, .4; .5, -.1, .6; 1, .2, -.2; .5, .5, 0 (the share decides)
by deficit | 1e6 1e6 1e6 | | shares .5/.3/.2 | | 0 1 2 0 0 1
# a decision when the third comes, after one round: a deficit of -.45 and .45 rounds is carried over
a deficit outlives a decision | 1e6 1e6 1:1e6 | | shares .55/.45/0 | | 0 1 0
# job 0 had five rounds beyond its share: three are held against it, then -2.5, 0; -2, 0; -1.5, -.5; -1, -1; -.5, -1.5
an overdraft is held for three rounds | 1e6 3600:1e6 | | shares .5/.5 | | 0 0 0 0 0 0 0 0 0 0 1 1 1 1 0
or for all of it | 1e6 3600:1e6 | | shares .5/.5 | max_overdraft_rounds=none | 0 0 0 0 0 0 0 0 0 0 1 1 1 1 1 1 0
# job 1 goes at once; then it is owed 0, -1/2 and -1 rounds, the other 0, 1/2 and 1: 1.25 are needed more
hysteresis | 1e6 1e6 | | shares .5/.5 | hysteresis_rounds=2.5 | 0 1 1 1 0 0 0 0 1
newcomers do not wait for it | 1e6 1e6 1e6 | | | hysteresis_rounds=50 | 0 1 2
equal priorities go by id | 1e6 1e6 1e6 | | shares .2/.2/.2 | | 0 1 2 0
# owed -1 and 0: job 1 is new; -1 and -1, -2, -3: who runs has 2.5 more; -1 and -4: job 0, until it is owed -7
who fills a GPU goes on, too | 1e6 1e6 | | shares 0/0 | hysteresis_rounds=2.5 | 0 1 1 1 1 0 0 0 0 0 0 1
# owed after two rounds: .9, 2 (.6 - 1) and .3 rounds, with the promise of the third 1.7, 1.6 and -.1
a gang that does not fit lets others pass | 1e6 1e6x2 1e6 | v100:2 | shares .9/.6/.3 | | 1 0 2 0 2
idle GPUs are filled | 1e6 1e6 | v100:2 | shares 1/0 | | 0 1 0 1
# owed over all types after a round: -180, -252 and 72 s
by who is owed most | 1e6/1,1 1e6/1,1 1e6/1,1 | a:1,b:1 | shares .5,0/.3,0/.2,0 | | 0 1 1 2
not under a policy that does not want it | 1e6 1e6 | v100:2 | shares! 1/0 | | 0 0 0
nor where a run says so | 1e6 1e6 | v100:2 | shares 1/0 | idle_fill=off | 0 0 0
"""

TYPES = """
# the largest priority of all comes first
one queue | 1e6/1,1 1e6/1,1 | a:1,b:1 | shares .4,.6/.1,.3 | idle_fill=best_type | b:0 a:1
# nobody has a share: who is owed as much goes by id, to the fastest type with room
filled by the best type | 1e6/1,2 1e6/1,4 | slow:1,fast:1 | shares 0,0/0,0 | | fast:0 slow:1
"""

DUE = """
# new, it starts for half a round; owed, with each round's promise, 0, 0.5 and 1 rounds then
half of the time | 1e6 | | shares! .5 | | 0 3 4 7 8 11
half of the time, of any policy | 1e6 | | shares .5 | idle_fill=off | 0 3 4 7 8 11
all of the time | 1e6 | | shares! 1 | | 0 1 2 3 4 5
both gangs all of the time | 1e6x4 1e6x4 | v100:8 | shares! 1/1 | | 0 0 1 1 2 2
more where a run says so | 1e6 | | shares! .5 | idle_fill=best_type | 0 1 2 3 4 5
# it starts when it is owed half a round, and then once it is owed a whole one
a gang beside GPUs that idle | 1e6x8 | v100:8 | shares! .25 | | 1 7 8
a share of a thousandth | 720 | | shares! .001 | max_clock_seconds=1e9 | 499 1999
"""


def limited(settings, rounds=20):
    return settings if "max_clock" in settings else f"{settings} max_clock_seconds={360 * rounds}"


@pytest.mark.parametrize(("jobs", "cluster", "policy", "settings", "order"), rows(TABLE))
def test_who_runs_in_the_order_of_rounds(jobs, cluster, policy, settings, order):
    check(*run(jobs, cluster, policy, limited(settings)), f"rounds.job_id {order} ...")


@pytest.mark.parametrize(("jobs", "cluster", "policy", "settings", "first"), rows(TYPES))
def test_who_runs_on_which_type_in_the_first_round(jobs, cluster, policy, settings, first):
    rounds = run(jobs, cluster, policy, limited(settings, 1))[0].rounds
    of_first = rounds[rounds["round"] == 0]
    found = {f"{name}:{job}" for name, job in zip(of_first["accelerator"], of_first["job_id"], strict=True)}
    assert found == set(first.split())


@pytest.mark.parametrize(("jobs", "cluster", "policy", "settings", "numbers"), rows(DUE))
def test_in_which_rounds_time_is_due(jobs, cluster, policy, settings, numbers):
    times = " ".join(f"{number}*360" for number in numbers.split())
    check(*run(jobs, cluster, policy, limited(settings)), f"rounds.start_time {times} ...")
