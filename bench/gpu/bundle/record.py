"""What a part found, as a JSON file that is whole at any moment.

A file is written beside its place and renamed, so a run that is killed leaves what it finished. `items` are what a part
consists of, by name; an item with an `error` counts as failed, and a later run does it again.
"""

import datetime
import json
import os
import time
from pathlib import Path

FORMAT = "anneal gpu part 1"
PAUSE = 1.0  # seconds between two writes while items come fast
SHARE_OF_WRITING = 0.05  # of the time, which long files would take more of


def text_of(value):
    """JSON with a line for each item."""
    head = {key: each for key, each in value.items() if key != "items"}
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(each, allow_nan=False)}"
                       for key, each in value["items"].items())
    return json.dumps(head, indent=1, allow_nan=False)[:-2] + f',\n "items": {{\n{lines}\n }}\n}}\n'


def write_whole(path, text):
    part = path.with_name(path.name + ".part")
    with open(part, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def read_json(path):
    """The value, or None if there is no such file or it is damaged."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def without_infinities(value):
    """JSON knows no NaN; a measurement that gave one is null."""
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {str(key): without_infinities(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_infinities(each) for each in value]
    return value


def is_same(value, name, card, digest):
    """Whether a file that was read is this part's, of the same code on the same card."""
    return (isinstance(value, dict) and value.get("format") == FORMAT and value.get("part") == name
            and value.get("card") == card and value.get("code", {}).get("digest") == digest)


class Record:
    """One part's file. Only the main thread of the part calls it, or callers that hold a lock of their own."""

    def __init__(self, path, name, device, card, code, limit, before=None):
        """before: items of an earlier run of the same code on the same card are taken, but for those that failed."""
        self.path, self.begin, self.next_write = path, time.monotonic(), 0.0
        self.value = {"format": FORMAT, "part": name, "status": "running", "device": device, "card": card,
                      "code": code, "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                      "limit_seconds": round(limit, 1), "seconds": 0.0, "items": {}}
        if is_same(before, name, card, code["digest"]):
            self.items.update({key: item for key, item in before.get("items", {}).items()
                               if isinstance(item, dict) and "error" not in item})
            self.value["kept_of_an_earlier_run"] = len(self.items)
        self.write()

    @property
    def items(self):
        return self.value["items"]

    def set(self, key, value):
        self.value[key] = without_infinities(value)
        self.write()

    def add(self, key, item):
        self.items[key] = without_infinities(item)
        self.value["seconds"] = self.elapsed()
        if time.monotonic() >= self.next_write:
            self.write()

    def write(self):
        begin = time.monotonic()
        self.value["seconds"] = self.elapsed()
        try:
            text = text_of(self.value)
        except ValueError:  # somebody put an infinity into an item that was kept
            text = text_of(without_infinities(self.value))
        write_whole(self.path, text)
        end = time.monotonic()
        self.next_write = end + max(PAUSE, (end - begin) / SHARE_OF_WRITING)

    def elapsed(self):
        return round(time.monotonic() - self.begin, 2)

    def failures(self):
        return sorted(key for key, item in self.items.items() if "error" in item)

    def end(self, status, why=""):
        """status: done, failed, cut or not available."""
        self.value["status"] = status
        if why:
            self.value["why"] = why
        failed = self.failures()
        self.value["count"] = {"items": len(self.items), "failed": len(failed)}
        self.write()
