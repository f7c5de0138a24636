"""Commands of the tool that a CPU or the emulated device cannot judge: sampling beside nvidia-smi, rooflines, ablation,
several contexts, and the sample `pipeline`. Each item has the command, its exit status, and what it printed.
"""

import csv
import io

import bundle.networks as networks
import bundle.record as record_files
from bundle.setting import find_tool

CASE, SMALL_CASE = ("resnet50", "f16", 8), ("unet", "f16", 1)
SECONDS_OF_COMMAND = 45
SECONDS_OF_ABLATION = 120  # each of its rows builds the network
SLOWER_WITH_FEW = 10  # --few is for devices in software
MOST_TEXT = 12000
FIELDS = ("index,name,uuid,pci.bus_id,driver_version,memory.total,utilization.gpu,memory.used,temperature.gpu,power.draw,"
          "clocks.sm,clocks.mem")
CONSTANT_FIELDS = 6  # the first ones: the same in every sample
SAMPLES = 20


def command(setting, end, *words, limit=SECONDS_OF_COMMAND):
    """A program of the bundle: its item, and how it ended."""
    limit *= SLOWER_WITH_FEW if setting.few else 1
    ended = setting.run([setting.root / "bin" / words[0], *words[1:]], min(limit, end.left()))
    item = {"command": " ".join(str(word).replace(str(setting.work), "WORK") for word in words), "status": ended.status,
            "seconds": round(ended.seconds, 2), "text": ended.output[-MOST_TEXT:]}
    if not ended.ok:
        item["error"] = ended.error()
    return item, ended


def rows_of(text):
    """Of CSV as nvidia-smi prints it: a header and rows, with a space behind each comma."""
    return [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text)) if row]


def unit_of(cell):
    return cell.partition(" ")[2]


def difference(ours, theirs):
    """Why a table of ours is not nvidia-smi's, or "". Amounts change between two samples; their units do not."""
    if len(ours) != SAMPLES + 1 or len(theirs) != 2:
        return f"ours has {len(ours)} lines, nvidia-smi's {len(theirs)}"
    if ours[0] != theirs[0]:
        return f"the header is {ours[0]} instead of {theirs[0]}"
    for i, (name, mine, other) in enumerate(zip(theirs[0], ours[-1], theirs[-1])):
        if mine != other if i < CONSTANT_FIELDS else unit_of(mine) != unit_of(other):
            return f"{name} is {mine!r} instead of {other!r}"
    return ""


def monitor(setting, record, end):
    """Samples of a card, in the same form as nvidia-smi's."""
    tool = find_tool("nvidia-smi")
    item, ended = command(setting, end, "anneal", "monitor", "--query", FIELDS, "-l", "0.1",
                          "--count", SAMPLES)
    if tool is not None and ended.ok:
        theirs = setting.run([tool, f"--query-gpu={FIELDS}", "--format=csv", "-i", setting.ordinal], min(15, end.left()))
        item["nvidia_smi"] = theirs.output
        wrong = difference(rows_of(ended.output), rows_of(theirs.output)) if theirs.ok else theirs.error()
        if wrong:
            item["error"] = f"anneal monitor is not nvidia-smi's: {wrong}"
    record.add("monitor", item)
    record.add("monitor processes", command(setting, end, "anneal", "monitor", "--processes")[0])


def run(setting, record, end):
    if setting.emulated:
        return "times of the emulated device are no card's"
    monitor(setting, record, end)
    python, target = networks.onnx_python(setting, end), networks.target_of(setting)
    if python is None or target is None:
        record.add("network", {"error": "no Python here has onnx and numpy, or the GPU does not say its architecture"})
        return None
    record.add("pipeline", command(setting, end, "pipeline", "--device", setting.device, "--target", target, "--model",
                                   setting.root / "models/glyphs.onnx", "--out", setting.work / "pipeline.json")[0])
    case, inputs = (SMALL_CASE, networks.FEW_INPUTS) if setting.few else (CASE, networks.INPUTS)
    errors = networks.build_all(setting, end, [case], inputs, python, target)
    if errors:
        record.add("network", {"error": errors[case]})
        return None
    name, dtype, batch = case
    engine, use = networks.engine_of(setting, case), setting.work / "use.csv"
    item, _ = command(setting, end, "anneal", "bench", engine, "--target", setting.device, "--duration", "1", "--contexts", "4",
                      "--monitor", use)
    record.add("bench of 4 contexts", {**item, "monitor": use.read_text()[:MOST_TEXT] if use.is_file() else ""})
    answer = setting.work / "roofline.json"
    item, _ = command(setting, end, "anneal", "bench", engine, "--target", setting.device, "--duration", "1", "--roofline",
                      "--json", answer)
    record.add("roofline", {**item, "report": record_files.read_json(answer)})
    answer = setting.work / "ablation.json"
    item, _ = command(setting, end, "anneal", "bench", setting.work / f"{name}.{dtype}.onnx", "--target", target, "--fp16",
                      "--shapes", inputs[name].format(n=batch), "--ablation", "--duration", "1", "--json", answer,
                      limit=SECONDS_OF_ABLATION)
    record.add("ablation", {**item, "report": record_files.read_json(answer)})
    return None
