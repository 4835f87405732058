"""The plan by which a job runs: `parallel: {plan: true}` in its file.

`outboard train job.yaml` makes the plan, and all ranks find it in their environment. A program's own
arguments take precedence over it.
"""

import json
import os
import sys

VARIABLE = "OUTBOARD_PLAN"


def planned():
    """Returns the plan of the job, a dictionary, or {} if it runs without one.

    "layers" is the number of layers that were planned, "cuts" their division into stages, "replicas"
    and "tensor" are the other degrees; each replica accumulates "micro_batches" of the "batch", which
    is the samples of a step. "schedule", "recompute", "neighbours" and "strategies" are arguments of
    outboard.pipeline.Pipeline.
    """
    return json.loads(os.environ.get(VARIABLE) or "{}")


def choose(name, given, otherwise):
    """Returns an argument of a program: the given one, else the plan's, else the default.

    Rank 0 writes a line if the program does not follow the plan.
    """
    plan = planned()
    if given is None:
        return plan.get(name, otherwise)
    if name in plan and plan[name] != given and os.environ.get("RANK", "0") == "0":
        print(f"outboard: the program sets {name}={given!r}, the job's plan has {plan[name]!r}", file=sys.stderr, flush=True)
    return given
