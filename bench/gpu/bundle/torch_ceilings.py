"""The card's ceilings as PyTorch reaches them: copies, and matrix products of 8192. Prints a line of JSON for each.

    torch_ceilings.py cuda:0
"""

import json
import sys

import torch


def seconds(run, repeats, plays=5):
    """The median of some plays of so many repeats, by events."""
    run()
    torch.cuda.synchronize()
    times = []
    for _ in range(plays):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(repeats):
            run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3 / repeats)
    return sorted(times)[plays // 2]


def tell(name, **values):
    print(json.dumps({"name": name, **values}), flush=True)


def attempt(name, measure):
    try:
        tell(name, **measure())
    except Exception as error:  # one that does not run must not cost the others
        tell(name, error=f"{type(error).__name__}: {error}"[:600])
    torch.cuda.empty_cache()


def copy():
    count = 1 << 30
    source, target = torch.empty(count, dtype=torch.uint8, device="cuda").random_(), \
        torch.empty(count, dtype=torch.uint8, device="cuda")
    took = seconds(lambda: target.copy_(source), 5)
    return {"gigabytes_per_second": 2 * count / took / 1e9, "bytes": count, "counted": "read and written"}


def host_copy(to_card):
    count = 256 << 20
    pinned, card = torch.empty(count, dtype=torch.uint8).pin_memory(), torch.empty(count, dtype=torch.uint8, device="cuda")
    took = seconds((lambda: card.copy_(pinned, non_blocking=True)) if to_card else
                   (lambda: pinned.copy_(card, non_blocking=True)), 3, 3)
    return {"gigabytes_per_second": count / took / 1e9, "bytes": count, "memory": "pinned"}


def product(dtype, size=8192):
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float32).to(dtype) for _ in range(2))
    took = seconds(lambda: torch.matmul(a, b), 5)
    return {"teraflops": 2 * size ** 3 / took / 1e12, "size": size, "data": "normal"}


def integer_product(size=8192):
    a, b = (torch.randint(-8, 8, (size, size), device="cuda", dtype=torch.int8) for _ in range(2))
    transposed = b.t()  # the order that the library wants
    took = seconds(lambda: torch._int_mm(a, transposed), 5)
    return {"teraops": 2 * size ** 3 / took / 1e12, "size": size, "data": "integers of -8 to 7"}


def main():
    torch.cuda.set_device(torch.device(sys.argv[1]))
    torch.manual_seed(1)
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    tell("device", torch=torch.__version__, cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version(),
         card=properties.name, multiprocessors=properties.multi_processor_count, memory_bytes=properties.total_memory,
         properties=str(properties))
    attempt("copy", copy)
    attempt("product_bf16", lambda: product(torch.bfloat16))
    attempt("product_f16", lambda: product(torch.float16))
    attempt("product_int8", integer_product)
    attempt("product_f32", lambda: product(torch.float32, 4096))
    attempt("host_to_card", lambda: host_copy(True))
    attempt("card_to_host", lambda: host_copy(False))


if __name__ == "__main__":
    main()
