"""A process of its own in which another engine loads a model, runs it once, and is then told what to do.

Reads a line of JSON from standard input at a time and answers each with one. The first says what to load: `engine`
(a key of ENGINES), `model`, `inputs` (names) with `feeds` (.npz), `threads`, `type`. Those that follow:
{"outputs": FILE.npz} and {"measure": SECONDS}. An answer with `error` is the last.
"""

import importlib
import json
import os
import sys
import time

import numpy

import machine


class OnnxRuntime:
    """All optimizations, one operator after the other, inputs and outputs bound.

    Open sizes stay open: to be told them makes it no faster, and its quantized transformers several times slower.
    """

    def __init__(self, onnxruntime, work, feeds):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.intra_op_num_threads, options.inter_op_num_threads = work["threads"], 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(work["model"], options, providers=["CPUExecutionProvider"])
        self.binding, self.feeds = self.session.io_binding(), feeds
        for name, value in feeds.items():
            self.binding.bind_cpu_input(name, value)
        for output in self.session.get_outputs():
            self.binding.bind_output(output.name)

    def run(self):
        self.session.run_with_iobinding(self.binding)

    def outputs(self):
        return self.binding.copy_outputs_to_cpu()


class OpenVino:
    """For latency: one stream with all threads. Sizes are fixed; what is not 8 bits has the type of the case."""

    def __init__(self, openvino, work, feeds):
        core = openvino.Core()
        model = core.read_model(work["model"])
        model.reshape({name: list(value.shape) for name, value in feeds.items()})
        self.compiled = core.compile_model(model, "CPU", {
            "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": work["threads"],
            "INFERENCE_PRECISION_HINT": "bf16" if work["type"] == "bf16" else "f32"})
        self.request, self.feeds = self.compiled.create_infer_request(), feeds  # whose memory it reads
        for name, value in feeds.items():
            self.request.set_tensor(name, openvino.Tensor(value, shared_memory=True))

    def run(self):
        self.request.infer(share_outputs=True)

    def outputs(self):
        return [self.request.get_tensor(output).data.copy() for output in self.compiled.outputs]


ENGINES = {"onnxruntime": OnnxRuntime, "openvino": OpenVino}  # by the Python module's name


def milliseconds(since):
    return 1e3 * (time.perf_counter() - since)


def load(work):
    """The engine, which has run once, and what it took until the first answer was there."""
    with numpy.load(work["feeds"]) as arrays:
        feeds = {name: numpy.ascontiguousarray(arrays[file]) for name, file in zip(work["inputs"], arrays)}
    module = importlib.import_module(work["engine"])  # not the model's time and memory
    machine.forget_peak_memory()
    before, _ = machine.resident_memory()
    start = time.perf_counter()
    engine = ENGINES[work["engine"]](module, work, feeds)
    load_ms = milliseconds(start)
    engine.run()
    first_answer_ms = milliseconds(start)
    _, peak = machine.resident_memory()
    return engine, {"load_ms": load_ms, "first_answer_ms": first_answer_ms, "memory_bytes": peak - before,
                    "resident_bytes": peak}


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer

    def answer(found):
        print(json.dumps(found), file=answers, flush=True)

    try:
        engine, took = load(json.loads(sys.stdin.readline()))
        answer(took)
        for line in sys.stdin:
            wanted = json.loads(line)
            if "outputs" in wanted:
                numpy.savez(wanted["outputs"], *engine.outputs())
                answer({})
            else:
                answer(machine.measure(engine.run, wanted["measure"]))
    except Exception as error:  # whatever an engine throws is told, and ends this process alone
        answer({"error": " ".join(str(error).split())})


if __name__ == "__main__":
    main()
