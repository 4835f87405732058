"""The threads that a rank computes with, chosen by measured steps.

`outboard train --threads auto` makes this module count the steps of a program, which end with those
of its optimizer, and change the number of PyTorch's threads as the node decides
(internal/train/threads): processors that computation leaves free serve communication and loading.
"""

import os
import statistics
import sys
import threading
import time

import torch

from outboard import _steps
from outboard._ranks import Error, ask

VARIABLE = "OUTBOARD_THREADS"


class Sharing:
    """Changes the number of threads of this process. ask(measurements) returns the decision."""

    def __init__(self, most, ask):
        self.ask = ask
        self.lock = threading.Lock()
        self.communication = 0.0  # seconds in which calls ran, since the last decision
        self._decide({"most": most})

    def communicated(self, seconds):
        with self.lock:
            self.communication += seconds

    def end_step(self):
        """Records the end of a step, and decides after the state's number of steps."""
        now = time.perf_counter()
        if self.ended is not None:
            self.seconds.append(now - self.ended)
        self.ended = now
        if len(self.seconds) < self.state["steps"]:
            return
        # The first step warms the caches, and includes the time of the decision before it.
        seconds = statistics.median(self.seconds[1:] or self.seconds)
        with self.lock:
            communication = self.communication / len(self.seconds)
        window = {"threads": self.state["threads"], "seconds": seconds, "communication": communication}
        self._decide({**self.state, "windows": [*(self.state["windows"] or []), window]})

    def _decide(self, measured):
        self.seconds, self.communication, self.ended = [], 0.0, None
        self.state = self.ask(measured)
        if self.state["threads"] != torch.get_num_threads():
            torch.set_num_threads(self.state["threads"])
        self.ended = time.perf_counter()


active = None


def start(most, decide):
    """Shares the processors of this process from its next step on; most bounds the threads."""
    global active
    active = Sharing(most, decide)
    _steps.observe(active.end_step)


def start_by_environment():
    """Starts with the settings of `outboard train --threads auto`, if there are any."""
    text = os.environ.get(VARIABLE)
    if not text or active is not None:
        return
    try:
        start(int(text), lambda measured: ask("threads", measured))
    except (Error, ValueError) as e:
        print(f"outboard: threads are not shared: {e}", file=sys.stderr)
