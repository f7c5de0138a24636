#include "anneal/importer/graph/graph_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "anneal/core/fail.h"
#include "anneal/importer/onnx/onnx.pb.h"
#include "anneal/importer/onnx/tensor_proto.h"

namespace anneal {
namespace {

using anneal_onnx::TensorShapeProto;
using anneal_onnx::TypeProto;

// Exporters write "?" for every size that they do not know: no name, as it says nothing of
// equality.
bool is_name(const std::string& param) {
  return std::ranges::any_of(param, [](unsigned char c) { return std::isalnum(c) || c >= 128; });
}

bool is_unnamed(const TensorShapeProto::Dimension& dim) {
  return dim.has_dim_param() ? !is_name(dim.dim_param())
                             : !dim.has_dim_value() || dim.dim_value() < 0;
}

// Symbols of the text form are words; ONNX allows anything.
std::string word(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const bool letter = std::isalpha(static_cast<unsigned char>(c)) || c == '_';
    const bool inner = !result.empty() && (std::isdigit(static_cast<unsigned char>(c)) || c == '.');
    result += letter || inner ? c : '_';
  }
  return result;
}

std::string range_text(const Bounds& bounds) {
  return fmt::format("{}..{}", bounds.min, bounds.max);
}

const TensorShapeProto* shape_proto(const anneal_onnx::ValueInfoProto& input) {
  const bool has = input.type().has_tensor_type() && input.type().tensor_type().has_shape();
  return has ? &input.type().tensor_type().shape() : nullptr;
}

}  // namespace

GraphInputs::GraphInputs(SizeTable& sizes,
                         const std::vector<const anneal_onnx::ValueInfoProto*>& inputs,
                         const ImportOptions& options)
    : sizes_(sizes), given_(options.bounds) {
  if (!options.input_dims.empty()) {
    if (options.input_dims.size() != inputs.size())
      fail(ErrorCode::kInvalidArgument, fmt::format("shapes of {} inputs, the model has {}",
                                                    options.input_dims.size(), inputs.size()));
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Dims& dims = options.input_dims[i];
      given_[inputs[i]->name()] = {dims, dims, dims};
    }
  }
  for (const auto& [name, given] : given_) {
    const auto refuse = [&, &name = name, &given = given](const std::string& why) {
      fail_port(ErrorCode::kInvalidArgument, name,
                std::string("bounds of input \"").append(name).append("\": ").append(why),
                given.opt);
    };
    const auto found = std::ranges::find_if(
        inputs, [&, &name = name](auto* input) { return input->name() == name; });
    if (found == inputs.end()) {
      std::string names;
      for (const auto* input : inputs) names += (names.empty() ? "" : ", ") + input->name();
      refuse(fmt::format("the model has no such input, but {}", names));
    }
    const TensorShapeProto* shape = shape_proto(**found);
    const int rank = shape ? shape->dim_size() : given.min.rank();
    if (given.min.rank() != rank || given.opt.rank() != rank || given.max.rank() != rank)
      refuse(fmt::format("the input has {} axes", rank));
    for (int axis = 0; axis < rank; ++axis) {
      const Bounds bounds{given.min[axis], given.opt[axis], given.max[axis]};
      if (bounds.min < 0 || bounds.min > bounds.opt || bounds.opt > bounds.max)
        refuse(fmt::format("axis {}: 0 <= min <= opt <= max does not hold", axis));
      if (!shape) continue;
      const auto& dim = shape->dim(axis);
      if (!is_unnamed(dim) && dim.has_dim_value() &&
          !(bounds.min == dim.dim_value() && bounds.max == dim.dim_value())) {
        const std::string in_model =
            fmt::format("axis {} is {} in the model", axis, dim.dim_value());
        if (!options.input_dims.empty()) refuse(in_model);
        if (axis != 0) refuse(in_model + "; of fixed sizes, only axis 0, the batch, can be opened");
        if (const std::string why = open_batch(name, dim.dim_value(), bounds); !why.empty())
          refuse(fmt::format("{}: {}", in_model, why));
      }
      if (!dim.has_dim_param() || !is_name(dim.dim_param())) continue;
      const auto [other, added] = bounds_.emplace(dim.dim_param(), bounds);
      if (!added && !(other->second == bounds))
        refuse(fmt::format("axis {} is \"{}\", which is {} by another input's bounds", axis,
                           dim.dim_param(), range_text(other->second)));
    }
  }
}

std::string GraphInputs::open_batch(const std::string& input, int64_t in_model,
                                    const Bounds& bounds) {
  if (in_model == 0 || bounds.min == 0) return "a batch of 0 rows cannot be opened";
  if (!batch_) {
    batch_ = OpenBatch{.rows = sizes_.fresh("N"), .in_model = in_model, .bounds = bounds};
    sizes_.set_bounds(batch_->rows, {.min = 1, .opt = bounds.opt});
  }
  if (batch_->in_model != in_model || !(batch_->bounds == bounds))
    return fmt::format(
        "the inputs that are opened share one batch, and that of \"{}\" is {} in the model and {} "
        "here",
        batch_->inputs[0], batch_->in_model, range_text(batch_->bounds));
  batch_->inputs.push_back(input);
  return "";
}

Size GraphInputs::bounded(const std::string& symbol, const Bounds& bounds) {
  if (bounds.min == bounds.max) return bounds.min;
  const Size size = sizes_.fresh(symbol);
  sizes_.set_bounds(size, bounds);
  return size;
}

Size GraphInputs::named_size(const std::string& param) {
  const auto known = named_.find(param);
  if (known != named_.end()) return known->second;
  const auto bounds = bounds_.find(param);
  // fresh: another name may have become the same word.
  const Size size = bounded(word(param), bounds == bounds_.end() ? Bounds{} : bounds->second);
  named_.emplace(param, size);
  return size;
}

Shape GraphInputs::shape_of(const TensorShapeProto& proto, const std::string& input) {
  const auto given = given_.find(input);
  Shape shape;
  for (int axis = 0; axis < proto.dim_size(); ++axis) {
    const auto& dim = proto.dim(axis);
    if (axis == 0 && batch_ && std::ranges::find(batch_->inputs, input) != batch_->inputs.end()) {
      shape.push_back(batch_->rows);
      continue;
    }
    if (!is_unnamed(dim)) {
      shape.push_back(dim.has_dim_param() ? named_size(dim.dim_param()) : Size(dim.dim_value()));
      continue;
    }
    const std::string symbol = fmt::format("{}.{}", word(input), axis);
    if (given == given_.end()) {
      shape.push_back(sizes_.fresh(symbol));
    } else {
      const auto& bounds = given->second;
      shape.push_back(bounded(symbol, {bounds.min[axis], bounds.opt[axis], bounds.max[axis]}));
    }
  }
  return shape;
}

Type GraphInputs::type_of(const anneal_onnx::ValueInfoProto& input, const Tensor* default_value) {
  const Type type = declared_type(input, default_value);
  if (default_value == nullptr) return type;
  const Dims& dims = default_value->dims();
  const TensorShapeProto* shape = shape_proto(input);
  bool fits = type.container == Container::kTensor && type.dtype == default_value->dtype() &&
              type.shape.rank() == dims.rank();
  for (int axis = 0; fits && shape != nullptr && axis < dims.rank(); ++axis)
    fits = is_unnamed(shape->dim(axis)) || shape->dim(axis).has_dim_param() ||
           shape->dim(axis).dim_value() == dims[axis];
  if (!fits)
    fail(ErrorCode::kInvalidModel,
         fmt::format("it is declared as {}{}, but its default value, the initializer of that name, "
                     "is {}{}",
                     to_string(type.dtype), sizes_.text(type.shape),
                     to_string(default_value->dtype()), to_string(dims)));
  for (int axis = 0; axis < dims.rank(); ++axis) {
    if (!sizes_.symbol_index(type.shape[axis])) continue;
    Bounds bounds = sizes_.range(type.shape[axis]);
    if (bounds.opt != Bounds().opt || dims[axis] < bounds.min || dims[axis] > bounds.max) continue;
    bounds.opt = dims[axis];
    sizes_.set_bounds(type.shape[axis], bounds);
  }
  return type;
}

Type GraphInputs::declared_type(const anneal_onnx::ValueInfoProto& input,
                                const Tensor* default_value) {
  const TypeProto* type = &input.type();
  bool optional = false, sequence = false;
  if (type->has_optional_type()) {
    optional = true;
    type = &type->optional_type().elem_type();
  }
  if (type->has_sequence_type()) {
    sequence = true;
    type = &type->sequence_type().elem_type();
  }
  if (type->has_map_type()) fail(ErrorCode::kUnsupported, "maps");
  if (type->has_sparse_tensor_type()) fail(ErrorCode::kUnsupported, "sparse tensors");
  if (!type->has_tensor_type())
    fail(optional || sequence ? ErrorCode::kUnsupported : ErrorCode::kInvalidModel,
         "the type is not that of a tensor, a sequence or an optional of tensors");
  const auto& tensor = type->tensor_type();
  const DataType dtype = require_dtype(tensor.elem_type());
  const Container container = optional
                                  ? sequence ? Container::kOptionalSequence : Container::kOptional
                              : sequence ? Container::kSequence
                                         : Container::kTensor;
  const auto given = given_.find(input.name());
  if (tensor.has_shape()) return {dtype, shape_of(tensor.shape(), input.name()), container};
  if (given == given_.end() && default_value != nullptr)
    return {dtype, anneal::shape_of(default_value->dims()), container};
  if (given == given_.end())
    fail(ErrorCode::kUnsupported, "the model gives no shape, and none was given for it");
  Shape shape;
  for (int axis = 0; axis < given->second.min.rank(); ++axis)
    shape.push_back(
        bounded(fmt::format("{}.{}", word(input.name()), axis),
                {given->second.min[axis], given->second.opt[axis], given->second.max[axis]}));
  return {dtype, shape, container};
}

}  // namespace anneal
