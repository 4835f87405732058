"""Background threads that call PyTorch's C++ code.

When a process ends, Python ends its other threads by an exception, which aborts the process within
such code. So the process waits for these threads first, also for those of a group that it has left.
"""

import threading

_running = set()


def start(run):
    """Starts a thread, and returns it. Something else has it end before the process does."""
    thread = threading.Thread(target=_run, args=(run,), daemon=True)
    _running.add(thread)
    thread.start()
    return thread


def _run(run):
    try:
        run()
    finally:
        _running.discard(threading.current_thread())


def join():
    """Waits for the end of all threads."""
    for thread in list(_running):
        thread.join()
