"""Runs that were worked out by hand, a rule of the simulator or of the mechanism each; see `cases` for the columns."""

from __future__ import annotations

import pytest

from tests.simulator.cases import check, rows, run

ROUNDS = """
whole rounds, and an end inside the last | 1000/2 | | | | jct 500; rounds_run 2; rounds.steps 720 280;
    rounds.end_time 360 500; timeline.end_time 360 720; summary.makespan 500; summary.utilization 1
whole steps shorten the rounds of gavel | 504/0.701 | | | preset=gavel | rounds.steps 252 252; end 504/0.701;
    timeline.start_time 0 252/0.701
# alone on half of the cluster each would need 1440 s, less the 360 s in which the second has it to itself
two take turns on one GPU | 720 720 | | | | rounds.job_id 0 1 0 1; end 1080 1440; isolated_jct 1260 1260;
    preemptions 1 1; summary.average_jct 1260; summary.worst_rho 1440/1260; summary.unfair_fraction .5;
    summary.average_queue .75; summary.lease_extensions 0; summary.lease_opportunities 2
who stays extends the lease | 720 1080 | v100:2 | | | summary.lease_extensions 3; summary.lease_extension_rate 1
no lease, no chance | 360 | | | | summary.lease_opportunities 0; summary.lease_extension_rate None
who is left over had a chance | 7200 100:360 | | latest_first | window=1:2 | rounds.job_id 0 1;
    status unfinished completed; summary.lease_extensions 0; summary.lease_opportunities 1
jobs wait for the next round | 10 100:360 5000:360 | v100:2 | | | start_time 0 360 5000; end 10 720 5360;
    timeline.start_time 0 360 5000
# asked at 0, once more at once because 0 does not count, then not within 1920 s
a decision of gavel waits | 7200 10:7200 400:7200 | v100:3 | | preset=gavel | asked 0 360 2520 ...
one of ours does not | 7200 10:7200 400:7200 | v100:3 | | | asked 0 360 720 ...
another interval | 7200 10:7200 400:7200 | v100:3 | | recompute_interval_seconds=500 | asked 0 720 ...
who cannot run is left out | 360 360/0 360x4 | v100:2 | | | status completed unserved unserved; end 360 - -;
    rho 1 - -; summary.completed_jobs 1; summary.unserved_jobs 2; summary.jobs 3; asked 0
a gang larger than a type runs on another | 360x4/9,1 | small:2,large:4 | | | rounds.accelerator large;
    rounds.gpus 2,3,4,5
slower than a step per round under gavel | 10/0.001 720 | v100:2 | | preset=gavel | status dropped completed;
    summary.dropped_jobs 1
a step may take several rounds | 10/0.001 720 | v100:2 | | | end 10000 720
one of each status | 10/.001 720 720x8 1e9 | v100:3 | | preset=gavel max_clock_seconds=10000 |
    status dropped completed unserved unfinished; end - 720 - -; summary.completed_jobs 1; summary.dropped_jobs 1;
    summary.unserved_jobs 1; summary.unfinished_jobs 1; summary.rejected_jobs 0; summary.cut_off_jobs 0
cut off at a multiple of the profile | 1000 | | | round_seconds=100 overtime_factor=.45 | end 500; status cut_off;
    steps_done 500
not before it is beyond | 1000 | | | round_seconds=100 overtime_factor=.5 | end 600; steps_done 600
also in the midst of thousands of equal rounds | 1e7 | | | round_seconds=100 overtime_factor=.45 | end 4500100;
    status cut_off
# the 4,640 s in which the cluster stood idle count as received by job 1: job 2 is served until the next decision
an idle gap counts as service under gavel | 360 5000:1e6 5000:1e6 | | shares 1/.5/.5 |
    preset=gavel max_clock_seconds=6500 | rounds.job_id 0 1 2 2 2 ...
where it does not | 360 5000:1e6 5000:1e6 | | shares 1/.5/.5 |
    preset=gavel max_clock_seconds=6500 idle_gap_counts_as_service=false | rounds.job_id 0 1 2 1 2 ...
who is cut off missed the deadline | 36000@slo=10@duration=36000 | | | overtime_factor=.5 | status cut_off; met False
no trace | | | | | jct; summary.makespan 0; summary.utilization 0; summary.average_jct None
a window ends with its last job | 360 360 400:360 450:7200 | v100:2 | | window=1:3 | measured False True True False;
    status completed completed completed unfinished; summary.jobs 2; summary.average_jct 360;
    summary.window_start 0; summary.window_end 760; summary.window_utilization 3*360/1520
another one does not end it | 1000 10 | v100:2 | | window=0:1 | status completed completed; end 1000 10
who cannot run is not waited for | 360 360/0 5000:360 | | | window=0:2 | status completed unserved unfinished
too many wait | 0:9999 400:9999 800:9999 1200:9999 1600:9999 | | fifo_perf | max_waiting_jobs=3 |
    summary.status saturated;
    summary.unfinished_jobs 5; timeline.end_time 360 720 1080 1440 1800 2160
as many as may wait | 0:9999 400:9999 800:9999 1200:9999 | | fifo_perf | max_waiting_jobs=3 | summary.status completed
the clock ends the run | 500 5000 | v100:2 | | max_clock_seconds=1000 | summary.status saturated;
    status completed unfinished; timeline.end_time 360 720 1080; summary.utilization (500+1080)/2160
a period is kept | 3600 | | regular 720 | | asked 0 720 1440 2160 2880
a gang pays for its seconds | 720x2 400 | v100:3 | | prices=0:3.6 | cost 1.44 .4; summary.cost 1.84
a price changes within a round | 200 | | | prices=0:3.6,100:36 | summary.cost 1.1
prices are news to those who read them | 2000 | | reads_prices | prices=0:1,720:2,900:2 | asked 0 720
prices are no news to others | 2000 | | | prices=0:1,720:2,900:2 | asked 0
# the five gangs come one after the other to three servers and stay: each fills the fullest server with room
gangs fill servers | 7200x2 1:7200x3 361:7200 721:7200x2 1081:7200x4 | v100:12/4 | | |
    end 7200 360+7200 720+7200 1080+7200 1440+7200; preemptions 0 0 0 0 0;
    gpus 0,1 4,5,6 7 2,3 8,9,10,11
"""

STARTS = """
# the default: 30 s, a gang of more than 8 GPUs 60 s, busy before it trains
gangs over several servers pay more | 100x8 100x9 | v100:16 | | preset=usual | end 490 160; restart_gpu_seconds 240 540;
    summary.restart_gpu_hours 780/3600
busy with the start, then training | 50 | | fifo_perf | restart_penalty_seconds=20 restart_delays=true | end 70;
    gpu_seconds 70
a start takes from the first round only | 130 10 | | fifo_perf |
    restart_penalty_seconds=20 restart_delays=true round_seconds=120 | end 150 270; gpu_seconds 150 30
# two rounds and 20 s of the third start; then 40 and 10 s of training
a start goes on in the next rounds | 50 | | fifo_perf |
    restart_penalty_seconds=140 restart_delays=true round_seconds=60 | end 190; restart_gpu_seconds 140
# of rounds of 100 s: the second and the third round bring another job, which trains 80 s
who starts anew trains less | 1000 1000 | | | round_seconds=100 restart_penalty_seconds=20 |
    rounds.job_id 0 1 1 0 ...; rounds.steps 100 80 100 80 ...; gpu_seconds 1000 1000
# the second ends at 240 s of a round to 250 s, the third would at 447 s of one to 450 s: too near with 5 s of slack
who is done well before the end is spared | 100 150:90 350:97 | | |
    round_seconds=100 restart_penalty_seconds=20 restart_penalty_slack_seconds=5 | end 100 240 470
by the slack to the second | 100 150:95 | | |
    round_seconds=100 restart_penalty_seconds=20 restart_penalty_slack_seconds=5 | end 100 245; restart_gpu_seconds 0 0
and not a quarter later | 100 150:95.25 | | |
    round_seconds=100 restart_penalty_seconds=20 restart_penalty_slack_seconds=5 | end 100 270;
    restart_gpu_seconds 0 20
# at events: the short job takes the GPU at 50 s; the long one starts again at 100 s
restarts at events | 100 50:20 | | order | preset=usual | end 210 100; restart_gpu_seconds 60 30; running_time 160 50;
    queueing_time 50 0; summary.average_queueing_time 25; summary.average_running_time 105
# 15 of 100 steps by 20 s; job 1 from 25 to 55 s; 85 steps from 60 s on
a start costs all alike | 100x2 20:30x2 | v100:2 | order | restart_penalty_seconds=5 | end 145 55; gpu_seconds 220 70
by the number of GPUs reached | 100x2 20:30x2 | v100:2 | order | restart_penalty_by_gpus=1:2,2:7,4:90 | end 151 57
by job type first | 100x2 20:30x2 | v100:2 | order | restart_penalty_seconds=5 restart_penalty_by_job_type=job:1 |
    end 133 51
nothing is done before the next takes over | 100x2 20:30x2 | v100:2 | order | restart_penalty_seconds=25 | end 200 75
below the first number the one figure | 100 | | order | restart_penalty_by_gpus=2:4 restart_penalty_seconds=1 | end 101
by doublings | 100 100x2 100x4 | v100:7 | order | restart_penalty_seconds=4 restart_penalty_per_doubling_seconds=2 |
    end 104 106 108
# 90 steps by 50 s; job 1 from 55 to 75 s; job 0 does 25 (20) on the slow GPU, and 85 (90) from 75 (80) s on
a move is free | 200/1,2 50:40/1,2 | slow:1,fast:1 | order | restart_penalty_seconds=5 | end 117.5 75
a move costs on request | 200/1,2 50:40/1,2 | slow:1,fast:1 | order |
    restart_penalty_seconds=5 restart_when_moved=true |
    end 125 75
who runs on through a decision does not start | 50 3:10 | v100:2 | order | restart_penalty_seconds=5 | end 55 18
a start of many looks is no stall | 30 | | turns 0 2 | restart_penalty_seconds=600 | end 630
a step of no time stops jobs | 100 | | interrupted 10 | restart_penalty_seconds=3 | end 106; rounds.start_time 0 10
a head start is training time | 100/2 | | ahead 5 | | end 45
a head start is used up by the start first | 100 | | ahead 5 | restart_penalty_seconds=3 | end 98
up to all of it | 100 | | ahead 5 | restart_penalty_seconds=8 | end 103
who goes on has had the head start | 100 20 | v100:2 | ahead 5 | | end 95 15
a head start longer than the job | 100 20 | v100:2 | ahead 30 | | end 70 -10
# job 0 has 20 s done of 60 when job 1 comes; with 8 GPUs it loses 40 s, with fewer 30 s
a stopped job has more to do | 60x8 20:10x8 | v100:8 | srtf | preemption_penalty_by_gpus=1:30,8:40 | end 110 30;
    preemptions 1 0
less with fewer GPUs | 60x7 20:10x8 | v100:8 | srtf | preemption_penalty_by_gpus=1:30,8:40 | end 100 30
"""

EVENTS = """
a shorter job takes over | 100 20:30 | | | | end 130 50; preemptions 1 0; rounds_run 2 1; gpu_seconds 100 30;
    lease 0:0-20:20 1:20-50:30 0:50-130:80; asked 0 20 50; timeline.active_jobs 1 2 1; timeline.running_jobs 1 1 1;
    timeline.busy_gpus 1 1 1; timeline.end_time 20 50 130; summary.makespan 130; summary.utilization 1;
    summary.migrations 0
one lease however often asked | 500 100:30 200:40 | v100:2 | | | lease 1:100-130:30 2:200-240:40 0:0-500:500;
    preemptions 0 0 0; rounds.gpus 1 1 0; timeline.end_time 100 130 200 240 500; timeline.busy_gpus 1 2 1 2 1
the cluster waits for the next job | 5:10 100:10 | | | | lease 0:5-15:10 1:100-110:10; summary.utilization 20/110
# 100 steps by 50 s; 20 more by 70 s on the slow one; the other 80 at 2 steps/s until 110 s
another pool is a migration | 200/1,2 50:40/1,2 | slow:1,fast:1 | | |
    lease 0:0-50:100 1:50-70:40 0:50-70:20 0:70-110:80; rounds.accelerator fast fast slow fast; preemptions 2 0;
    summary.migrations 2
rejected jobs leave | 50 10:100 20:60 | | selective 60 | | status completed rejected completed;
    lease 0:0-50:50 2:50-110:60; end 50 - 110; start_time 0 - 50; jct 50 - 90; summary.rejected_jobs 1;
    summary.unfinished_jobs 0; summary.completed_jobs 2; summary.average_jct 70
the GPUs of a rejected job are free at once | 100 500:10 | | selective 999 30 30 | | status rejected completed;
    lease 0:0-30:30 1:500-510:10; gpu_seconds 30 10
also while another waits | 100 20:15 | | selective 999 40 30 | | lease 0:0-50:50 1:50-65:15
a period | 100 45:10 | | every 30 | | asked 0 30 45 75 105; lease 0:0-45:45 1:45-55:10 0:75-130:55
# the last step lasts for want of another; then nobody would run, and that is told
steps follow each other | 30 40 | | turns 0 10 1 20 0 15 1 1e999 | | asked 0 65;
    lease 0:0-10:10 1:10-30:20 0:30-45:15 1:45-65:20 0:65-70:5
an arrival ends a plan | 30 4:15 | | turns 0 10 1 20 0 1e999 | | asked 0 4; lease 0:0-14:14 1:14-29:15 0:34-50:16
a plan that is over is made anew | 30 40 | | turns 0 10 1 20 | | asked 0 30 60;
    lease 0:0-10:10 1:10-30:20 0:30-40:10 1:40-60:20 0:60-70:10
completions that nobody asked for | 100 10 10 40:500 | v100:2 | line_in_trouble | | asked 0 40 100; end 100 10 50 600
# 20 s, then 50 s from 50 s on, then 30 s; job 1: 30 s
costs follow the prices | 100 20:30 | | | prices=0:3.6,20:36,100:360 | cost 3.52 .3
loaded while jobs come | 300 900:300 | v100:2 | | prices=0:3.6 | summary.loaded_utilization 300/1800;
    summary.utilization 600/2400; summary.cost .6; summary.owned_cost 2.4
all at once load nothing for long | 10 20 | | | | summary.loaded_utilization None; summary.owned_cost None
"""

SLOTS = """
everything is seen at once | 25.5 10:5 | | | | end 25.5 15; asked 0 10 15
# the second arrival waits to 65 s, when the GPUs of the first, done at 35 s, are free too
a slot holds back arrivals and GPUs | 5:30x8 6:10x8 200:5x8 | | | slot_seconds=60 | end 35 75 205; asked 5 65 200
the last arrival waits | 500 10:10 | | | slot_seconds=60 | end 500 70
the last arrival is spared | 500 10:10 | | | slot_seconds=60 slot_spares_last_arrival=true | end 500 20
a grid from the first arrival | 7:10 150:10 | | | slot_seconds=60 slot_grid=true ends=slot | end 67 247; asked 7 187
a grid from elsewhere | 7:10 | | | slot_seconds=60 slot_grid=true slot_origin_seconds=0 | start_time 60
# (0.1 + 37 * 60.1 - 0.1) / 60.1 is above 37 by rounding
seen as a slot begins | 0.1:5000 2223.8:10 | | | slot_seconds=60.1 slot_grid=true |
    start_time .1 .1+37*60.1
an end at its time | 12.25 | | | slot_seconds=60 | end 12.25; gpu_seconds 60; summary.utilization 1/8
at the next second | 12.25 | | | slot_seconds=60 ends=second | end 13
counted down second by second | 12.25 | | | seconds_counted_down=true | end 13
# 1 less ten times 0.1 leaves 1.4e-16
in floating point | 1/.1 | | | seconds_counted_down=true | end 11
at the end of the slot | 12.25 | | | slot_seconds=60 ends=slot | end 60
judged by the end | 12.25@slo=2@duration=7 | | | slot_seconds=60 ends=slot | end 60; met False
judged by the training | 12.25@slo=2@duration=7 | | | slot_seconds=60 ends=slot deadlines_judged_by=training |
    end 60; met True
training of whole seconds | 12.25@slo=1.25@duration=10 | | |
    slot_seconds=60 ends=slot deadlines_judged_by=training | met False
which are 13 | 12.25@slo=1.3@duration=10 | | | slot_seconds=60 ends=slot deadlines_judged_by=training | met True
# of 4 GPUs: 2 + 3 (1 + 2) = 11 s; of one: 5 s
starts are charged | 200x4 100:10 | | | overhead=starts {cost} | end 211 115; restart_gpu_seconds 44 5
# at 0, at the arrival at 100 and at the end of the other at 115
all who run are | 200x4 100:10 | | | overhead=running {cost} | end 233 115
as long as jobs come | 200x4 100:10 | | | overhead=running overhead_while_arrivals=true {cost} | end 211 110
known GPUs cost the base | 200x4 100:10 | | | overhead=running overhead_reuses_groups=true {cost} | end 215 115
# 8 GPUs lose 14 s at 0, and at 20 the 10 s up to the next decision; job 1 is charged with 5 s at 20
who waits is charged too | 50x8 20:10 30:10 | | | overhead=active overhead_while_arrivals=true {cost} | end 74 89 84
# decisions at 0, which is no restart, at 100 and 213; at 100 job 0 pays the base, and job 1, ready at 205, starts again
all start anew every so often | 200x4 100:10 | | |
    overhead=running overhead_reuses_groups=true overhead_restart_decisions=1 overhead_restart_seconds=100 {cost} |
    end 213 320
time lost may leave an end alone | 50x4 | | | overhead=starts overhead_delays_end=restarts {cost} | end 50
an end may be seen late | 10x8 5:10x8 | | | end_delay_seconds=1 | end 11 22; jct 11 17
late jobs end with the slot | 25@deadline=24 | | | slot_seconds=10 ends=slot | end 30
# 24 steps by the deadline, then nothing until 30 s
or wait from their deadline on | 25@deadline=24 | | | slot_seconds=10 ends=slot late_jobs_wait=true | end 40
not if they are in time | 25@deadline=25 | | | slot_seconds=10 ends=slot late_jobs_wait=true | end 30
and are judged so | 25@deadline=25 | | | slot_seconds=10 ends=slot late_jobs_wait=true deadlines_judged_by=training |
    end 30; met True
# job 1 is seen at 10 s and has GPUs when the end of job 0 is seen
the last end waits | 12x8 3:5x8 | | | slot_seconds=10 | end 12 25
the last end is spared | 12x8 3:5x8 | | | slot_seconds=10 slot_spares_last_end=true | end 12 17
not where another one runs on | 12x4 40x4 3:5x4 | | | slot_seconds=10 slot_spares_last_end=true | end 12 40 25
gangs at the speed of their durations | 100x2@duration=40 | | | gang_rates=duration | end 40
""".replace("{cost}", "overhead_base_seconds=2 overhead_doubling_seconds=3")

IDEAL = """
# 100 steps at 0.5/s take 200 s; by then the other has done 200 of 300, and the rest takes 50 s
two share until one is through | 100/1 300/2 | | | | end 200 250; gpu_seconds 100 150; rounds.share .5 .5 1;
    timeline.busy_gpus 1 1; rounds_run 1 2; summary.utilization 1
# 50 steps alone, then half speed
asked at arrivals and completions | 100 50:100 1000:40 | | | preset=gavel | asked 0 50 150 1000; end 150 200 1040
shares beyond the GPUs are cut | 100 100x3 | v100:3 | shares 1/1 | | end 400/3 400/3; timeline.busy_gpus 3
a price changes | 200 | | | prices=0:3.6,100:36 | summary.cost 1.1
prices are news to those who read them | 2000 | | reads_prices | prices=0:1,720:2,900:2 | asked 0 720
the clock ends the run | 500 5000 | v100:2 | | max_clock_seconds=1000 | summary.status saturated
a single job of whole rounds | 720 | | | | end 720
"""


def cases(text, cluster="", policy="shares", more=""):
    """The rows of a table, with what its empty cells stand for."""
    found = [(case.values, case.id) for case in rows(text)]
    return [
        pytest.param(jobs, its or cluster, name or policy, f"{more} {settings}", figures, id=label)
        for (jobs, its, name, settings, figures), label in found
    ]


CASES = [
    *cases(ROUNDS + STARTS),
    *cases(EVENTS, policy="order"),
    *cases(SLOTS, "a100:8/8", "line"),
    *cases(IDEAL, more="ideal=true"),
]


@pytest.mark.parametrize(("jobs", "cluster", "policy", "settings", "figures"), CASES)
def test_a_run_is_as_it_was_reckoned(jobs, cluster, policy, settings, figures):
    check(*run(jobs, cluster, policy, settings), figures)
