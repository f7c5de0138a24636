"""How PyTorch's layers and networks are timed: as ours, in CUDA graphs."""

import json
import statistics
import time

import torch

LAUNCHES, PLAYS = 20, 7
LONG_LAUNCH = 2e-3  # seconds; few of them are enough
FEW_LAUNCHES = 5
WARM_UP = 0.03  # seconds of work, for clocks that fell while nothing ran


def tell(value):
    print(json.dumps(value), flush=True)


def on_card(device):
    return torch.device(device).type == "cuda"


def recorded(run):
    """A CUDA graph of `run`, after it has run on a stream of its own, as capturing wants it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def played(play):
    """Seconds by events."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    play()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def time_calls(calls, device):
    """Microseconds of a call; `calls` do the same on operands of their own, and take turns."""
    with torch.no_grad():
        if not on_card(device):
            calls[0]()
            begin = time.perf_counter()
            calls[0]()
            return {"us": (time.perf_counter() - begin) * 1e6, "method": "one call on the CPU"}
        for call in calls:
            call()
        torch.cuda.synchronize()
        once = played(calls[0])
        launches = FEW_LAUNCHES if once > LONG_LAUNCH else LAUNCHES

        def all_calls():
            # Results are kept, so that no launch finds the memory of the one before in the cache.
            return [calls[i % len(calls)]() for i in range(launches)]

        graph = recorded(all_calls)
        begin = time.perf_counter()
        while time.perf_counter() - begin < WARM_UP:
            graph.replay()
            torch.cuda.synchronize()
        plays = [played(graph.replay) / launches * 1e6 for _ in range(PLAYS)]
        return {"us": statistics.median(plays), "plays_us": plays, "launches_in_graph": launches,
                "method": "CUDA graph"}
