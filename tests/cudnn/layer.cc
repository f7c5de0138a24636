#include "anneal/tests/cudnn/layer.h"

namespace anneal::cuda {

LayerOperand bias_operand(Dims dims, DataType dtype) {
  LayerOperand operand{dtype, dims};
  if (dtype == DataType::kF32) {
    const std::vector<float> values(static_cast<size_t>(count(dims)), 0.25f);
    operand.constant = std::make_shared<Tensor>(Tensor::of<float>(DataType::kF32, dims, values));
  }
  return operand;
}

Layer conv_layer(std::string name, Dims x, Dims w, int64_t stride, int64_t pad,
                 std::string epilogue, int64_t groups, DataType dtype) {
  const auto axes = x.size() - 2;
  Layer layer{.name = std::move(name), .epilogue = std::move(epilogue), .op_input_count = 2};
  layer.op = Conv{.strides = std::vector<int64_t>(axes, stride),
                  .pads_begin = std::vector<int64_t>(axes, pad),
                  .pads_end = std::vector<int64_t>(axes, pad),
                  .dilations = std::vector<int64_t>(axes, 1),
                  .groups = groups};
  Dims y = {x[0], w[0]}, bias = {w[0]};
  for (int axis = 2; axis < x.rank(); ++axis) {
    y.push_back((x[axis] + 2 * pad - w[axis]) / stride + 1);
    bias.push_back(1);
  }
  layer.inputs = {{dtype, x, true}, {dtype, w, true}};
  layer.output = {dtype, y, true};
  if (layer.epilogue.empty()) return layer;
  const Program program = parse_program(layer.epilogue);
  for (size_t i = 1; i < program.inputs().size(); ++i)
    layer.inputs.push_back(i == 1 ? bias_operand(bias, program.inputs()[i])
                                  : LayerOperand{program.inputs()[i], y, true});
  layer.output.dtype = program.results()[0].dtype;
  return layer;
}

Layer matmul_layer(std::string name, Dims a, Dims b, std::string epilogue,
                   std::vector<LayerOperand> more, DataType dtype) {
  Layer layer{.name = std::move(name),
              .op = MatMul{},
              .epilogue = std::move(epilogue),
              .inputs = {{dtype, a}, {dtype, b}},
              .op_input_count = 2};
  Dims y = a;
  y[y.rank() - 1] = b.back();
  layer.output = {layer.epilogue.empty() ? dtype : parse_program(layer.epilogue).results()[0].dtype,
                  y};
  layer.inputs.insert(layer.inputs.end(), more.begin(), more.end());
  return layer;
}

Layer attention_layer(std::string name, Dims q, Dims k, std::string score,
                      std::vector<LayerOperand> more, DataType dtype) {
  Layer layer{.name = std::move(name), .inputs = {{dtype, q}, {dtype, k}, {dtype, k}}};
  layer.op = Attention{.score = score.empty() ? Program() : parse_program(score)};
  layer.inputs.insert(layer.inputs.end(), more.begin(), more.end());
  layer.op_input_count = static_cast<int>(layer.inputs.size());
  layer.output = {dtype, q};
  return layer;
}

}  // namespace anneal::cuda
