"""Programs under a time limit: killed as a group, their output bounded."""

import ctypes
import os
import selectors
import signal
import subprocess
import threading
import time
from dataclasses import dataclass

MOST_OUTPUT = 16 << 10  # bytes of the end that are kept
MOST_LINE = 4 << 20
PATIENCE = 3.0  # seconds between asking a process to end and killing it
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Ended:
    status: int  # negative: the signal that ended it
    seconds: float
    timed_out: bool
    output: str  # the end of what it printed

    @property
    def ok(self):
        return self.status == 0 and not self.timed_out

    def error(self, most=3000):
        """One text that says how it ended."""
        if self.timed_out:
            how = f"killed after {self.seconds:.0f} s"
        elif self.status < 0:
            how = f"ended by signal {-self.status}"
        else:
            how = f"exit status {self.status}"
        return f"{how}: {self.output[-most:].strip()}"


class Running:
    """The processes that are under way, so that a run that is told to end can end them."""

    def __init__(self):
        self.lock, self.processes = threading.RLock(), set()

    def add(self, process):
        with self.lock:
            self.processes.add(process)

    def remove(self, process):
        with self.lock:
            self.processes.discard(process)

    def kill_all(self):
        with self.lock:
            for process in self.processes:
                signal_group(process, signal.SIGKILL)


def die_with_parent():
    """In the child: no process of ours goes on using the card when the one that started it was killed."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def signal_group(process, number):
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def run(command, limit, running, env=None, cwd=None, on_line=None, stdin=None):
    """Runs a program for at most `limit` seconds. on_line(text) gets each line of its standard output as it comes.

    Standard error goes with the output that is kept; if on_line is given, it goes there alone.
    """
    begin = time.monotonic()
    if limit <= 0:
        return Ended(-int(signal.SIGKILL), 0.0, True, "no time was left")
    try:
        process = subprocess.Popen(
            [str(each) for each in command], stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=cwd, start_new_session=True,
            preexec_fn=die_with_parent)
    except OSError as error:
        return Ended(127, 0.0, False, f"{command[0]}: {error.strerror}")
    running.add(process)
    try:
        kept, timed_out = _follow(process, begin + limit, on_line)
    finally:
        signal_group(process, signal.SIGKILL)  # what it started and left behind
        process.wait()
        running.remove(process)
        process.stdout.close()
        process.stderr.close()
    text = bytes(kept).decode("utf-8", "replace").replace("\0", "")
    return Ended(process.returncode, time.monotonic() - begin, timed_out, text)


def _follow(process, deadline, on_line):
    kept, line, asked = bytearray(), bytearray(), None
    with selectors.DefaultSelector() as ready:
        for stream in (process.stdout, process.stderr):
            os.set_blocking(stream.fileno(), False)
            ready.register(stream, selectors.EVENT_READ)
        while ready.get_map():
            now = time.monotonic()
            if asked is None and now >= deadline:
                asked = now
                signal_group(process, signal.SIGTERM)
            elif asked is not None and now >= asked + PATIENCE:
                signal_group(process, signal.SIGKILL)
                break
            for key, _ in ready.select(0.1 if asked is None else 0.05):
                data = key.fileobj.read(1 << 16)
                if not data:
                    ready.unregister(key.fileobj)
                elif on_line is not None and key.fileobj is process.stdout:
                    line += data
                    *whole, line = line.split(b"\n")
                    for each in whole:
                        on_line(each.decode("utf-8", "replace"))
                    if len(line) > MOST_LINE:
                        line.clear()
                else:
                    kept += data
                    del kept[:-MOST_OUTPUT]
            # A process that closed nothing but ended, with children that hold its output.
            if process.poll() is not None and not ready.select(0):
                break
    return kept, asked is not None
