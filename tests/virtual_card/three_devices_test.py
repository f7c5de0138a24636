#!/usr/bin/env python3
"""The same engines on the CPU, on the emulated device and on the virtual card.

    three_devices_test.py ANNEAL FOLDER...    with the models; run it by on_virtual_card.py

Each model is built for the CPU and the card, in its own precision and with --fp16. The emulated device runs the card's plan. Integers are equal to the bit on all of them. Floats of the
two GPUs agree with the CPU's within the tolerances of `anneal compare`. The emulated device and the card are equal to the bit, step by
step, but for steps that call a function: NVRTC takes expf and its like from libdevice, the emulated device from the host's libm. For this
comparison the card adds products of tensor cores in order (ANNEAL_VIRTUAL_CARD_SUMS), as the emulated device does.
"""

import json
import os
import re
import sys
from pathlib import Path

from networks_test import INHERITED, call, check_all

WAYS = ((), ("--fp16",))
# Of these the last bits are libdevice's or libm's.
FUNCTIONS = re.compile(r"\b(exp|expm1|log|log1p|sigmoid|tanh|erf|gelu|pow|sinh?|cosh?|tan|asinh?|acosh?|atanh?|softplus|mish)\(|"
                       r"\b(Softmax|LogSoftmax|Attention|Recurrent)\b")


class Differs(Exception):
    pass


def steps_of(anneal, engine, target):
    """The op of each step of the plan, with its programs, by the step's name."""
    status, printed = call(anneal, "inspect", engine, "--plan")
    if status != 0:
        raise Differs(f"cannot be inspected: {printed.strip()}")
    return dict(re.findall(rf'^ *step \d+ "([^"]*)".* on {target} (.*)$', printed, re.MULTILINE))


def agree_with_cpu(anneal, engine, device):
    status, printed = call(anneal, "compare", engine, engine, "--target-a", device, "--target-b", "cpu")
    verdict = printed.strip().splitlines()[-1]
    if status != 0 and INHERITED not in verdict:
        raise Differs(f"{device} and the CPU: {verdict}")


def count_reasons(anneal, engine, target, scratch, sums="in_order"):
    """Of the steps where the emulated device and the card differ: how many there are, all with a reason."""
    report = f"{scratch}/report.json"
    os.environ["ANNEAL_VIRTUAL_CARD_SUMS"] = sums
    status, printed = call(anneal, "compare", engine, engine, "--target-a", "cuda", "--target-b", "emulated", "--rtol", "0", "--atol", "0",
                           "--json", report)
    os.environ.pop("ANNEAL_VIRTUAL_CARD_SUMS")
    if not os.path.exists(report):
        raise Differs(f"cannot be compared: {printed.strip().splitlines()[-1]}")
    tensors = json.loads(Path(report).read_text())["tensors"]
    os.remove(report)
    ops = steps_of(anneal, engine, target)
    own = [each for each in tensors if not each.get("agrees_alone", each["agrees"])]
    for each in own:
        if not each["type"].startswith(("f32", "f64", "f16", "bf16")):
            raise Differs(f"{each['name']} ({each['type']}) is not the same on the emulated device: {each.get('reason')}")
        op = ops.get(each["step_a"], "")
        if not FUNCTIONS.search(op):
            raise Differs(f"{each['name']} is not the same on the emulated device, for no known reason: {op} by {each['kernel_a']}: "
                          f"{each.get('reason')}")
    if status != 0 and not own and INHERITED not in printed:
        raise Differs(f"the emulated device and the card: {printed.strip().splitlines()[-1]}")
    return len(tensors), len(own)


def tells_sums_apart(anneal, engine, target, scratch):
    """Whether a product whose sums are rounded otherwise is found, as a wrong one would be; None: there is no such product."""
    if not any(".mma" in kernel for kernel in re.findall(r"= (cuda\.\S+)\(", call(anneal, "inspect", engine, "--plan")[1])):
        return None
    try:
        count_reasons(anneal, engine, target, scratch, sums="exact")
    except Differs:
        return True
    return False


def check(anneal, model, way, scratch):
    """A line of the report, and whether it is right."""
    target = "sm_" + os.environ.get("ANNEAL_VIRTUAL_CARD_SM", "90")
    engine = f"{scratch}/network.engine"
    name = " ".join((model.parent.name if model.stem == "model" else model.stem, *way))
    status, printed = call(anneal, "build", str(model), "-o", engine, "--target", f"cpu,{target}", "--no-self-check", *way)
    if status != 0:
        return f"{name}: cannot be built: {printed.strip().splitlines()[-1]}", False
    steps = re.search(target + r": (\d+) of (\d+) steps run on the GPU", printed)
    if not steps or steps.group(1) != steps.group(2):
        return f"{name}: not every layer runs on the card", None
    try:
        agree_with_cpu(anneal, engine, "cuda")
        agree_with_cpu(anneal, engine, "emulated")
        tensors, differ = count_reasons(anneal, engine, target, scratch)
        if "--fp16" in way and model.stem == "glyphs_wide" and not tells_sums_apart(anneal, engine, target, scratch):
            raise Differs("other sums of tensor cores are not found")
    except Differs as problem:
        return f"{name}: {problem}", False
    return f"{name}: the CPU agrees; {tensors - differ} of {tensors} tensors are the same on both GPUs, the others call functions", True


if __name__ == "__main__":
    sys.exit(check_all(sys.argv[1], sys.argv[2:], WAYS, check))
