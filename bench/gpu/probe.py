#!/usr/bin/env python3
"""What a GPU machine offers Anneal's CUDA backend: libraries, device, cuDNN, cuBLASLt, NVRTC and NVML, as one JSON file.

  python3 bench/gpu/probe.py --out FILE [--cubins DIR] [--compare JSON] [--helpers DIR] [--date DAY]
  python3 bench/gpu/probe.py --make-cubins DIR      # anywhere with NVRTC; needs no GPU

Needs nothing outside Python's own library. A section that fails leaves its error in the file and the others go on.
"""
import argparse, ctypes as C, glob, hashlib, importlib.metadata as md, json, os, platform, re
import subprocess, sys, tempfile, threading, time, traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from probe_kernels import SITE, SONAMES, TOOLKIT, cuda, library, nvrtc, run_kernels

HERE = Path(__file__).parent
COLUMNS = "algorithm tile split_k reduction swizzle custom stages inner_shape cluster workspace us tflops"
TYPES = ["f16", "bf16", "f32", "tf32", "i8->i32", "i8->i8", "e4m3->f16"]
GRAPHS = ["bR", "rbR", "brR", "bG", "bT", "bS"]  # epilogues of a convolution, see probe_cudnn.cc

def attempt(f, *args, **kwargs):
    try: return f(*args, **kwargs)
    except Exception as e: return {"error": f"{type(e).__name__}: {e}"[:600]}

def shell(command, **env):
    r = subprocess.run(command, shell=isinstance(command, str), capture_output=True, text=True, timeout=200, env={**os.environ, **env})
    return (r.stdout + r.stderr).strip() if r.returncode == 0 else f"exit status {r.returncode}: {(r.stdout + r.stderr)[-300:]}"

def ask(helper, *args, libs=SONAMES, **env):
    """The JSON that a helper program prints, or why there is none."""
    env = {**os.environ, "PROBE_LIBS": ":".join(map(library, libs)), **env}
    try:
        r = subprocess.run([helper, *args], capture_output=True, text=True, timeout=100, env=env)
        return json.loads(r.stdout)
    except subprocess.TimeoutExpired: return {"error": "no answer in 100 s"}
    except ValueError: return {"error": f"exit status {r.returncode}: {r.stderr[-300:]} {r.stdout[:4000]}"}

def section_libraries():
    names = sorted(d.metadata["Name"] for d in md.distributions() if re.match(r"nvidia|torch$|triton$|cupy|jax", d.metadata["Name"] or ""))
    fresh = lambda code: shell([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(HERE)!r}); import probe, probe_kernels; {code}"], LD_LIBRARY_PATH="")
    return {"packages": {n: md.version(n) for n in names}, "toolkit": shell("nvcc --version | tail -2; ls -d /usr/local/cuda*"),
            "files": {f: sorted(f"{p.name} {p.stat().st_size}" for p in map(Path, glob.glob(f + "/*.so.*")) if re.match("lib(cudnn|cublas|cudart|nvrtc|nvJit)", p.name)) for f in sorted(glob.glob(str(SITE / "*/lib"))) + [str(TOOLKIT / "lib64")]},
            "headers": [p for p in (str(SITE / "cu13/include/cuda.h"), str(SITE / "cudnn/include/cudnn.h"), str(TOOLKIT / "include/cuda.h"), str(TOOLKIT / "include/cudnn.h")) if os.path.exists(p)],
            "ldconfig": shell("ldconfig -p | grep -E 'cudnn|cublasLt|nvrtc|libcuda|nvidia-ml'").split("\n"),
            "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", ""), "platform": [platform.system(), platform.machine(), " ".join(platform.libc_ver()), "Python " + platform.python_version()],
            "by_soname": {s: fresh(f"print('ok' if probe.C.CDLL({s!r}) else '')") for s in SONAMES + ["libcuda.so.1", "libnvidia-ml.so.1"]},
            "nvrtc_alone": fresh("print(probe.attempt(lambda: probe_kernels.nvrtc('sm_90', ['libnvrtc.so.13'])[1]))"),
            "nvrtc_after_builtins": fresh("print(probe.attempt(lambda: probe_kernels.nvrtc('sm_90')[1]))")}

def section_device():
    header = next(p for p in (TOOLKIT / "include/cuda.h", SITE / "cu13/include/cuda.h") if p.exists()).read_text()
    value, driver, attributes = C.c_int(), C.c_int(), {}
    cuda("cuInit", 0); cuda("cuDriverGetVersion", C.byref(driver))
    for name, number in re.findall(r"CU_DEVICE_ATTRIBUTE_(\w+)\s*=\s*(\d+)", header):
        if not C.CDLL("libcuda.so.1").cuDeviceGetAttribute(C.byref(value), int(number), 0): attributes[name.lower()] = value.value
    return {"cuDriverGetVersion": driver.value, "smi": shell("nvidia-smi --query-gpu=name,driver_version,vbios_version,memory.total,power.limit,clocks.max.sm,clocks.max.mem,ecc.mode.current,mig.mode.current,persistence_mode,compute_mode,pcie.link.gen.max --format=csv"),
            "smi_q": shell("nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE"), "attributes": attributes}

def section_cudnn(helper, compare):
    out, prop = {"deviceprop": ask(helper, "deviceprop")}, tempfile.mkdtemp() + "/deviceprop.json"
    theirs, blind = out["deviceprop"].get("json", {}), {"CUDA_VISIBLE_DEVICES": ""}
    Path(prop).write_text(json.dumps(theirs))
    out["engines_with_handle"] = {g: ask(helper, "engines", "handle", g) for g in GRAPHS}  # one at a time: it measures
    sources = {"engines_from_json": (prop, {}), "engines_from_json_no_visible_device": (prop, blind)}
    if compare: sources["engines_from_hand_made_no_visible_device"] = (compare, blind)
    with ThreadPoolExecutor(6) as pool:
        answers = {name: {g: pool.submit(ask, helper, "engines", source, g, **env) for g in GRAPHS} for name, (source, env) in sources.items()}
        out |= {name: {g: f.result() for g, f in of.items()} for name, of in answers.items()}
    out["cudnn_opened_alone_no_LD_LIBRARY_PATH"] = ask(helper, "engines", "handle", "bG", libs=SONAMES[3:], LD_LIBRARY_PATH="")
    if compare:
        mine = json.loads(Path(compare).read_text())
        out["compared_with_hand_made"] = {"only_from_api": sorted(theirs.keys() - mine.keys()), "only_hand_made": sorted(mine.keys() - theirs.keys()),
            "different": {k: {"api": theirs[k], "hand_made": mine[k]} for k in sorted(mine.keys() & theirs.keys()) if mine[k] != theirs[k]}}
    return out

def section_nvrtc(cubins):
    out = {}
    for arch in ("sm_90", "sm_80", "compute_80"):
        made = attempt(nvrtc, arch)
        out[f"made_here_{arch}"] = made if isinstance(made, dict) else {"ms": made[1], "bytes": len(made[0]), "sha256": hashlib.sha256(made[0]).hexdigest()[:16], "run": attempt(run_kernels, made[0])}
    for path in sorted(Path(cubins).glob("*")) if cubins else []:
        out[f"carried_{path.name}"] = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()[:16], "run": attempt(run_kernels, path.read_bytes())}
    return out

def section_nvml(helper):
    nv, device, rows, stop = C.CDLL("libnvidia-ml.so.1"), C.c_void_p(), [], threading.Event()
    if nv.nvmlInit_v2() or nv.nvmlDeviceGetHandleByIndex_v2(0, C.byref(device)): raise RuntimeError("NVML does not start")
    def sample():
        start = time.time()
        while not stop.wait(0.1):
            use, memory, one, row = (C.c_uint * 2)(), (C.c_uint64 * 3)(), C.c_uint(), [round(time.time() - start, 2)]
            for call, ref, read in ((nv.nvmlDeviceGetUtilizationRates, (use,), lambda: list(use)), (nv.nvmlDeviceGetMemoryInfo, (memory,), lambda: [memory[2] >> 20]),
                                    (nv.nvmlDeviceGetPowerUsage, (C.byref(one),), lambda: [one.value / 1e3]), (nv.nvmlDeviceGetTemperature, (0, C.byref(one)), lambda: [one.value]),
                                    (nv.nvmlDeviceGetClockInfo, (1, C.byref(one)), lambda: [one.value]), (nv.nvmlDeviceGetClockInfo, (2, C.byref(one)), lambda: [one.value])):
                status = call(device, *ref)
                row += [f"status {status}"] if status else read()
            rows.append(row)
    thread = threading.Thread(target=sample); thread.start(); time.sleep(1)
    load = ask(helper, "load", "4", libs=SONAMES[:3]); time.sleep(1)
    stop.set(); thread.join()
    return {"load": load, "columns": ["s", "gpu %", "memory %", "used MiB", "W", "C", "SM MHz", "memory MHz"], "rows": rows}

def pretty(v, indent=0):
    flat, pad = json.dumps(v), "\n" + " " * (indent + 1)
    if len(flat) < 140 or not isinstance(v, (dict, list)): return flat
    items = [f"{json.dumps(k)}: {pretty(x, indent + 1)}" for k, x in v.items()] if isinstance(v, dict) else [pretty(x, indent + 1) for x in v]
    return "{["[isinstance(v, list)] + pad + f",{pad}".join(items) + "\n" + " " * indent + "}]"[isinstance(v, list)]

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--out", "--cubins", "--compare", "--helpers", "--make-cubins", "--date"): parser.add_argument(name)
    args = parser.parse_args()
    if args.make_cubins:
        for arch in ("sm_90", "sm_80", "compute_80"): (Path(args.make_cubins) / f"{arch}.bin").write_bytes(nvrtc(arch)[0])
        return
    helpers, result = tempfile.mkdtemp(), {"date": args.date or time.strftime("%Y-%m-%d"), "command": "python3 bench/gpu/probe.py " + " ".join(os.path.basename(a) for a in sys.argv[1:])}
    os.symlink(HERE.parents[1].resolve(), helpers + "/anneal")  # headers are included as anneal/folder/file.h
    include = [f"-I{p}" for p in (Path(helpers), SITE / "cu13/include", SITE / "cudnn/include", TOOLKIT / "include") if p.exists()]
    for name in ("probe_cudnn", "probe_cublaslt"):
        result["build_" + name] = shell(["g++", "-std=c++20", "-O2", *include, str(HERE / f"{name}.cc"), "-o", f"{helpers}/{name}", "-ldl"]) or "g++ -std=c++20 -O2"
    if args.helpers and len(os.listdir(helpers)) < 3: helpers = args.helpers  # built elsewhere
    dnn, lt = f"{helpers}/probe_cudnn", f"{helpers}/probe_cublaslt"
    gemm = lambda: {"columns": COLUMNS} | {t: ask(lt, "gemm", t, libs=SONAMES[:3]) for t in TYPES}
    for name, f in {"libraries": section_libraries, "device": section_device, "cudnn": lambda: section_cudnn(dnn, args.compare), "cublaslt": gemm,
                    "nvrtc": lambda: section_nvrtc(args.cubins), "nvml": lambda: section_nvml(lt)}.items():
        start = time.time()
        try: result[name] = f()
        except Exception: result[name] = {"error": traceback.format_exc()}
        result[name]["seconds"] = round(time.time() - start, 1)
        print(name, result[name]["seconds"], "s", str(result[name].get("error", ""))[-200:], flush=True)
        Path(args.out).write_text(pretty(result) + "\n")

if __name__ == "__main__":
    main()
