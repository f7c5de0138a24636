"""Elements of an SVG file: text, lines, and axes with curves. Text is dark on a light ground of its own, so that a picture
reads on pages of any colour."""

import math
from html import escape

INK, FAINT, GROUND, LINES = "#24292f", "#656d76", "#fbfbfa", "#d8dbdf"


def text(x, y, words, size=12, colour=INK, anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{escape(words)}</text>')


def line(x1, y1, x2, y2, colour, width=1.0, dash=None):
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
            f'stroke-width="{width}"{dashes}/>')


def number_text(number):
    return f"{number:g}"


class Axes:
    """A rectangle of a picture. The horizontal axis is logarithmic, or even steps of its values; the vertical one goes from
    the first to the last tick."""

    def __init__(self, x, y, width, height, values, ticks, logarithmic, even=False):
        self.x, self.y, self.width, self.height = x, y, width, height
        self.values, self.ticks, self.logarithmic, self.even = values, ticks, logarithmic, even

    def x_of(self, value):
        first, last = self.values[0], self.values[-1]
        if first == last:
            return self.x + self.width / 2
        if self.even:
            return self.x + self.width * (value - first) / (last - first)
        return self.x + 14 + (self.width - 28) * math.log(value / first) / math.log(last / first)

    def y_of(self, value):
        first, last = self.ticks[0], self.ticks[-1]
        value = min(max(value, first), last)
        share = math.log(value / first) / math.log(last / first) if self.logarithmic else (value - first) / (last - first)
        return self.y + self.height * (1 - share)

    def grid(self, value_words, tick_words):
        for tick, words in zip(self.ticks, tick_words):
            at = self.y_of(tick)
            yield line(self.x, at, self.x + self.width, at, LINES)
            yield text(self.x - 8, at + 4, words, 11, FAINT, "end")
        if value_words:
            yield text(self.x - 8, self.y + self.height + 16, "N", 11, FAINT, "end")
        for value, words in zip(self.values, value_words):
            yield text(self.x_of(value), self.y + self.height + 16, words, 11, FAINT, "middle")
        yield line(self.x, self.y + self.height, self.x + self.width, self.y + self.height, FAINT)

    def curve(self, points, colour, dash=None, marks=True):
        places = [(self.x_of(x), self.y_of(y)) for x, y in points]
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts = [f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>']
        if marks:
            fill = GROUND if dash else colour
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{fill}" stroke="{colour}" stroke-width="1.5"/>'
                      for x, y in places]
        return "\n".join(parts)
