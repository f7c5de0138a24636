"""Circles of modules: a header with its .cc and -inl.h is one module, and includes are its arrows."""

import re
import sys


def module(path):
    return re.sub(r"(-inl)?\.(h|cc)$", "", path)


def circles(edges):
    """The strongly connected components of more than one node."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in edges[node]:
            if other not in edges:
                continue
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(10000)
    for node in edges:
        if node not in index:
            visit(node)
    return found


def module_circles(includes):
    """includes: path -> the headers of ours that it includes. The circles, each a list of modules, sorted."""
    modules = {}
    for path, found in includes.items():
        modules.setdefault(module(path), set()).update(module(other) for other in found if module(other) != module(path))
    return sorted(circles(modules))
