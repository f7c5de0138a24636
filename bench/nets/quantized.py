"""The 8-bit version of a network, by ONNX Runtime's own quantizer: a file that favours nobody who reads it.

Activations are u8 with a zero point, weights s8 with a scale for each channel, biases int32; ranges are the least and
the largest values of some seeded random inputs. BatchNormalization is folded first. Q/DQ pairs stand around every
operator that the quantizer knows, so that sums, pools and concatenations are quantized as well; in transformers
matrix products and convolutions alone read 8 bits, as is usual, and what lies between them stays f32. That spares
ONNX Runtime, too, a rounding before each f32 operator.
"""

import logging

import numpy
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

CALIBRATION_SAMPLES = 4


def random_inputs(session, seed):
    """Uniform in [0, 1), with open sizes 1."""
    generator = numpy.random.default_rng(seed)
    return {each.name: generator.random([size if isinstance(size, int) else 1 for size in each.shape], "float32")
            for each in session.get_inputs()}


class RandomSamples(CalibrationDataReader):
    def __init__(self, session):
        self.samples = (random_inputs(session, 1 + i) for i in range(CALIBRATION_SAMPLES))

    def get_next(self):
        return next(self.samples, None)


def without_batch_norm(source, folded):
    """Writes `source` to `folded` after ONNX Runtime's optimizations that keep to ONNX's own operators."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folded)
    session = onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    model = onnx.load(str(folded))
    unused = [each for each in model.opset_import if each.domain]  # ONNX Runtime lists all that it knows
    for each in unused:
        model.opset_import.remove(each)
    onnx.save(model, str(folded))
    return session


def quantize(source, target):
    """Reads the f32 file `source`, writes the Q/DQ file `target`."""
    folded = target.with_suffix(".folded.onnx")
    session = without_batch_norm(source, folded)
    is_transformer = any(node.op_type == "Softmax" for node in onnx.load(str(folded)).graph.node)
    logging.disable(logging.WARNING)  # it advises to preprocess, which is done
    quantize_static(str(folded), str(target), RandomSamples(session), quant_format=QuantFormat.QDQ, per_channel=True,
                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
                    op_types_to_quantize=["MatMul", "Gemm", "Conv"] if is_transformer else None,
                    extra_options={"OpTypesToExcludeOutputQuantization": ["MatMul"] if is_transformer else []})
    logging.disable(logging.NOTSET)
    folded.unlink()
