"""NVIDIA's own checkers: compute-sanitizer on a twentieth of the op cases, and ncu on six kernels."""

import json
import re
import threading

import bundle.kernels as kernels
import bundle.op_cases as op_cases
import bundle.shapes as shapes
from bundle.setting import Deadline, find_tool, in_parallel

# Every tensor is an allocation of its own that ends with it, so that what reads or writes beyond one is seen.
SEPARATE = {"ANNEAL_OP_MEMORY": "exact"}
CHECKERS = ("memcheck", "racecheck")
SHARE = 20
SECONDS_OF_PROCESS = 45
PROFILED = ("resnet50.conv3x3_64_56.f16.b8", "bert.up_3072.f16.b8", "bert.attention_128.f16.b8",
            "bert.layer_norm_768.f16.b8", "mobile.depthwise3x3_144_56.f16.b8", "layout.transpose_768.f16.b8")
SECTIONS = ("SpeedOfLight", "WarpStateStats", "MemoryWorkloadAnalysis")
SECONDS_OF_PROFILE = 25
SHARE_OF_PROFILES = 0.4  # of the part's time, at most
MOST_CSV = 40000


def checked_batches(setting, end):
    """Whole ones: a batch has an image of its functions, its cases alone have none. The first twentieth is spread over
    all kernels, and so is the next, which is checked if time is left."""
    batches = [batch for batch in op_cases.batches_of(setting, end) if batch]
    return op_cases.spread(batches)[:-(-2 * len(batches) // SHARE)]


def check_batch(setting, end, program, job):
    """What a checker says of one batch; None if time ran out before it ended."""
    tool, cases = job
    stem = f"sanitize-{tool}-{cases[0]}"
    listed, report = setting.work / f"{stem}.txt", setting.work / f"{stem}.json"
    listed.write_text("\n".join(cases) + "\n")
    ended = setting.run(
        [program, "--tool", tool, "--error-exitcode", "9", "--print-limit", "20",
         setting.root / "bin" / "cuda_op_suite_test", "--gtest_filter=*Reference"],
        min(SECONDS_OF_PROCESS, end.left()),
        env=setting.environment(ANNEAL_OP_CASES=f"@{listed}", ANNEAL_OP_REPORT=report, **SEPARATE))
    if ended.timed_out and end.left() <= 0:
        return None
    found = re.search(r"(ERROR SUMMARY|RACECHECK SUMMARY): (.*)", ended.output)
    ran = []
    for line in report.read_text(errors="replace").splitlines() if report.is_file() else ():
        try:
            ran.append(json.loads(line))
        except ValueError:  # the line that a killed process was writing
            pass
    item = {"cases": cases, "cases_run": len(ran), "runs": sum(sum(each["kernels"].values()) for each in ran),
            "seconds": round(ended.seconds, 1), "summary": found[2] if found else "",
            "separate_allocations": bool(ran) and all(each.get("memory") == "exact" for each in ran)}
    if not ended.ok:
        item["error"] = ended.error(6000)
    elif not found:
        item["error"] = f"{tool} gave no summary: {ended.error(3000)}"
    elif not ran or not item["separate_allocations"]:
        item["error"] = f"{len(ran)} of {len(cases)} cases were run with separate allocations"
    return item


def sanitize(setting, record, end, program):
    """Processes side by side, each with a batch: attaching takes seconds, and so does every launch."""
    jobs = [(tool, batch) for batch in checked_batches(setting, end) for tool in CHECKERS]
    jobs = [job for job in jobs if key_of(job) not in record.items]
    if not jobs:
        return
    # Where the tool cannot attach, one process tells it for all.
    first = check_batch(setting, end, program, jobs[0])
    if first is None:
        return
    if not first["summary"]:
        record.add("compute-sanitizer", {"error": f"it does not work here: {first.get('error', '')}"})
        return
    record.add(key_of(jobs.pop(0)), first)
    lock = threading.Lock()

    def work(job):
        item = check_batch(setting, end, program, job) if end.left() > 0 else None
        if item is not None:
            with lock:
                record.add(key_of(job), item)

    # A checked process uses the card and much memory of the host, so there are fewer than cores.
    in_parallel(work, jobs, max(setting.jobs // 2, 1))


def key_of(job):
    return f"{job[0]} {job[1][0]}"


def profile(setting, record, end, program):
    by_name = {shape["name"]: shape for shape in shapes.all_shapes()}
    mine = Deadline(setting, SHARE_OF_PROFILES * end.left())
    for name in PROFILED:
        key = f"ncu {name}"
        if key in record.items or mine.left() <= 0:
            continue
        cases = kernels.write_cases(setting, [by_name[name]], f"ncu-{name}")
        sections = [word for section in SECTIONS for word in ("--section", section)]
        with open(cases, "rb") as stdin:
            lines = []
            ended = setting.run(
                [program, "--clock-control", "none", *sections, "--csv", "--launch-count", "2",
                 setting.root / "bin" / "anneal_gpu_times", "--device", setting.device, "--once"],
                min(SECONDS_OF_PROFILE, mine.left()), stdin=stdin, on_line=lines.append)
        if ended.timed_out and mine.left() <= 0:
            break
        csv = "\n".join(line for line in lines if line.startswith('"'))[:MOST_CSV]
        item = {"csv": csv, "seconds": round(ended.seconds, 1)}
        if not ended.ok or not csv:
            item["error"] = ended.error() + "\n" + "\n".join(line for line in lines if line.startswith("=="))[:2000]
            if name == PROFILED[0]:  # it costs seconds each time, and the counters are refused for all or for none
                record.add("ncu", {"error": f"it does not work here: {item['error']}"})
                return
        record.add(key, item)
    left = [name for name in PROFILED if f"ncu {name}" not in record.items]
    if left:
        record.set("not_profiled", left)
        end.was_reached = True


def run(setting, record, end):
    if setting.emulated:
        return "compute-sanitizer and ncu need a card"
    missing = []
    for tool, work in (("ncu", profile), ("compute-sanitizer", sanitize)):
        program = find_tool(tool)
        record.set(tool, program or "not here")
        if program is None:
            missing.append(tool)
        else:
            work(setting, record, end, program)
    if missing:
        record.set("why", f"not here: {' and '.join(missing)}")
    return f"neither {' nor '.join(missing)} is here" if len(missing) == 2 else None
