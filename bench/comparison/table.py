"""Results as text: a line for each, what went wrong or takes the time below it, and what all come to."""

from comparison.results import REFERENCE

HEADER = (f"{'Anneal':>7}{'spread':>13}{'best':>7}{'own':>7}{'OpenV.':>7}  {'ms':>9}{'ORT ms':>9}  {'differs':>8}"
          f"{'MB':>6}{'ORT':>6}{'first':>7}{'ORT':>6}  type threads batch net")


def number(peer, field, scale=1, digits=2):
    value = peer.get(field)
    return "-" if value is None else f"{value / scale:.{digits}f}"


def line(result):
    peers = result["peers"]
    anneal, own, reference, openvino = (peers.get(name, {}) for name in ("anneal", "anneal_own", REFERENCE, "openvino"))
    spread = f"{anneal['least_speed']:.2f}-{anneal['largest_speed']:.2f}" if "speed" in anneal else "-"
    difference = f"{anneal['difference']:.1e}" if anneal.get("difference") is not None else "-"
    return (f"{number(anneal, 'speed'):>7}{'*' if result['busy'] else ' '}{spread:>12}{number(anneal, 'speed_at_best'):>7}"
            f"{number(own, 'speed'):>7}{number(openvino, 'speed'):>7}  {number(anneal, 'median_ms', digits=3):>9}"
            f"{number(reference, 'median_ms', digits=3):>9}  {difference:>8}"
            f"{number(anneal, 'memory_bytes', 1e6, 0):>6}{number(reference, 'memory_bytes', 1e6, 0):>6}"
            f"{number(anneal, 'first_answer_ms', digits=0):>7}{number(reference, 'first_answer_ms', digits=0):>6}"
            f"  {result['type']:>4} {result['threads']:>7} {result['batch'] or '-':>5} {result['net']}")


def notes(result):
    """What went wrong, and where the time goes if Anneal is slower."""
    for name, peer in result["peers"].items():
        if "error" in peer:
            yield f"{name}: {peer['error'][:200]}"
        elif peer.get("equal") is False:
            yield f"{name}: OUTPUTS DIFFER by {peer['difference']} of ONNX Runtime's largest"
    if steps := result["peers"].get("anneal", {}).get("slowest_steps"):
        yield "slower; most of its time: " + ", ".join(
            f"{step['step']} ({step['kernel']}) {100 * step['share']:.0f} %" for step in steps)


def mean_lines(means):
    yield "geometric means of speeds; above 1 is faster than ONNX Runtime (last column: Anneal to OpenVINO)"
    yield f"{'Anneal':>7}{'best':>7}{'least':>7}{'own':>7}{'best':>7}{'least':>7}{'OpenV.':>7}{'to OV':>7}  type threads batch of"
    for mean in means:
        cells = [mean[part].get(name) for name, part in (
            ("anneal", "speeds"), ("anneal_at_best", "speeds"), ("anneal", "least"),
            ("anneal_own", "speeds"), ("anneal_own_at_best", "speeds"), ("anneal_own", "least"),
            ("openvino", "speeds"), ("anneal_to_openvino", "speeds"))]
        yield ("".join(f"{cell:7.2f}" if cell else f"{'-':>7}" for cell in cells)
               + f"  {mean['type']:>4} {mean['threads']:>7} {mean['batch'] or '-':>5} {mean['nets']} of {mean['folder']}")


def memory_lines(results):
    """Where Anneal takes more than ONNX Runtime."""
    for result in results:
        ours, theirs = (result["peers"].get(name, {}).get("memory_bytes", 0) for name in ("anneal", REFERENCE))
        if 0 < theirs < ours:
            yield (f"more memory than ONNX Runtime: {ours / 1e6:.1f} MB to {theirs / 1e6:.1f}, {result['type']}, "
                   f"{result['threads']} thread(s), batch {result['batch'] or '-'}, {result['net']}")
