"""The times of single layers (shapes.py) in every configuration of our kernels, by the program anneal_gpu_times.

First all functions are compiled, by many processes at once; only then a clock runs, and one process uses the card.
"""

import json

import bundle.record as record_files
import bundle.shapes as shapes
from bundle.setting import in_parallel

SHAPES_OF_PROCESS = 10
SECONDS_OF_PROCESS = 60
SECONDS_OF_COMPILING = 60
SECONDS_OF_SILENCE = 30  # a kernel that does not end is known by the case that began
RATES = {"f16": "product_f16", "bf16": "product_bf16", "i8": "product_int8", "f32": "product_f32"}


def chosen_shapes(setting):
    """All of them; on a device that has no speed one small layer of each kind and type."""
    every = shapes.all_shapes()
    if not setting.few:
        return every
    kinds, few = set(), []
    for shape in every:
        key = (shape["kind"], shape["dtype"] == "i8", shape.get("groups", 1) > 1)
        if key not in kinds and shape["dtype"] in ("f16", "i8"):
            kinds.add(key)
            few.append(shapes.small(shape))
    return few


def case_lines(chosen):
    return "".join(json.dumps({"name": shape["name"], "graph": shapes.graph_of(shape)}) + "\n" for shape in chosen)


def write_cases(setting, chosen, stem):
    path = setting.work / f"{stem}.cases"
    path.write_text(case_lines(chosen))
    return path


def run_program(setting, variant, cases, limit, on_line, *flags, silence=None):
    with open(cases, "rb") as stdin:
        return setting.run([variant.bin / "anneal_gpu_times", "--device", setting.device, *flags], limit,
                           on_line=on_line, stdin=stdin, silence=silence)


def compile_all(setting, variant, chosen, end):
    """Fills the cache of images; gives the seconds that it took. What does not compile is told when it is timed."""
    limit = min(SECONDS_OF_COMPILING, end.left())

    def work(share):
        cases = write_cases(setting, chosen[share::setting.jobs], f"compile-{variant.name}-{share}")
        run_program(setting, variant, cases, limit, lambda line: None, "--compile")

    in_parallel(work, range(min(setting.jobs, len(chosen))), setting.jobs)


def ceilings(setting):
    """What facts.json measured: bytes per second, and operations per second by type."""
    for folder in (setting.out, setting.resume):
        value = record_files.read_json(folder / "facts.json") if folder else None
        if value:
            items = value.get("items", {})
            rates = {}
            for dtype, name in RATES.items():
                item = items.get(f"ceiling_{name}", {})
                rate = item.get("teraflops") or item.get("teraops")
                if rate:
                    rates[dtype] = rate * 1e12
            bandwidth = items.get("ceiling_copy", {}).get("gigabytes_per_second")
            return (bandwidth * 1e9 if bandwidth else None), rates
    return None, {}


def with_floor(item, shape, bandwidth, rates, attributes):
    """The least time by the card's measured ceilings, and by its attributes, beside what was measured."""
    flops = shapes.flops_of(shape)
    item.update(shape={key: value for key, value in shape.items() if key != "name"}, flops=flops)
    clock, bits = attributes.get("memory_clock_khz"), attributes.get("bus_bits")
    source = "the ceilings measured in facts.json"
    if clock and bits and item.get("bytes"):
        by_attributes = 2e3 * clock * bits / 8
        item["memory_floor_of_attributes_us"] = item["bytes"] / by_attributes * 1e6
        if not bandwidth:
            bandwidth, source = by_attributes, "the card's memory clock and bus alone"
    timed = [each for each in item.get("configs", []) if "us" in each and not each.get("hopeless")]
    if timed:
        best = min(timed, key=lambda each: each["us"])
        item["best"] = {key: best[key] for key in ("kernel", "config", "us")}
        planned = [each["us"] for each in item["configs"] if each.get("planned") and "us" in each]
        if planned:
            item["planned_us"] = planned[0]
            item["planned_over_best"] = planned[0] / best["us"]
        if flops:
            item["teraflops"] = flops / best["us"] / 1e6
    if not bandwidth or not item.get("bytes"):
        return
    rate = rates.get(shape["dtype"])
    memory, arithmetic = item["bytes"] / bandwidth * 1e6, flops / rate * 1e6 if rate else 0.0
    item["floor_us"] = {"memory": memory, "arithmetic": arithmetic, "of": source}
    for each in timed:
        each["share_of_floor"] = max(memory, arithmetic) / each["us"]


class Times:
    """The timing of one variant."""

    def __init__(self, setting, record, end, variant):
        self.setting, self.record, self.end, self.variant = setting, record, end, variant
        self.suffix = "" if variant.name == "base" else f" @{variant.name}"
        self.bandwidth, self.rates = ceilings(setting)
        self.current, self.runs = None, 0

    def run_all(self, chosen):
        self.by_name = {shape["name"]: shape for shape in chosen}
        left = [shape for shape in chosen if shape["name"] + self.suffix not in self.record.items]
        flags = ["--launches", "2", "--plays", "1", "--configs", "2"] if self.setting.emulated else []
        while left and self.end.left() > 0:
            some, left = left[:SHAPES_OF_PROCESS], left[SHAPES_OF_PROCESS:]
            self.runs += 1
            cases = write_cases(self.setting, some, f"time-{self.variant.name}-{self.runs}")
            self.current = None
            ended = run_program(self.setting, self.variant, cases, min(SECONDS_OF_PROCESS, self.end.left()), self.keep,
                                *flags, silence=None if self.setting.emulated else SECONDS_OF_SILENCE)
            if ended.timed_out and self.end.left() <= 0:
                if self.current:
                    self.record.value["under_way_when_cut"] = self.current + self.suffix
                return
            if not ended.ok and self.current:  # the case that ended the process
                self.record.add(self.current + self.suffix, {"error": ended.error()})
            not_begun = [shape for shape in some if shape["name"] + self.suffix not in self.record.items]
            if len(not_begun) == len(some):
                for shape in some:
                    self.record.add(shape["name"] + self.suffix, {"error": ended.error()})
            else:
                left = not_begun + left

    def keep(self, text):
        try:
            line = json.loads(text)
        except ValueError:
            return
        if "device" in line:
            self.record.value["timed_on"] = line
        elif "begins" in line:
            self.current = line["begins"]
        elif "name" in line:
            name = line.pop("name")
            self.current = None
            shape = self.by_name.get(name)
            if shape:
                attributes = self.record.value.get("timed_on", {}).get("attributes", {})
                with_floor(line, shape, self.bandwidth, self.rates, attributes)
                base = self.record.items.get(name, {}).get("best")
                if self.suffix and base and "best" in line:
                    line["over_base"] = line["best"]["us"] / base["us"]
                self.record.add(name + self.suffix, line)


def run(setting, record, end):
    chosen = chosen_shapes(setting)
    record.set("method", "20 launches recorded in one graph (5 of those above 2 ms), the median of 7 plays divided by "
               "them; operands rotate among sets that exceed 3 L2 caches together where 20 sets reach that "
               "(operands_exceed_l2)" + ("; on the emulated device times mean nothing" if setting.emulated else ""))
    record.set("shapes", len(chosen))
    for variant in setting.variants():
        images = setting.images()
        compile_all(setting, variant, chosen, end)
        record.set(f"images_compiled_here_{variant.name}", setting.images() - images)
        record.set(f"compiled_{variant.name}_after_seconds", record.elapsed())
        Times(setting, record, end, variant).run_all(chosen)
    return None
