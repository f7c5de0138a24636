// Shape rules of gathers and scatters.
#include <fmt/format.h>

#include "anneal/core/fail.h"
#include "anneal/graph/op/infer_rules.h"

namespace anneal {
namespace {

using rules::Elements;
using rules::refuse;

void require_indices(const InferInputs& inputs) {
  const DataType dtype = inputs.dtype(1);
  if (dtype != DataType::kI64 && dtype != DataType::kI32)
    refuse(fmt::format("indices are {}, not i64 or i32", to_string(dtype)));
}

// Known indices must lie within a known size.
void require_within(const Elements& indices, Size size) {
  if (!indices || !size.known()) return;
  for (const Size& index : *indices)
    if (index.known() && (index.value() < -size.value() || index.value() >= size.value()))
      refuse(fmt::format("index {} of {} elements", index.value(), size.value()));
}

// indices are no larger than x but along `axis`.
void require_smaller(const Shape& indices, const Shape& x, int axis, const SizeTable& sizes) {
  if (indices.rank() != x.rank())
    refuse(fmt::format("indices of rank {} for a tensor of rank {}", indices.rank(), x.rank()));
  for (int i = 0; i < x.rank(); ++i)
    if (i != axis && indices[i].known() && x[i].known() && indices[i].value() > x[i].value())
      refuse(fmt::format("indices of shape {} for a tensor of shape {}", sizes.text(indices),
                         sizes.text(x)));
}

// The last size of the indices of an ND gather or scatter: how many axes an index names.
int index_length(const InferInputs& inputs, int most) {
  const Shape& indices = inputs.shape(1);
  if (indices.rank() == 0) refuse("indices are a scalar");
  const Size length = indices[indices.rank() - 1];
  if (!length.known())
    fail(ErrorCode::kUnsupported,
         "the last size of the indices is not known, and the rank depends on it");
  if (length.value() < 1 || length.value() > most)
    refuse(fmt::format("an index of {} axes where {} are left", length.value(), most));
  return static_cast<int>(length.value());
}

void require_reduction(ScatterReduction reduction, DataType dtype) {
  if (reduction != ScatterReduction::kNone && !rules::is_numeric(dtype))
    refuse(fmt::format("a reduction of {}", to_string(dtype)));
}

}  // namespace

Facts infer(const Gather& op, const InferInputs& inputs) {
  const Type& x = inputs.type(0);
  const Shape& indices = inputs.shape(1);
  const int axis = rules::require_axis(op.axis, x.shape.rank());
  require_indices(inputs);
  const Elements chosen = inputs.elements(1);
  require_within(chosen, x.shape[axis]);
  Shape shape;
  for (int i = 0; i < axis; ++i) shape.push_back(x.shape[i]);
  for (const Size& size : indices) shape.push_back(size);
  for (int i = axis + 1; i < x.shape.rank(); ++i) shape.push_back(x.shape[i]);

  const Elements elements = inputs.elements(0);
  if (!elements || !inputs.integers(1) || !known(x.shape) || !known(indices))
    return {rules::make_fact(x.dtype, shape)};
  const Dims x_strides = row_major_strides(dims_of(x.shape));
  const Dims index_strides = row_major_strides(dims_of(indices));
  const int64_t whole = x.shape[axis].value();
  return {rules::make_fact(
      x.dtype, shape, rules::move_elements(elements, shape, [&](const Dims& at) {
        int64_t which = 0, from = 0;
        for (int i = 0; i < indices.rank(); ++i) which += at[axis + i] * index_strides[i];
        const int64_t index = (*chosen)[static_cast<size_t>(which)].value();
        for (int i = 0; i < x.shape.rank(); ++i) {
          const int64_t position = i < axis    ? at[i]
                                   : i == axis ? (index < 0 ? index + whole : index)
                                               : at[i - 1 + indices.rank()];
          from += position * x_strides[i];
        }
        return from;
      }))};
}

Facts infer(const GatherElements& op, const InferInputs& inputs) {
  const Type& x = inputs.type(0);
  const int axis = rules::require_axis(op.axis, x.shape.rank());
  require_indices(inputs);
  require_smaller(inputs.shape(1), x.shape, axis, inputs.sizes());
  require_within(inputs.elements(1), x.shape[axis]);
  return {rules::make_fact(x.dtype, inputs.shape(1))};
}

Facts infer(const GatherND& op, const InferInputs& inputs) {
  const Type& x = inputs.type(0);
  const Shape& indices = inputs.shape(1);
  require_indices(inputs);
  const int rank = x.shape.rank();
  if (op.batch_dims < 0 || op.batch_dims >= rank || op.batch_dims >= indices.rank())
    refuse(fmt::format("{} batch axes of ranks {} and {}", op.batch_dims, rank, indices.rank()));
  const int batch = static_cast<int>(op.batch_dims);
  const int length = index_length(inputs, rank - batch);
  Shape shape;
  for (int i = 0; i < indices.rank() - 1; ++i)
    shape.push_back(i < batch ? rules::agree(indices[i], x.shape[i], inputs, "batch sizes")
                              : indices[i]);
  for (int i = batch + length; i < rank; ++i) shape.push_back(x.shape[i]);
  return {rules::make_fact(x.dtype, shape)};
}

Facts infer(const ScatterElements& op, const InferInputs& inputs) {
  const Type& x = inputs.type(0);
  const int axis = rules::require_axis(op.axis, x.shape.rank());
  require_indices(inputs);
  rules::require_dtype(inputs, 2, x.dtype);
  require_reduction(op.reduction, x.dtype);
  const Shape& indices = inputs.shape(1);
  require_smaller(indices, x.shape, axis, inputs.sizes());
  require_within(inputs.elements(1), x.shape[axis]);
  const Shape& updates = inputs.shape(2);
  if (updates.rank() != indices.rank())
    refuse(
        fmt::format("updates of rank {} for indices of rank {}", updates.rank(), indices.rank()));
  for (int i = 0; i < updates.rank(); ++i)
    rules::agree(updates[i], indices[i], inputs, "sizes of updates and indices");
  return {rules::make_fact(x.dtype, x.shape)};
}

Facts infer(const ScatterND& op, const InferInputs& inputs) {
  const Type& x = inputs.type(0);
  require_indices(inputs);
  rules::require_dtype(inputs, 2, x.dtype);
  require_reduction(op.reduction, x.dtype);
  const Shape& indices = inputs.shape(1);
  const int length = index_length(inputs, x.shape.rank());
  Shape wanted;
  for (int i = 0; i < indices.rank() - 1; ++i) wanted.push_back(indices[i]);
  for (int i = length; i < x.shape.rank(); ++i) wanted.push_back(x.shape[i]);
  const Shape& updates = inputs.shape(2);
  if (updates.rank() != wanted.rank())
    refuse(fmt::format("updates of rank {}, not {}", updates.rank(), wanted.rank()));
  for (int i = 0; i < wanted.rank(); ++i)
    rules::agree(updates[i], wanted[i], inputs,
                 "sizes of the updates and of the slices that they replace");
  return {rules::make_fact(x.dtype, x.shape)};
}

}  // namespace anneal
