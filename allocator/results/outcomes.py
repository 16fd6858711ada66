"""How a job can end, as numbers in a column of the job table and as the words of the table of jobs."""

from __future__ import annotations

OPEN, COMPLETED, CUT_OFF, DROPPED, REJECTED = range(5)

UNSERVED = "unserved"

RECORDED = "recorded"
"""What the schedule that a trace records is called beside policies."""

STATUSES = ("unfinished", "completed", "cut_off", "dropped", "rejected")
"""By number: still there at the end of the run; all steps done; taken off by a rule before its last step; given up
because it got nowhere; not admitted by the policy. A job that no accelerator type can run is "unserved"."""
