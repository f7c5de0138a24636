"""What is compared: Anneal with and without oneDNN, ONNX Runtime, OpenVINO.

Each loads a case in a process of its own, from a file that the system's cache does not hold, and tells how long the
first answer took and what memory: the peak of the resident memory less what was there before the model was loaded.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy

from comparison import machine

SLOWEST_STEPS = 5


class PeerError(Exception):
    """A peer cannot build, load or run a model; the text is its own."""


class Work:
    """A case with the files that its peers share, in `folder`."""

    def __init__(self, case, folder):
        self.case, self.folder = case, Path(folder)
        self.feeds = case.model.feeds(case.batch)
        numpy.savez(self.folder / "feeds.npz", *self.feeds.values())
        self.arguments = []
        for i, (name, value) in enumerate(self.feeds.items()):
            numpy.save(self.folder / f"input_{i}.npy", value)
            self.arguments += ["--input", f"{name}={self.folder}/input_{i}.npy"]


class Anneal:
    """Runs the command. Engines are built from the file as it is; the time for that does not count.

    With a file of `timings` kernels are chosen by their times (`--time-kernels`), else by heuristics.
    """

    def __init__(self, command, has_onednn=True, timings=None):
        self.command, self.timings = command, timings
        self.name = "anneal" if has_onednn else "anneal_own"
        self.environment = os.environ | ({} if has_onednn else {"ANNEAL_ONEDNN": "0"})

    def call(self, *words):
        done = subprocess.run([self.command, *map(str, words)], text=True, capture_output=True, env=self.environment)
        if done.returncode != 0:
            raise PeerError(" ".join(done.stderr.split()).removeprefix("anneal: error: ") or f"status {done.returncode}")
        return done.stdout

    def load(self, work, threads):
        self.work, self.threads = work, threads
        self.engine = work.folder / f"{self.name}.engine"
        self.build(work, threads)
        machine.evict(self.engine)
        found = self.bench("--warmup", "0", "--iterations", "1")
        memory = found["memory_bytes"]
        return {"load_ms": found["load_milliseconds"],
                "first_answer_ms": found["load_milliseconds"] + found["context_milliseconds"]
                + found["first_inference_milliseconds"],
                "memory_bytes": memory["peak_resident"] - memory["resident_before_load"],
                "resident_bytes": memory["peak_resident"]}

    def build(self, work, threads):
        flags = ["--bf16"] if work.case.type == "bf16" else []
        if self.timings:
            flags += ["--time-kernels", "--timing-cache", self.timings, "--time-threads", threads]
        self.call("build", work.case.model.path, "-o", self.engine, "--quiet", *flags)

    def bench(self, *flags):
        report = self.work.folder / "bench.json"
        self.call("bench", self.engine, *self.work.arguments, "--threads", self.threads, "--json", report, *flags)
        return json.loads(report.read_text())

    def outputs(self):
        text = self.call("run", self.engine, *self.work.arguments, "--threads", self.threads, "--save",
                         self.work.folder / self.name, "--top", "0")
        return [numpy.load(path) for path in re.findall(r"^saved +(.*)$", text, re.MULTILINE)]

    def measure(self, seconds):
        found = self.bench("--warmup", "100ms", "--duration", seconds)
        latency = found["latency_milliseconds"]
        return {"median_ms": latency["median"], "least_ms": latency["min"], "busy": found["machine_load"]["busy"]}

    def slowest_steps(self):
        profile = self.bench("--warmup", "100ms", "--iterations", "3", "--profile")["profile"]
        return sorted(profile, key=lambda step: -step["share"])[:SLOWEST_STEPS]

    def close(self):
        pass


class Other:
    """Another engine's Python package, in a process of comparison/worker.py for each case."""

    def __init__(self, name):
        self.name = name

    def load(self, work, threads):
        case = work.case
        self.folder = work.folder
        machine.evict(case.model.path)
        self.process = subprocess.Popen([sys.executable, Path(__file__).parent / "worker.py"], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return self.ask({"engine": self.name, "model": str(case.model.path), "type": case.type, "threads": threads,
                         "inputs": list(work.feeds), "feeds": str(work.folder / "feeds.npz")})

    def ask(self, wanted):
        print(json.dumps(wanted), file=self.process.stdin, flush=True)
        answer = json.loads(self.process.stdout.readline() or '{"error": "its process has ended"}')
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer

    def outputs(self):
        with tempfile.NamedTemporaryFile(suffix=".npz", dir=self.folder) as file:
            self.ask({"outputs": file.name})
            with numpy.load(file.name) as arrays:
                return [arrays[name] for name in arrays]

    def measure(self, seconds):
        return self.ask({"measure": seconds})

    def close(self):
        self.process.communicate()  # the end of its input ends it
