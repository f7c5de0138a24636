"""The shapes of the part `kernels` in PyTorch on the same card, and how much longer or shorter ours take."""

import json

import bundle.facts as facts
import bundle.kernels as kernels
import bundle.record as record_files

SECONDS_OF_PROCESS = 80
MOST_RESTARTS = 6


def ours(setting):
    for folder in (setting.out, setting.resume):
        value = record_files.read_json(folder / "kernels.json") if folder else None
        if value:
            return value.get("items", {})
    return {}


def joined(item, our):
    """Adds our times, and ours over PyTorch's: below 1 we are faster."""
    for name, us in (("our_best", our.get("best", {}).get("us")), ("our_planned", our.get("planned_us"))):
        if us:
            item[f"{name}_us"] = us
            if item.get("us"):
                item[f"{name}_over_torch"] = us / item["us"]
    return item


def run(setting, record, end):
    if facts.no_torch():
        return facts.no_torch()
    ours_by_name = ours(setting)
    shapes = kernels.chosen_shapes(setting)
    left = [shape for shape in shapes if shape["name"] not in record.items]
    state = {"current": None}

    def keep(text):
        try:
            line = json.loads(text)
        except ValueError:
            return
        if "torch" in line:
            record.value["timed_on"] = line
        elif "begins" in line:
            state["current"] = line["begins"]
        elif "name" in line:
            name = line.pop("name")
            state["current"] = None
            record.add(name, joined(line, ours_by_name.get(name, {})))

    for attempt in range(MOST_RESTARTS):
        left = [shape for shape in left if shape["name"] not in record.items]
        if not left or end.left() <= 0:
            break
        state["current"] = None
        cases = setting.work / f"torch-{attempt}.shapes"
        cases.write_text("".join(json.dumps(shape) + "\n" for shape in left))
        with open(cases, "rb") as stdin:
            ended = setting.run(facts.python_module(setting, "torch_shapes", facts.torch_device(setting)),
                                min(SECONDS_OF_PROCESS, end.left()), env=facts.python_environment(setting),
                                on_line=keep, stdin=stdin)
        if ended.ok or ended.timed_out and end.left() <= 0:
            break
        record.add(state["current"] or f"process {attempt}", {"error": ended.error()})
    return None
