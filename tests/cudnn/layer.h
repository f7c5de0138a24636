// Layers by hand, as a builder would ask kernels about them.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anneal/core/channels_last.h"
#include "anneal/core/dims.h"
#include "anneal/graph/op/op.h"
#include "anneal/graph/program/program.h"
#include "anneal/kernels/kernel.h"

namespace anneal::cuda {

struct LayerOperand {
  DataType dtype = DataType::kF16;
  Dims dims = {};
  bool channels_last = false;
  std::shared_ptr<const Tensor> constant = nullptr;
};

struct Layer {
  std::string name = {};
  Op op = {};
  std::string epilogue = {};              // as text; empty: none
  std::vector<LayerOperand> inputs = {};  // the op's, then the epilogue's
  int op_input_count = 0;
  LayerOperand output = {};
};

// A request for it, and what the request points at.
class LayerRequest {
 public:
  LayerRequest(const Layer& layer, Device& device, std::vector<std::byte> tactic = {})
      : layer_(layer), tactic_(std::move(tactic)) {
    for (const LayerOperand& each : layer_.inputs) inputs_.push_back(operand(each));
    outputs_.push_back(operand(layer_.output));
    if (!layer_.epilogue.empty()) epilogues_.push_back(parse_program(layer_.epilogue));
    request_.emplace(Request{.op = layer_.op,
                             .epilogues = epilogues_,
                             .op_input_count = layer_.op_input_count,
                             .inputs = inputs_,
                             .outputs = outputs_,
                             .sizes = sizes_,
                             .device = device,
                             .tactic = tactic_});
  }
  LayerRequest(const LayerRequest&) = delete;
  LayerRequest& operator=(const LayerRequest&) = delete;
  const Request& operator*() const { return *request_; }

 private:
  static Operand operand(const LayerOperand& from) {
    const Dims strides =
        from.channels_last ? channels_last_strides(from.dims) : row_major_strides(from.dims);
    return {.type = {from.dtype, shape_of(from.dims)},
            .strides = shape_of(strides),
            .constant = from.constant.get()};
  }

  const Layer layer_;
  const std::vector<std::byte> tactic_;
  std::vector<Operand> inputs_, outputs_;
  std::vector<Program> epilogues_;
  SizeTable sizes_;
  std::optional<Request> request_;
};

// A constant where it is of f32.
LayerOperand bias_operand(Dims dims, DataType dtype = DataType::kF32);
// A convolution of channels-last f16 images with weights and a bias, and its epilogue.
Layer conv_layer(std::string name, Dims x, Dims w, int64_t stride, int64_t pad,
                 std::string epilogue, int64_t groups = 1, DataType dtype = DataType::kF16);
Layer matmul_layer(std::string name, Dims a, Dims b, std::string epilogue,
                   std::vector<LayerOperand> more, DataType dtype = DataType::kF16);
Layer attention_layer(std::string name, Dims q, Dims k, std::string score,
                      std::vector<LayerOperand> more = {}, DataType dtype = DataType::kF16);

}  // namespace anneal::cuda
