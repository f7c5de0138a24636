"""A table that a human can read, of a folder of results."""

import bundle.record as record


def number(value, digits=3):
    return f"{value:.{digits}g}" if isinstance(value, (int, float)) else "-"


def table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                               for i, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in rows) + "\n"


def of_facts(value):
    items = value["items"]
    card = items.get("card", {})
    text = f"card: {card.get('name', card.get('not_available', '?'))}, driver {card.get('driver_version', '-')}, " \
           f"power limit {card.get('power.limit', '-')}\n"
    for name, item in items.items():
        if name.startswith("ceiling_"):
            rate = next((f"{item[key]:.1f} {key.replace('_', ' ')}" for key in
                         ("gigabytes_per_second", "teraflops", "teraops") if key in item), item.get("error", ""))
            text += f"  {name[8:]}: {rate}\n" if rate else ""
    return text


def of_kernels(value):
    rows = [["shape", "best us", "planned us", "% of floor", "kernel", "configuration"]]
    for name, item in value["items"].items():
        best, floor = item.get("best"), item.get("floor_us")
        if best:
            share = max(floor["memory"], floor["arithmetic"]) / best["us"] if floor else None
            rows.append([name, number(best["us"]), number(item.get("planned_us")),
                         f"{100 * share:.0f}" if share else "-", best["kernel"], best["config"]])
    return table(rows)


def of_torch(value):
    rows = [["shape", "torch us", "our best us", "ours / torch", "planned / torch"]]
    for name, item in value["items"].items():
        if "us" in item:
            rows.append([name, number(item["us"]), number(item.get("our_best_us")),
                         number(item.get("our_best_over_torch")), number(item.get("our_planned_over_torch"))])
    return table(rows)


def of_networks(value):
    compared = "".join(f"  {name[:-9]}: {item['tensors'] - len(item['differing'])} of {item['tensors']} tensors are the CPU's\n"
                       for name, item in sorted(value["items"].items()) if name.endswith(".compared") and "tensors" in item)
    rows = [["network", "latency ms", "spinning ms", "device ms", "copies ms", "CPU steps", "device / torch", "latency / torch"]]
    for name, item in sorted(value["items"].items()):
        if "latency_ms" in item:
            rows.append([name, number(item["latency_ms"]["median"]), number(item.get("latency_spin_ms", {}).get("median")),
                         number(item.get("device_ms")),
                         number(item.get("copies_ms")), number(item.get("cpu_steps")),
                         number(item.get("device_over_torch")), number(item.get("latency_over_torch"))])
    return compared + table(rows)


def of_tools(value):
    return "".join(f"  {name}: {item.get('summary') or len(item.get('csv', ''))}\n"
                   for name, item in value["items"].items() if "error" not in item)


def of_op_cases(value):
    return "".join(f"  {runs:5} runs of {kernel}\n" for kernel, runs in value.get("runs_of_kernels", {}).items())


TABLES = {"facts": of_facts, "op_cases": of_op_cases, "kernels": of_kernels, "torch": of_torch,
          "networks": of_networks, "compile": of_networks, "tools": of_tools}


def text_of(folder):
    """Of each part its state, its failures and its table."""
    texts = []
    for path in sorted(folder.glob("*.json"), key=lambda path: (list(TABLES).index(path.stem)
                                                                if path.stem in TABLES else -1)):
        value = record.read_json(path)
        if not isinstance(value, dict) or value.get("format") != record.FORMAT:
            continue
        failed = sorted(key for key, item in value["items"].items() if "error" in item)
        text = f"== {value['part']}: {value['status']} on {value['device']}, {len(value['items'])} items, " \
               f"{len(failed)} failed, {value['seconds']} s\n"
        if value.get("why"):
            text += f"  {value['why']}\n"
        for key in failed[:40]:
            text += f"  failed: {key}: {' '.join(str(value['items'][key]['error']).split())[:300]}\n"
        try:
            text += TABLES[value["part"]](value) if value["part"] in TABLES and value["items"] else ""
        except (KeyError, TypeError, ValueError) as error:  # results of another version
            text += f"  its table cannot be made: {error!r}\n"
        texts.append(text)
    return "\n".join(texts)
