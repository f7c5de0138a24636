"""Programs under a time limit: killed as a group, their output bounded."""

import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

MOST_OUTPUT = 16 << 10  # bytes of the end that are kept
MOST_LINE = 4 << 20
PATIENCE = 3.0  # seconds between asking a process to end and killing it
MOURNING = 5.0  # seconds that a killed process may take to end: the driver takes its card away first

# A process of its own, which outlives us if we are killed and then kills the groups that are under way, so that none
# goes on using the card. No code of ours runs between fork and exec, where threads of ours could hold any lock.
GUARD = """
import os, signal, sys
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""


@dataclass
class Ended:
    status: int  # negative: the signal that ended it
    seconds: float
    timed_out: bool
    output: str  # the end of what it printed
    was_silent: bool = False  # it was killed because it printed no line for too long

    @property
    def ok(self):
        return self.status == 0 and not self.timed_out

    def error(self, most=3000):
        """One text that says how it ended."""
        if self.was_silent:
            how = f"killed after {self.seconds:.0f} s, for it said nothing for too long"
        elif self.timed_out:
            how = f"killed after {self.seconds:.0f} s"
        elif self.status < 0:
            how = f"ended by signal {-self.status}"
        else:
            how = f"exit status {self.status}"
        return f"{how}: {self.output[-most:].strip()}"


class Running:
    """The processes that are under way, so that a run that is told to end, or is killed, ends them."""

    def __init__(self):
        self.lock, self.processes, self.is_over = threading.RLock(), set(), False
        self.guard = subprocess.Popen([sys.executable, "-I", "-S", "-c", GUARD], stdin=subprocess.PIPE,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def add(self, process):
        with self.lock:
            self.processes.add(process)
            self._tell(f"+{process.pid}\n")
            if self.is_over:
                signal_group(process, signal.SIGKILL)

    def remove(self, process):
        with self.lock:
            self.processes.discard(process)
            self._tell(f"-{process.pid}\n")

    def kill_all(self):
        """Those under way, and those that begin later."""
        with self.lock:
            self.is_over = True
            for process in list(self.processes):
                signal_group(process, signal.SIGKILL)

    def _tell(self, line):
        try:
            self.guard.stdin.write(line.encode())
            self.guard.stdin.flush()
        except OSError:  # somebody killed it; a run that is not killed needs none
            pass


def signal_group(process, number):
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def run(command, limit, running, env=None, cwd=None, on_line=None, stdin=None, silence=None):
    """Runs a program for at most `limit` seconds. on_line(text) gets each line of its standard output as it comes.

    Standard error goes with the output that is kept; if on_line is given, it goes there alone. With `silence` it ends,
    too, if it prints nothing for so many seconds.
    """
    begin = time.monotonic()
    if limit <= 0:
        return Ended(-int(signal.SIGKILL), 0.0, True, "no time was left")
    # The program begins once the guard knows its process, so that none is missed if we are killed in between.
    gate, open_gate = os.pipe()
    try:
        process = subprocess.Popen(
            ["bash", "-c", f'read -r _ <&{gate} && exec "$@" {gate}<&-', "bash", *map(str, command)],
            stdin=subprocess.DEVNULL if stdin is None else stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=env, cwd=cwd, start_new_session=True, pass_fds=(gate,))
        running.add(process)
        os.write(open_gate, b"\n")
    except OSError as error:
        return Ended(127, 0.0, False, f"{command[0]}: {error.strerror}")
    finally:
        os.close(gate)
        os.close(open_gate)
    try:
        kept, timed_out, was_silent = _follow(process, begin + limit, on_line, silence)
    finally:
        signal_group(process, signal.SIGKILL)  # what it started and left behind
        has_ended = _wait(process)
        running.remove(process)
        process.stdout.close()
        process.stderr.close()
    text = bytes(kept).decode("utf-8", "replace").replace("\0", "")
    if not has_ended:
        text += "\nit did not end though it was killed: the driver holds it"
    status = process.returncode if has_ended else -int(signal.SIGKILL)
    return Ended(status, time.monotonic() - begin, timed_out or not has_ended, text, was_silent)


def _wait(process):
    """Whether a process that was killed has ended; one that waits inside of the driver may not, ever."""
    try:
        process.wait(MOURNING)
        return True
    except subprocess.TimeoutExpired:
        return False


def _follow(process, deadline, on_line, silence):
    """What was kept, whether it was told to end, and whether for being silent."""
    kept, line, asked, was_silent, heard = bytearray(), bytearray(), None, False, time.monotonic()
    with selectors.DefaultSelector() as ready:
        for stream in (process.stdout, process.stderr):
            os.set_blocking(stream.fileno(), False)
            ready.register(stream, selectors.EVENT_READ)
        while ready.get_map():
            now = time.monotonic()
            if asked is None and (now >= deadline or silence is not None and now >= heard + silence):
                asked, was_silent = now, now < deadline
                signal_group(process, signal.SIGTERM)
            elif asked is not None and now >= asked + PATIENCE:
                signal_group(process, signal.SIGKILL)
                break
            for key, _ in ready.select(0.1 if asked is None else 0.05):
                try:
                    data = os.read(key.fd, 1 << 16)
                except BlockingIOError:
                    continue
                if not data:
                    ready.unregister(key.fileobj)
                    continue
                if key.fileobj is process.stdout:
                    heard = now
                if on_line is not None and key.fileobj is process.stdout:
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
    return kept, asked is not None, was_silent
