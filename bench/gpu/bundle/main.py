"""Which parts run, in which order and for how long, and what a later run leaves as it is."""

import argparse
import os
import signal
import sys
import tempfile
import threading
import traceback
from pathlib import Path

import bundle.facts as facts
import bundle.networks as networks
import bundle.parts as parts
import bundle.record as record
import bundle.summary as summary
from bundle.setting import Deadline, Setting

LEAST_SECONDS = 3.0  # with less left, a part is not begun
LAST_SECONDS = 6.0  # of the limit, for what is under way to end and to be written
OVERDUE = 4.0, 10.0  # seconds behind the limit: all programs are killed; this one ends, whatever it waits for


def arguments(argv):
    names = ", ".join(each.name for each in parts.PARTS)
    parser = argparse.ArgumentParser(prog="run.py", description="Runs Anneal's GPU suite on this machine: one JSON "
                                     "file for each part, whole at any moment. docs/gpu.md says what they hold.")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or emulated")
    parser.add_argument("--out", type=Path, help="folder for the JSON files; gpu-results unless --resume names one")
    parser.add_argument("--resume", type=Path, metavar="DIR", help="results of an earlier run: do only parts that are "
                        "missing there, failed, cut, or older than the code they measure")
    parser.add_argument("--part", action="append", metavar="NAME", help=f"only this; several times: {names}")
    parser.add_argument("--network", action="append", metavar="NAME", choices=list(networks.INPUTS), help="of the parts "
                        f"networks, compile and tuned, only this; several times: {', '.join(networks.INPUTS)}")
    parser.add_argument("--limit", type=float, default=540, metavar="SECONDS", help="of the whole run (540)")
    parser.add_argument("--few", action="store_true", help="few cases and small sizes, as on the emulated device")
    parser.add_argument("--lost-device", action="store_true", help="run the test that provokes a fatal device fault")
    parser.add_argument("--summary", type=Path, metavar="DIR", help="print a table of the results there, run nothing")
    flags = parser.parse_args(argv)
    for name in flags.part or ():
        if name not in [each.name for each in parts.PARTS]:
            parser.error(f"there is no part {name}; there are {names}")
    return flags


def do_part(setting, part, limit, no_device=""):
    """Runs one part; its file tells what came of it, whatever happens inside. no_device: why only facts can run."""
    code = part.code(setting)
    before = record.read_json(setting.resume / f"{part.name}.json") if setting.resume else None
    file = record.Record(setting.out / f"{part.name}.json", part.name, setting.device, setting.card, code, limit, before)
    try:
        end = Deadline(setting, limit)
        why_not = no_device if no_device and part.name != "facts" else part.run(setting, file, end)
        if why_not:
            file.end("not available", why_not)
        elif setting.ending.is_set() or end.was_reached:
            file.end("cut", "the time limit was reached")
        else:
            file.end("failed" if file.failures() else "done")
    except Exception:  # a fault of one part is told in its file and must not cost the others
        file.end("failed", traceback.format_exc(limit=8))
    return file.value


def enforce(setting):
    """Ends the run behind its limit even if something here hangs; the files are whole at any moment."""
    def kill():
        setting.ending.set()
        setting.running.kill_all()

    def leave():
        print("run.py: it did not end at its limit", file=sys.stderr, flush=True)
        os._exit(1)

    for action, seconds in zip((kill, leave), OVERDUE):
        timer = threading.Timer(setting.seconds + seconds, action)
        timer.daemon = True
        timer.start()
        yield timer


def earlier_result(setting, part):
    """The finished result of an earlier run of the same code, or None."""
    if not setting.resume:
        return None
    value = record.read_json(setting.resume / f"{part.name}.json")
    is_same = record.is_same(value, part.name, setting.card, part.code(setting)["digest"])
    return value if is_same and value["status"] == "done" else None


def run(flags):
    out = flags.out or flags.resume or Path("gpu-results")
    out.mkdir(parents=True, exist_ok=True)
    chosen = [each for each in parts.PARTS if each.name in flags.part] if flags.part else \
        [each for each in parts.PARTS if each.is_default]
    with tempfile.TemporaryDirectory(prefix="anneal-gpu-") as work:
        setting = Setting(Path(__file__).resolve().parent.parent, flags.device, out, Path(work), flags.limit,
                          flags.few or flags.device == "emulated", flags.lost_device, resume=flags.resume, networks=flags.network)

        def end(number, frame):
            setting.ending.set()
            setting.running.kill_all()

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, end)
        timers = list(enforce(setting))
        chosen = parts.ordered(chosen, setting)
        setting.card = facts.card_name(setting)
        no_device = facts.no_device(setting)
        if no_device:
            print(f"{flags.device} cannot be used: {no_device}", file=sys.stderr, flush=True)
        states = {part.name: "kept" if earlier_result(setting, part) else "" for part in chosen}
        due = [part for part in chosen if not states[part.name]]
        for part in chosen:
            if states[part.name]:
                print(f"{part.name:12} {states[part.name]}", flush=True)
                continue
            due.remove(part)
            left = setting.left() - LAST_SECONDS
            if setting.ending.is_set() or left < LEAST_SECONDS:
                states[part.name] = "not begun"
                print(f"{part.name:12} {states[part.name]}", flush=True)
                continue
            value = do_part(setting, part, parts.limit_of(part, due, setting, left), no_device)
            count = value.get("count", {})
            states[part.name] = value["status"]
            print(f"{part.name:12} {value['status']:14} {value['seconds']:6.1f} s  {count.get('items', 0)} items, "
                  f"{count.get('failed', 0)} failed  {value.get('why', '')[:200]}", flush=True)
        for timer in timers:
            timer.cancel()
    (out / "summary.txt").write_text(summary.text_of(out), encoding="utf-8")
    return 1 if no_device or any(state in ("failed", "cut", "not begun") for state in states.values()) else 0


def main():
    flags = arguments(sys.argv[1:])
    if flags.summary:
        print(summary.text_of(flags.summary), end="")
        return 0
    return run(flags)
