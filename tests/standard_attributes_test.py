#!/usr/bin/env python3
"""Builds the operators' test models of the package onnx with each attribute of the standard that they leave out, at
every version of the operator: the importer reads an attribute or refuses it by name, whatever the ranks of the inputs.

Usage: standard_attributes_test.py ANNEAL
Needs the Python package onnx.
"""

import collections
import concurrent.futures
import os
import subprocess
import sys
import tempfile
import warnings

import onnx
from onnx import AttributeProto, helper
from onnx.backend.test.case.node import collect_testcases

# Of attributes without a default value.
VALUES = {
    "INT": [0, 1],
    "INTS": [[0], [1], [1, 1], [1, 1, 1, 1]],
    "FLOAT": [0.0, 1.0],
    "FLOATS": [[0.0]],
    "STRING": ["", "linear"],
}
# Exactly one attribute says what a Constant is.
LEFT_OUT = {"Constant"}
# The standard's default value is no value: "foward".
MISSPELT = {("GRU", "direction")}


def schemas_by_operator():
    schemas = collections.defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            schemas[schema.name].append(schema)
    return schemas


def values_of(name, attribute):
    default = attribute.default_value
    if default.name and default.type != AttributeProto.UNDEFINED:
        value = AttributeProto()
        value.CopyFrom(default)
        value.name = name
        return [value]
    kind = str(attribute.type).split(".")[-1]
    return [
        helper.make_attribute(name, value, attr_type=getattr(AttributeProto, kind))
        for value in VALUES.get(kind, [])
    ]


def at_version(model, version):
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for opset in changed.opset_import:
        if opset.domain in ("", "ai.onnx"):
            opset.version = version
    return changed


def models_to_try():
    """The operator and version, a model that leaves attributes out, and what to add to it."""
    schemas = schemas_by_operator()
    seen = set()
    for case in collect_testcases(None):
        if len(case.model.graph.node) != 1:
            continue
        node = case.model.graph.node[0]
        if node.domain not in ("", "ai.onnx") or node.op_type in LEFT_OUT:
            continue
        given = tuple(sorted(attribute.name for attribute in node.attribute))
        ranks = tuple(len(i.type.tensor_type.shape.dim) for i in case.model.graph.input)
        inputs = tuple(bool(name) for name in node.input)
        for schema in schemas[node.op_type]:
            key = (node.op_type, schema.since_version, given, ranks, inputs)
            added = [name for name in schema.attributes if name not in given]
            if key in seen or not added or not set(given) <= set(schema.attributes):
                continue
            seen.add(key)
            yield schema, at_version(case.model, schema.since_version), added


def build(anneal, folder, model):
    with tempfile.TemporaryDirectory(dir=folder) as here:
        onnx.save(model, here + "/m.onnx")
        done = subprocess.run(
            [anneal, "build", here + "/m.onnx", "-o", here + "/m.engine"], capture_output=True, text=True
        )
    return done.returncode, done.stderr.strip()


def faults_of(anneal, folder, schema, model, added):
    code, _ = build(anneal, folder, model)
    if code != 0:
        return 0, []
    tried, faults = 0, []
    for name in added:
        if (schema.name, name) in MISSPELT:
            continue
        attribute = schema.attributes[name]
        for value in values_of(name, attribute):
            changed = onnx.ModelProto()
            changed.CopyFrom(model)
            changed.graph.node[0].attribute.append(value)
            code, error = build(anneal, folder, changed)
            tried += 1
            is_default = attribute.default_value.name == name
            if code != 0 and (is_default or "is not understood" in error or code == 70):
                shown = f"{name}={helper.get_attribute_value(value)}"
                faults.append(f"{schema.name} {schema.since_version}, {shown}: {error}")
    return tried, faults


def main():
    warnings.simplefilter("ignore")  # the test models overflow on purpose
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    tried, faults = 0, []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(faults_of, sys.argv[1], folder, *one) for one in models_to_try()]
        for job in jobs:
            count, found = job.result()
            tried += count
            faults += found
    for fault in faults:
        print(fault)
    print(f"{tried - len(faults)} passed, {len(faults)} failed")
    return 1 if faults or tried < 1000 else 0


if __name__ == "__main__":
    sys.exit(main())
