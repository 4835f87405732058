"""Stacks of a rank that makes no progress.

A rank that has made a call of the back end, or saved a tensor that may be moved, and has done
neither for OUTBOARD_STALL seconds (300 unless it is set; 0: never), writes the stacks of all its
threads to its standard error. It does so once until the rank makes progress again. A timer that the
program has set by faulthandler.dump_traceback_later is replaced.
"""

import faulthandler
import os
import sys
import threading

VARIABLE = "OUTBOARD_STALL"
_SECONDS = 300.0

# The number of calls and saved tensors so far. Threads may lose increments to each other: only
# whether the number changes matters.
progress = 0


def advance():
    """Records that this rank makes progress."""
    global progress
    progress += 1


def _watch(seconds):
    """Starts the timer of faulthandler anew as long as the rank makes progress.

    The timer is a thread without Python's global lock: it writes the stacks even if a thread that
    holds this lock waits for another one.
    """
    seen, idle, ticks, pause = 0, 0, 4, threading.Event()
    while True:
        pause.wait(seconds / ticks)
        if progress != seen:
            seen, idle = progress, 0
            faulthandler.dump_traceback_later(seconds, file=sys.__stderr__)
        elif seen:
            idle += 1
            if idle == ticks + 1:
                print(
                    f"outboard: this rank has ended no call of torch.distributed and saved no tensor for {seconds:g} s; the stacks of its threads "
                    f"are above. Ranks that wait for it say the same. {VARIABLE} sets the seconds, 0 turns this off.",
                    file=sys.__stderr__, flush=True,
                )


_started = False


def start_by_environment():
    """Starts the watch of a rank of `outboard train`."""
    global _started
    if _started or not os.environ.get("OUTBOARD_RANKS_SOCKET"):
        return
    text = os.environ.get(VARIABLE, "")
    try:
        seconds = float(text) if text else _SECONDS
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 1e6:
        print(f"outboard: {VARIABLE}={text!r}: want seconds, or 0; it is {_SECONDS:g}", file=sys.stderr)
        seconds = _SECONDS
    _started = True
    if seconds and sys.__stderr__ is not None:
        threading.Thread(target=_watch, args=(seconds,), daemon=True, name="outboard-stall").start()
