"""The device tests, and prebuilt engines compared with the CPU."""

import re
import threading

import bundle.record as record_files
from bundle.setting import in_parallel

SECONDS_OF_ENGINE = 30
MOST_AT_ONCE = 4  # comparisons, whose CPU side takes several threads
MOST_RESTARTS = 5
MOST_PROCESSES = 12
SECONDS_OF_TEST = 45  # without a line: a kernel that does not end is known by the test that started it
LOST_DEVICE = "*LostDevice*"  # writes beyond a buffer: afterwards the process, and with bad luck the card, is lost


def tests_of(setting, program, end, chosen):
    """Full names, in their order; an empty list if the program does not say."""
    ended_lines = []
    ended = setting.run([program, "--gtest_list_tests", f"--gtest_filter={chosen}"], min(30, end.left()),
                        on_line=ended_lines.append)
    names, suite = [], ""
    for line in ended_lines:
        text = line.split("#")[0].rstrip()
        if text and not text.startswith(" "):
            suite = text
        elif text.strip() and suite:
            names.append(suite + text.strip())
    return names if ended.ok else []


class Tests:
    """The tests of a program, in several processes, since most of their time is compiling.

    Each test is an item as soon as it ends. A test that ends its process fails, and the others go on in a new one. What
    fails beside others is run once more alone, and that counts.
    """

    def __init__(self, setting, record, end, program, environment=None):
        self.setting, self.record, self.end, self.environment = setting, record, end, environment
        self.program, self.lock = setting.root / "bin" / program, threading.Lock()

    def run_all(self):
        chosen = "*" if self.setting.lost_device or self.setting.emulated else f"*-{LOST_DEVICE}"
        names = tests_of(self.setting, self.program, self.end, chosen)
        if not names:
            self.record.add("test", {"error": f"{self.program.name} does not list its tests"})
            return
        if self.setting.few:
            names = names[::4]
        left = [name for name in names if f"test {name}" not in self.record.items]
        count = min(MOST_PROCESSES, self.setting.jobs)
        in_parallel(self.run_some, [left[i::count] for i in range(count) if left[i::count]], count)
        failed = [name for name in left if "error" in self.record.items.get(f"test {name}", {})]
        if count > 1 and failed and self.end.left() > 0:
            before = {name: self.record.items[f"test {name}"]["error"] for name in failed}
            self.run_some(failed)
            for name, error in before.items():
                if "error" not in self.record.items[f"test {name}"]:
                    self.record.items[f"test {name}"]["failed_beside_others"] = error
        if self.end.left() > 0:
            for name in left:
                if f"test {name}" not in self.record.items:
                    self.keep(name, {"error": f"it was not run: {MOST_RESTARTS} tests before it ended their process"})
        self.record.set("tests", self.record.value.get("tests", 0) + len(names))

    def run_some(self, names):
        left = list(names)
        for _ in range(MOST_RESTARTS):
            if not left or self.end.left() <= 0:
                return
            current = self.run_process(left)
            if current is None:
                return
            left.remove(current)

    def run_process(self, left):
        """Takes away what it ran; gives the test that ended the process, or None."""
        state = {"test": None, "text": []}

        def follow(line):
            begins = re.match(r"\[ RUN      \] (\S+)", line)
            ends = re.match(r"\[\s+(OK|FAILED|SKIPPED)\s+\] ([^\s,]+).*\((\d+) ms\)", line)
            if begins:
                state.update(test=begins[1], text=[])
            elif ends and ends[2] == state["test"]:
                item = {"result": ends[1].lower(), "milliseconds": int(ends[3])}
                if ends[1] != "OK":
                    item["error" if ends[1] == "FAILED" else "text"] = "\n".join(state["text"])[-3000:]
                self.keep(ends[2], item)
                if ends[2] in left:
                    left.remove(ends[2])
                state.update(test=None)
            elif state["test"]:
                state["text"].append(line[:600])
                del state["text"][:-40]

        ended = self.setting.run([self.program, f"--gtest_filter={':'.join(left)}"], self.end.left(), self.environment,
                                 on_line=follow, silence=None if self.setting.emulated else SECONDS_OF_TEST)
        if state["test"] is None or ended.timed_out and self.end.left() <= 0:
            if state["test"]:
                self.tell_cut(state["test"])
            return None  # of a part that is cut, a later run does it again
        self.keep(state["test"], {"result": "ended the process", "error": ended.error()})
        return state["test"]

    def tell_cut(self, name):
        with self.lock:
            self.record.value.setdefault("under_way_when_cut", []).append(name)

    def keep(self, name, item):
        with self.lock:
            self.record.add(f"test {name}", item)


def compare(setting, record, end):
    """The same engine file on this device and on the CPU, tensor by tensor."""
    engines = sorted((setting.root / "engines").glob("*.engine"))
    if setting.few:
        engines = engines[:3]
    lock = threading.Lock()

    def work(engine):
        key = f"engine {engine.stem}"
        if key in record.items or end.left() <= 0:
            return
        answer = setting.work / f"{engine.stem}.json"
        ended = setting.run([setting.root / "bin" / "anneal", "compare", engine, engine, "--target-a", setting.device,
                             "--target-b", "cpu", "--json", answer], min(SECONDS_OF_ENGINE, end.left()))
        if ended.timed_out and end.left() <= 0:
            return
        item = {"seconds": round(ended.seconds, 2)}
        report = record_files.read_json(answer)
        if report is not None:
            tensors = report.get("tensors", [])
            item.update(tensors=len(tensors), differing=[each for each in tensors if not each.get("agrees", True)][:20],
                        first_diverging=report.get("first_diverging"),
                        largest_error=max((each.get("max_abs_error") or 0 for each in tensors), default=0))
        if not ended.ok:
            item["error"] = ended.error()
        with lock:
            record.add(key, item)

    in_parallel(work, engines, min(MOST_AT_ONCE, setting.jobs))


def run(setting, record, end):
    compare(setting, record, end)
    Tests(setting, record, end, "gpu_test").run_all()
    return None
