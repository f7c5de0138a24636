"""Every op case on every kernel of ours, in batches that a queue hands to as many processes as there are cores but two.

A batch is a process: what loses the device costs the others nothing. The code of a batch is compiled at once, so the
batches are those whose images came with the bundle (`batches.json`, written when the bundle is made).
"""

import json
import threading

import bundle.bits as bits
import bundle.record as record_files
from bundle.setting import in_parallel

SECONDS_OF_BATCH = 60  # a kernel that does not end is found by running its cases alone
SECONDS_OF_COMPILED_BATCH = 240  # one whose functions are compiled here
SECONDS_OF_CASE = 30
MOST_ALONE = 40  # failing cases that are run once more, alone
CASES_AT_ONCE, STEP = 4, 20
FEW = 6
OURS = "cuda."  # kernels of libraries are the part `libraries`
NO_KERNEL = {"kernels": {}, "note": "no kernel accepts it"}
QUICK = ("pointwise_", "softmax_", "transpose_", "concat_", "arg_max_", "dequantize_")  # few functions to compile


def spread(batches):
    """Neighbours are alike, so every twentieth comes first: those behind can be left out, or cut."""
    return [batch for first in range(STEP) for batch in batches[first::STEP]]


def has_images(setting):
    """Whether all batches have images that are taken here."""
    told = record_files.read_json(setting.root / "images.json") or {}
    facts = next((value for folder in (setting.out, setting.resume) if folder
                  for value in [record_files.read_json(folder / "facts.json")] if value), {})
    taken = facts.get("items", {}).get("images_here", {}).get("taken", False)
    return taken and told.get("batches_with_images") == told.get("batches") and not told.get("left_out")


def batches_of(setting, end, quick=QUICK):
    """Lists of names. quick: what the names of a small choice begin with."""
    known = setting.root / "batches.json"
    if known.is_file():
        batches = json.loads(known.read_text())
    else:
        names = []
        setting.run([setting.root / "bin" / "cuda_op_suite_test", "--list"], min(30, end.left()), on_line=names.append)
        batches = [names[i:i + CASES_AT_ONCE] for i in range(0, len(names), CASES_AT_ONCE)]
    if setting.few:
        names = [name for batch in batches for name in batch if name.startswith(quick)]
        chosen = names[:: max(len(names) // FEW, 1)][:FEW]
        batches = [chosen[i::3] for i in range(3)]
    return batches


class Batches:
    """The work of one variant's threads, with the kernels whose names begin with `kernels`."""

    def __init__(self, setting, record, end, variant, kernels=OURS):
        self.setting, self.record, self.end, self.variant, self.kernels = setting, record, end, variant, kernels
        self.suffix = ("" if kernels == OURS else f" by {kernels}") + ("" if variant.name == "base" else f" @{variant.name}")
        self.lock, self.count, self.alone = threading.Lock(), 0, 0
        self.has_images = has_images(setting)

    def run_all(self, batches):
        left = [batch for batch in batches if any(name + self.suffix not in self.record.items for name in batch)]
        in_parallel(self.work, spread(left), self.setting.jobs)

    def work(self, batch):
        if self.end.left() > 0:
            self.run_batch(batch)

    def run_batch(self, batch):
        limit = (SECONDS_OF_BATCH if self.has_images else SECONDS_OF_COMPILED_BATCH) if len(batch) > 1 else SECONDS_OF_CASE
        found, ended = self.process(batch, limit)
        if ended.timed_out and self.end.left() <= 0:
            self.keep({name: item for name, item in found.items() if "error" not in item})
            with self.lock:
                self.record.value.setdefault("under_way_when_cut", []).append(batch)
            return
        again = []
        for name in batch:
            item = found.get(name)
            if item is None and ended.ok:
                found[name] = dict(NO_KERNEL)
            elif item is None or "error" in item:
                found.setdefault(name, {"error": f"it was not run: {ended.error(800)}"})
                again.append(name)
        # A case that failed among others may have lost to what one of them did to the device.
        if len(batch) > 1:
            for name in again:
                with self.lock:
                    self.alone += 1
                    if self.alone > MOST_ALONE:
                        break
                if self.end.left() <= 0:
                    break
                item, ended_alone = self.process([name], SECONDS_OF_CASE)
                first = found[name]["error"]
                missing = NO_KERNEL if ended_alone.ok else {"error": ended_alone.error()}
                found[name] = {**(item.get(name) or missing), "alone": True}
                if found[name].get("note") == NO_KERNEL["note"]:
                    continue
                if "error" not in found[name]:
                    found[name]["error"] = f"it fails only among {len(batch)} cases: {first}"
        self.keep(found)

    def process(self, names, limit):
        """What the program reports of each case, and how it ended."""
        with self.lock:
            self.count += 1
            stem = self.setting.work / f"batch-{self.variant.name}-{self.kernels.rstrip('.')}-{self.count}"
        listed, report = stem.with_suffix(".txt"), stem.with_suffix(".json")
        listed.write_text("\n".join(names) + "\n")
        ended = self.setting.run(
            [self.variant.bin / "cuda_op_suite_test", "--gtest_filter=*Reference"], min(limit, self.end.left()),
            env=self.setting.environment(ANNEAL_OP_CASES=f"@{listed}", ANNEAL_OP_REPORT=report,
                                         ANNEAL_OP_KERNELS=self.kernels))
        found = {}
        if report.is_file():
            for line in report.read_text(errors="replace").splitlines():
                try:
                    each = json.loads(line)
                except ValueError:  # the line that a killed process was writing
                    continue
                item = {"kernels": each["kernels"], "digests": bits.digests(each["results"])}
                if each["problems"]:
                    item["error"] = "\n".join(each["problems"])[:3000]
                    item["problems"] = len(each["problems"])
                found[each["case"]] = item
            report.unlink()
        # A failure that no case reported: of the device, say.
        if not ended.ok and len(found) == len(names) and not any("error" in item for item in found.values()):
            found[names[-1]]["error"] = ended.error()
        return found, ended

    def keep(self, found):
        with self.lock:
            for name, item in found.items():
                self.record.add(name + self.suffix, item)


def run(setting, record, end):
    batches = batches_of(setting, end)
    if not batches:
        record.add("list", {"error": "cuda_op_suite_test does not list its cases"})
        return None
    record.set("cases", sum(map(len, batches)))
    record.set("processes", setting.jobs)
    images = setting.images()
    for variant in setting.variants():
        Batches(setting, record, end, variant).run_all(batches)
    record.set("images_compiled_here", setting.images() - images)
    record.set("left", sum(1 for batch in batches for name in batch if name not in record.items))
    if record.value["left"] and end.left() > 0:
        record.add("queue", {"error": f"{record.value['left']} cases were not run though there was time"})
    count_kernels(record)
    if end.left() > 0 and not record.value["runs_of_kernels"]:
        record.add("kernels", {"error": f"no case runs on a kernel {OURS}*"})
    return None


def count_kernels(record):
    """How many times each kernel ran."""
    kernels = {}
    for item in record.items.values():
        for kernel, runs in item.get("kernels", {}).items():
            kernels[kernel] = kernels.get(kernel, 0) + runs
    record.set("runs_of_kernels", dict(sorted(kernels.items())))
