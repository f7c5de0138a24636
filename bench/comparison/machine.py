"""The machine, and what other processes take of it."""

import os
import platform
import re
import statistics
import time
from pathlib import Path

BUSY_CORES = 0.1  # of all cores, used by others


def cpu_name():
    found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def instructions():
    """Those that decide what kernels there are."""
    flags = re.search(r"^flags\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return [each for each in ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_tile")
            if flags and each in flags[1].split()]


def processor_seconds():
    """What all processes, and this one, had of all cores."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    own = os.times()
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK"), own.user + own.system


def forget_peak_memory():
    """What peak_memory() tells from now on begins anew."""
    Path("/proc/self/clear_refs").write_text("5")


def resident_memory():
    """Bytes: now, and at the peak."""
    text = Path("/proc/self/status").read_text()
    return tuple(1024 * int(re.search(rf"^{field}:\s*(\d+)", text, re.MULTILINE)[1]) for field in ("VmRSS", "VmHWM"))


def evict(path):
    """Takes a file out of the system's cache, so that the next reader finds it cold."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(run, seconds, warmup=0.1):
    """Runs for `warmup`, then for `seconds` and at least three times; ms, and whether others disturbed it."""
    end = time.perf_counter() + warmup
    while time.perf_counter() < end:
        run()
    before, start, times = processor_seconds(), time.perf_counter(), []
    while len(times) < 3 or time.perf_counter() - start < seconds:
        begin = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - begin))
    took, after = time.perf_counter() - start, processor_seconds()
    others = max(0.0, (after[0] - before[0]) - (after[1] - before[1])) / took
    return {"median_ms": statistics.median(times), "least_ms": min(times),
            "busy": others > BUSY_CORES * os.cpu_count()}
