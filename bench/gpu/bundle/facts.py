"""What the machine is: card, driver, clocks, power limits, library versions, and its measured ceilings."""

import importlib.util
import json
import os
import platform
import sys
from pathlib import Path

import bundle.record as record_files
from bundle.setting import find_tool

QUERIES = ("name", "uuid", "pci.bus_id", "driver_version", "vbios_version", "memory.total", "memory.used", "pstate",
           "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "power.draw", "power.limit",
           "power.max_limit", "temperature.gpu", "utilization.gpu", "compute_mode", "persistence_mode", "ecc.mode.current",
           "mig.mode.current", "clocks_event_reasons.active")
DETAILS = "CLOCK,POWER,TEMPERATURE,PERFORMANCE,MEMORY"


def torch_is_here():
    return importlib.util.find_spec("torch") is not None


def no_torch():
    return "" if torch_is_here() else f"{sys.executable} has no package torch"


def python_module(setting, name, *arguments):
    """The command that runs a module of this folder."""
    return [sys.executable, str(Path(__file__).parent / f"{name}.py"), *map(str, arguments)]


def python_environment(setting):
    return setting.environment(PYTHONPATH=os.pathsep.join(
        [str(Path(__file__).parent.parent)] + ([os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else [])))


def torch_device(setting):
    return "cpu" if setting.emulated else f"cuda:{setting.ordinal}"


def machine():
    cpu = [line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
           if line.startswith("model name")]
    return {"system": platform.platform(), "libc": " ".join(platform.libc_ver()), "python": platform.python_version(),
            "cpu": cpu[0] if cpu else platform.machine(), "cores": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}


def devices(setting, limit=30):
    """What `anneal devices` finds, and how it ended."""
    answer = setting.work / "devices.json"
    answer.unlink(missing_ok=True)
    ended = setting.run([setting.root / "bin" / "anneal", "devices", "--json", answer], limit)
    try:
        return json.loads(answer.read_text()), ended
    except (OSError, ValueError):
        return {}, ended


def no_device(setting):
    """Why nothing can run on the device that was asked for, or "". A program that does not answer proves nothing: a
    first start reads libraries from a cold disk."""
    if setting.emulated:
        return ""
    return why_not(setting, devices(setting)[0])


def why_not(setting, found):
    name = setting.device if ":" in setting.device else f"{setting.device}:0"
    device = found.get("devices", {}).get(name)
    if device is None:
        return f"there is no {name}" if found else ""
    driver = found["libraries"]["driver"]["what"]
    if device["here"]:
        return ""
    return device["what"] if driver in device["what"] else f"{device['what']} (the driver is {driver})"


def images_here(setting, images, end):
    """Whether the bundle's images are taken here, and whether the driver runs them: one layer is launched."""
    import bundle.kernels as kernels
    import bundle.shapes as shapes
    before, said = setting.images(), []
    cases = kernels.write_cases(setting, shapes.all_shapes()[:1], "images")
    ended = kernels.run_program(setting, setting.variants()[0], cases, min(60, end.left()), said.append, "--once")
    item = {"taken": setting.images() == before > 0, "seconds": round(ended.seconds, 2), "in_the_bundle": before}
    errors = [line["error"] for line in map(parsed, said) if "error" in line]
    if errors or not ended.ok:
        item["error"] = errors[0] if errors else ended.error()
    elif not item["taken"]:
        item["why"] = (f"they are for {images.get('architecture')} by NVRTC {images.get('nvrtc')}; another card or another "
                       "build of NVRTC compiles all anew, which takes minutes") if before else "the bundle has none"
    return item


def parsed(line):
    """An object that a program printed; an empty one for anything else."""
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def card_name(setting):
    tool = None if setting.emulated else find_tool("nvidia-smi")
    if tool is None:
        return "emulated" if setting.emulated else "unknown"
    ended = setting.run([tool, "--query-gpu=name", "--format=csv,noheader", "-i", setting.ordinal], 15)
    return ended.output.strip() if ended.ok else "unknown"


def card(setting, tool, end):
    # A field that this nvidia-smi does not know spoils the whole query, so each is asked again alone then.
    def ask(fields):
        ended = setting.run([tool, f"--query-gpu={','.join(fields)}", "--format=csv,noheader", "-i", setting.ordinal],
                            min(10, end.left()))
        values = [each.strip() for each in ended.output.strip().split(",")]
        return dict(zip(fields, values)) if ended.ok and len(values) == len(fields) else None

    found = ask(QUERIES)
    if found is None:
        found = {}
        for field in QUERIES:
            found.update(ask((field,)) or {field: "not known"})
    return found


def python_packages():
    import importlib.metadata
    versions = {}
    for each in importlib.metadata.distributions():
        name = (each.metadata["Name"] or "").lower()
        if name in ("torch", "torchvision", "onnx", "numpy", "triton", "transformers") or name.startswith("nvidia-"):
            versions[name] = each.version
    return versions


def run(setting, record, end):
    record.add("machine", machine())
    version = setting.root / "VERSION"
    record.add("bundle", {"version": version.read_text().split("\n") if version.is_file() else [],
                          "variants": [each.name for each in setting.variants()]})
    images = setting.root / "images.json"
    told = record_files.read_json(images) or {}
    record.add("images", told)
    record.add("packages", python_packages())
    found, ended = devices(setting, min(30, end.left()))
    record.add("anneal_devices", found or {"error": ended.error()})
    if setting.emulated:
        record.add("card", {"not_available": "the emulated device is no card"})
        record.add("ceilings", {"not_available": "the emulated device has no speed"})
        return None
    tool = find_tool("nvidia-smi")
    if tool is None:
        record.add("card", {"not_available": "nvidia-smi is not here"})
    else:
        record.add("card", card(setting, tool, end))
        ended = setting.run([tool, "-q", "-d", DETAILS, "-i", setting.ordinal], min(10, end.left()))
        record.add("nvidia_smi", {"text": ended.output})
    if not why_not(setting, found):
        record.add("images_here", images_here(setting, told, end))
    if no_torch():
        record.add("ceilings", {"not_available": no_torch()})
        return None
    # Each ceiling is a line, so that what was measured stays if the next one hangs.
    def keep(line):
        value = parsed(line)
        if "name" in value:
            record.add(f"ceiling_{value.pop('name')}", value)

    ended = setting.run(python_module(setting, "torch_ceilings", torch_device(setting)), end.left(),
                        env=python_environment(setting), on_line=keep)
    if not ended.ok:
        record.add("ceilings", {"error": ended.error()})
    if tool is not None:
        ended = setting.run([tool, "-q", "-d", DETAILS, "-i", setting.ordinal], min(10, end.left()))
        record.add("nvidia_smi_after", {"text": ended.output})
    return None
