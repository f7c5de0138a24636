"""Where the bundle lies, which device it runs on, and how much time is left."""

import hashlib
import json
import os
import queue
import shutil
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import bundle.process as process


@dataclass
class Variant:
    """One build of the programs. The first, "base", is the one that everything is compared with."""
    name: str
    bin: Path
    lib: Path


def digest_of(paths):
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.name.encode() + b"\0")
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@dataclass
class Setting:
    root: Path            # of the unpacked bundle
    device: str           # cuda, cuda:1 or emulated
    out: Path
    work: Path            # a temporary folder
    seconds: float        # of the whole run
    few: bool             # a small choice of everything, as on the emulated device
    lost_device: bool = False
    jobs: int = 0
    resume: Path = None
    networks: list = None  # names; None: all
    card: str = "unknown"  # its name: results of another card are not kept
    begin: float = field(default_factory=time.monotonic)
    running: process.Running = field(default_factory=process.Running)
    ending: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self):
        cores = len(os.sched_getaffinity(0))
        self.jobs = self.jobs or (cores if self.few else max(cores - 2, 1))

    @property
    def emulated(self):
        return self.device == "emulated"

    @property
    def ordinal(self):
        return self.device.partition(":")[2] or "0"

    def left(self):
        return self.seconds - (time.monotonic() - self.begin)

    def variants(self):
        """The base build, then those that lie beside it in bin-NAME."""
        found = [Variant("base", self.root / "bin", self.root / "lib")]
        for folder in sorted(self.root.glob("bin-*")):
            name = folder.name[4:]
            found.append(Variant(name, folder, self.root / f"lib-{name}"))
        return found

    def environment(self, variant=None, **more):
        env = dict(os.environ)
        env.setdefault("VIRTUAL_ENV", sys.prefix)  # where pip put NVRTC, if no folder of the system has it
        env.update(ANNEAL_CACHE_DIR=str(self.cache()), ANNEAL_TEST_DEVICE=self.device, PYTHONUNBUFFERED="1",
                   PYTHONDONTWRITEBYTECODE="1")
        if self.lost_device:
            env["ANNEAL_TEST_LOST_DEVICE"] = "1"
        env.update({key: str(value) for key, value in more.items()})
        return env

    def images(self):
        """How many images of compiled code there are; those that come to what the bundle had were compiled here."""
        return sum(1 for _ in self.cache().glob("*.image"))

    def is_unprepared(self):
        """Whether the bundle was made without images of op cases. What a run compiles does not count."""
        try:
            return json.loads((self.root / "images.json").read_text())["batches_with_images"] == 0
        except (OSError, ValueError, KeyError):
            return False

    def cache(self):
        """Of compiled code. A card takes images that came with the bundle."""
        if self.emulated:
            return Path(os.environ.get("ANNEAL_CACHE_DIR") or self.work / "cache")
        return self.root / "images"

    def run(self, command, limit, env=None, **more):
        """For at most `limit` seconds, and not beyond the end of the run."""
        if self.ending.is_set():
            return process.Ended(-9, 0.0, True, "the run was told to end")
        return process.run(command, min(limit, self.left()), self.running, env=env or self.environment(), **more)

    def code(self, programs=(), modules=()):
        """What a part's results depend on: programs with their libraries, and modules of this folder."""
        paths = []
        if programs:
            for variant in self.variants():
                paths += [variant.bin / name for name in programs] + sorted(variant.lib.glob("*"))
        folder = Path(__file__).parent
        paths += [folder / f"{name}.py" for name in modules]
        return {"digest": digest_of(paths), "programs": list(programs), "modules": list(modules)}


class Deadline:
    """The end of a part."""

    def __init__(self, setting, seconds):
        self.setting, self.end, self.was_reached = setting, time.monotonic() + seconds, False

    def left(self):
        """Seconds; 0 once it was reached or the run is told to end, and then the part is cut."""
        left = self.end - time.monotonic()
        if left <= 0 or self.setting.ending.is_set():
            self.was_reached = True
            return 0.0
        return left


def in_parallel(work, jobs, threads):
    """Calls work(job) for each, on so many threads. The first exception of one is raised here, when all have ended."""
    waiting, failed = queue.SimpleQueue(), []
    for job in jobs:
        waiting.put(job)

    def take():
        try:
            while True:
                work(waiting.get_nowait())
        except queue.Empty:
            pass
        except Exception as error:
            failed.append(error)

    started = [threading.Thread(target=take) for _ in range(min(threads, waiting.qsize()))]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if failed:
        raise failed[0]


def find_tool(name):
    """A program of the CUDA toolkit, or None."""
    found = shutil.which(name)
    if found:
        return found
    places = sorted(Path("/usr/local").glob(f"cuda*/bin/{name}")) + sorted(
        Path("/opt/nvidia").glob(f"nsight-compute/*/{name}"))
    return str(places[-1]) if places else None
