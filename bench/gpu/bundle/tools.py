"""NVIDIA's own checkers: compute-sanitizer on a twentieth of the op cases, and ncu on six kernels."""

import re
import threading

import bundle.kernels as kernels
import bundle.op_cases as op_cases
import bundle.shapes as shapes
from bundle.setting import find_tool

# Every tensor is an allocation of its own that ends with it, so that what reads or writes beyond one is seen.
SEPARATE = {"ANNEAL_OP_MEMORY": "exact"}
CHECKERS = ("memcheck", "racecheck")
SHARE = 20
CASES_OF_PROCESS = 2
SECONDS_OF_PROCESS = 45
PROFILED = ("resnet50.conv3x3_64_56.f16.b8", "bert.up_3072.f16.b8", "bert.attention_128.f16.b8",
            "bert.layer_norm_768.f16.b8", "mobile.depthwise3x3_144_56.f16.b8", "layout.transpose_768.f16.b8")
SECTIONS = ("SpeedOfLight", "WarpStateStats", "MemoryWorkloadAnalysis")
SECONDS_OF_PROFILE = 25
MOST_CSV = 40000


def sanitize(setting, record, end, program):
    """Processes side by side, each with a few cases: attaching takes seconds, and so does every launch."""
    names = [name for batch in op_cases.batches_of(setting, end) for name in batch][::SHARE]
    jobs = [(tool, names[i:i + CASES_OF_PROCESS]) for i in range(0, len(names), CASES_OF_PROCESS) for tool in CHECKERS]
    jobs = [job for job in jobs if key_of(job) not in record.items]
    lock = threading.Lock()

    def work():
        while end.left() > 0:
            with lock:
                if not jobs:
                    return
                job = jobs.pop(0)
            tool, cases = job
            listed = setting.work / f"sanitize-{tool}-{cases[0]}.txt"
            listed.write_text("\n".join(cases) + "\n")
            ended = setting.run(
                [program, "--tool", tool, "--error-exitcode", "9", "--print-limit", "20",
                 setting.root / "bin" / "cuda_op_suite_test", "--gtest_filter=*Reference"],
                min(SECONDS_OF_PROCESS, end.left()),
                env=setting.environment(ANNEAL_OP_CASES=f"@{listed}", **SEPARATE))
            if ended.timed_out and end.left() <= 0:
                return
            found = re.search(r"(ERROR SUMMARY|RACECHECK SUMMARY): (.*)", ended.output)
            item = {"cases": cases, "seconds": round(ended.seconds, 1), "summary": found[2] if found else "",
                    "separate_allocations": True}
            if not ended.ok:
                item["error"] = ended.error(6000)
            with lock:
                record.add(key_of(job), item)

    # A checked process uses the card and much memory of the host, so there are fewer than cores.
    threads = [threading.Thread(target=work) for _ in range(max(setting.jobs // 2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def key_of(job):
    return f"{job[0]} {job[1][0]}"


def profile(setting, record, end, program):
    by_name = {shape["name"]: shape for shape in shapes.all_shapes()}
    for name in PROFILED:
        key = f"ncu {name}"
        if key in record.items or end.left() <= 0:
            continue
        cases = kernels.write_cases(setting, [by_name[name]], f"ncu-{name}")
        sections = [word for section in SECTIONS for word in ("--section", section)]
        with open(cases, "rb") as stdin:
            lines = []
            ended = setting.run(
                [program, "--clock-control", "none", *sections, "--csv", "--launch-count", "2",
                 setting.root / "bin" / "anneal_gpu_times", "--device", setting.device, "--once"],
                min(SECONDS_OF_PROFILE, end.left()), stdin=stdin, on_line=lines.append)
        csv = "\n".join(line for line in lines if line.startswith('"'))[:MOST_CSV]
        item = {"csv": csv, "seconds": round(ended.seconds, 1)}
        if not ended.ok or not csv:
            item["error"] = ended.error() + "\n" + "\n".join(line for line in lines if line.startswith("=="))[:2000]
        record.add(key, item)


def run(setting, record, end):
    if setting.emulated:
        return "compute-sanitizer and ncu need a card"
    for tool, work in (("ncu", profile), ("compute-sanitizer", sanitize)):
        program = find_tool(tool)
        if program is None:
            record.set(tool, "not here")
        else:
            record.set(tool, program)
            work(setting, record, end, program)
    if not record.items and not any(find_tool(tool) for tool in ("ncu", "compute-sanitizer")):
        return "neither ncu nor compute-sanitizer is here"
    return None
