#include "anneal/kernels/cuda/cublas_lt/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "anneal/kernels/cuda/cost/rounded_constant.h"
#include "anneal/kernels/cuda/cublas_lt/epilogue.h"

namespace anneal::cuda {
namespace {

// A product over axes: those before `row` are batches, then rows, columns and the depth.
struct AxesOf {
  std::vector<int64_t> sizes;
  size_t row() const { return sizes.size() - 3; }
  size_t column() const { return sizes.size() - 2; }
  size_t depth() const { return sizes.size() - 1; }
};
// Strides of an operand along these axes; 0 where it is the same.
using AxisStrides = std::vector<int64_t>;

struct LtProduct {
  AxesOf axes;
  AxisStrides a, b, d;
  std::vector<AxisStrides> extra;  // of epilogue inputs

  std::vector<AxisStrides*> all() {
    std::vector<AxisStrides*> list = {&a, &b, &d};
    for (AxisStrides& each : extra) list.push_back(&each);
    return list;
  }
  void erase(size_t axis) {
    const auto at = static_cast<ptrdiff_t>(axis);
    axes.sizes.erase(axes.sizes.begin() + at);
    for (AxisStrides* const strides : all()) strides->erase(strides->begin() + at);
  }
};

bool has_open_size(const Request& request) {
  const auto is_open = [](const Operand& operand) {
    return operand.present && !(known(operand.type.shape) && known(operand.strides));
  };
  return std::ranges::any_of(request.inputs, is_open) ||
         std::ranges::any_of(request.outputs, is_open);
}

int64_t stride_at(const Operand& operand, int axis) {
  return operand.type.shape[axis].value() == 1 ? 0 : operand.strides[axis].value();
}

// Joins `axis`, a batch, with the axis behind it where all operands allow it.
bool join(LtProduct& product, size_t axis) {
  const int64_t size = product.axes.sizes[axis + 1];
  for (const AxisStrides* const strides : product.all())
    if ((*strides)[axis] != (*strides)[axis + 1] * size) return false;
  for (AxisStrides* const strides : product.all()) (*strides)[axis] = (*strides)[axis + 1];
  product.axes.sizes[axis] *= size;
  product.erase(axis + 1);
  return true;
}

// As few batch axes as can be: those along which b is the same become rows.
void join_axes(LtProduct& product) {
  for (size_t axis = 0; axis < product.axes.row();)
    if (product.axes.sizes[axis] == 1)
      product.erase(axis);
    else
      ++axis;
  while (product.axes.row() > 0) {
    const size_t row = product.axes.row();
    // Of one row no operand has a stride: it takes that of the batch.
    if (product.axes.sizes[row] == 1 && product.b[row - 1] == 0) {
      product.erase(row);
      continue;
    }
    if (product.b[row - 1] != 0 || !join(product, row - 1)) break;
  }
  for (size_t axis = product.axes.row(); axis-- > 1;) join(product, axis - 1);
}

Result<cudaDataType> lt_type(DataType dtype) {
  switch (dtype) {
    case DataType::kF32:
      return CUDA_R_32F;
    case DataType::kF16:
      return CUDA_R_16F;
    case DataType::kBF16:
      return CUDA_R_16BF;
    case DataType::kI8:
      return CUDA_R_8I;
    case DataType::kI32:
      return CUDA_R_32I;
    default:
      return refuse(fmt::format("elements of {}", to_string(dtype)));
  }
}

int64_t bytes_of(cudaDataType type) {
  return type == CUDA_R_8I ? 1 : type == CUDA_R_16F || type == CUDA_R_16BF ? 2 : 4;
}

// Types of A and B together with that of D.
std::string set_types(LtProblem& problem, DataType a, DataType b, DataType d, bool tf32) {
  if (a != b) return fmt::format("operands of {} and {}", to_string(a), to_string(b));
  const auto in = lt_type(a), out = lt_type(d);
  if (!in) return in.reason();
  if (!out) return out.reason();
  problem.a.type = problem.b.type = *in;
  problem.d.type = *out;
  const bool is_f32 = *in == CUDA_R_32F, is_byte = *in == CUDA_R_8I;
  const bool is_half = *in == CUDA_R_16F || *in == CUDA_R_16BF;
  const bool fits =
      is_byte ? *out == CUDA_R_8I || *out == CUDA_R_32I
              : (is_f32 && *out == *in) || (is_half && (*out == *in || *out == CUDA_R_32F));
  if (!fits) return fmt::format("results of {} from operands of {}", to_string(d), to_string(a));
  if (tf32 && !is_f32) return "TF32 is for operands of f32";
  problem.compute = is_byte ? CUBLAS_COMPUTE_32I
                    : tf32  ? CUBLAS_COMPUTE_32F_FAST_TF32
                            : CUBLAS_COMPUTE_32F;
  problem.scale = *out == CUDA_R_32I ? CUDA_R_32I : CUDA_R_32F;
  return {};
}

// A matrix whose element (row, column) lies at these strides; transposed where only its columns
// are adjacent.
struct Seen {
  LtMatrix matrix;
  bool transposed = false;
};
std::optional<Seen> see(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  const auto is_adjacent = [](int64_t size, int64_t stride) { return size == 1 || stride == 1; };
  const auto leading = [](int64_t adjacent, int64_t lines, int64_t stride) {
    return lines == 1 ? adjacent : stride;
  };
  // Of a vector both would do: the one in which it is a whole column.
  const bool is_row_vector = rows == 1 && column_stride == 1 && columns > 1;
  if (is_adjacent(rows, row_stride) && !is_row_vector)
    return Seen{.matrix = {.rows = rows,
                           .columns = columns,
                           .leading = leading(rows, columns, column_stride)}};
  if (is_adjacent(columns, column_stride))
    return Seen{
        .matrix = {.rows = columns, .columns = rows, .leading = leading(columns, rows, row_stride)},
        .transposed = true};
  return std::nullopt;
}

void set_alignment(LtMatrix& matrix, int32_t batches) {
  const int64_t bytes = bytes_of(matrix.type);
  int64_t apart = 16;
  if (matrix.columns > 1) apart = std::gcd(apart, matrix.leading * bytes);
  if (batches > 1) apart = std::gcd(apart, matrix.batch_stride * bytes);
  matrix.alignment = static_cast<uint32_t>(apart);
}

// D may not be transposed, so the product is that of the transposed matrices where only the
// columns of the layer's result are adjacent. The axis of D's rows.
size_t row_axis_of_d(const LtProduct& product) {
  const AxesOf& axes = product.axes;
  const bool rows_first =
      product.d[axes.row()] == 1 && axes.sizes[axes.row()] > 1 && product.d[axes.column()] != 1;
  return rows_first ? axes.row() : axes.column();
}

std::string set_matrices(LtProblem& problem, const LtProduct& product, size_t row_axis) {
  const AxesOf& axes = product.axes;
  const size_t column_axis = row_axis == axes.row() ? axes.column() : axes.row();
  const AxisStrides& left = row_axis == axes.row() ? product.a : product.b;
  const AxisStrides& right = row_axis == axes.row() ? product.b : product.a;
  const auto size = [&](size_t axis) { return axes.sizes[axis]; };
  const auto a = see(size(row_axis), size(axes.depth()), left[row_axis], left[axes.depth()]);
  const auto b =
      see(size(axes.depth()), size(column_axis), right[axes.depth()], right[column_axis]);
  const auto d =
      see(size(row_axis), size(column_axis), product.d[row_axis], product.d[column_axis]);
  if (!a || !b) return "an operand whose elements are adjacent along neither axis";
  // D is never transposed. Of one row, its columns may lie apart.
  const bool is_row = size(row_axis) == 1;
  if (!d || (d->transposed && !is_row)) return "results whose elements are not adjacent";
  const auto take = [&](LtMatrix& to, const LtMatrix& from, const AxisStrides& strides, size_t at) {
    const cudaDataType type = to.type;
    to = from;
    to.type = type;
    to.operand = at;
    if (axes.row() == 1) to.batch_stride = strides[0];
    set_alignment(to, problem.batches);
  };
  const bool swapped = row_axis != axes.row();
  take(problem.a, a->matrix, left, swapped ? 1 : 0);
  take(problem.b, b->matrix, right, swapped ? 0 : 1);
  take(problem.d,
       {.rows = size(row_axis),
        .columns = size(column_axis),
        .leading = size(column_axis) == 1 ? size(row_axis) : product.d[column_axis]},
       product.d, 0);
  problem.transpose_a = a->transposed;
  problem.transpose_b = b->transposed;
  return {};
}

// What an epilogue's operand is; nullopt: neither a vector nor a matrix that cuBLASLt takes.
std::optional<LtOperand> operand_kind(const LtProduct& product, const AxisStrides& strides,
                                      size_t row_axis) {
  const AxesOf& axes = product.axes;
  const size_t column_axis = row_axis == axes.row() ? axes.column() : axes.row();
  const auto lies = [&](size_t axis) { return axes.sizes[axis] == 1 || strides[axis] != 0; };
  const bool is_column = axes.sizes[row_axis] == 1 || strides[row_axis] == 1;
  if (!is_column) return std::nullopt;
  bool repeats = true, differs = true;
  for (size_t axis = 0; axis <= axes.column(); ++axis) {
    if (axis == row_axis) continue;
    repeats = repeats && strides[axis] == 0;
    differs = differs && lies(axis);
  }
  if (repeats) return LtOperand::kVector;
  const bool has_column_stride = axes.sizes[column_axis] == 1 || strides[column_axis] > 0;
  return differs && has_column_stride ? std::optional(LtOperand::kMatrix) : std::nullopt;
}

cublasLtEpilogue_t lt_code(LtActivation activation, bool has_bias) {
  const unsigned code = activation == LtActivation::kRelu   ? CUBLASLT_EPILOGUE_RELU
                        : activation == LtActivation::kGelu ? CUBLASLT_EPILOGUE_GELU
                                                            : 0u;
  if (has_bias) return static_cast<cublasLtEpilogue_t>(code | CUBLASLT_EPILOGUE_BIAS);
  return code == 0 ? CUBLASLT_EPILOGUE_DEFAULT : static_cast<cublasLtEpilogue_t>(code);
}

void set_residual(LtProblem& problem, const LtProduct& product, size_t at, size_t extra,
                  size_t row_axis) {
  const AxesOf& axes = product.axes;
  const AxisStrides& strides = product.extra[extra];
  const size_t column_axis = row_axis == axes.row() ? axes.column() : axes.row();
  problem.c = problem.d;
  problem.c->operand = at;
  problem.c->leading = problem.d.columns == 1 ? problem.d.rows : strides[column_axis];
  problem.c->batch_stride = axes.row() == 1 ? strides[0] : 0;
  set_alignment(*problem.c, problem.batches);
}

std::string set_bias(LtProblem& problem, const Request& request, size_t at) {
  const Operand& bias = request.inputs[at];
  const auto type = lt_type(bias.type.dtype);
  problem.bias = at;
  if (type && *type == problem.d.type) return {};
  if (!type || *type != CUDA_R_32F || problem.scale != CUDA_R_32F)
    return "a bias of another type than the result";
  if (bias.constant == nullptr || bias.constant->count() != problem.d.rows)
    return "a bias of another type than the result that is no constant";
  const DataType result = problem.d.type == CUDA_R_16F ? DataType::kF16 : DataType::kBF16;
  if (rounded_constant(bias.constant->as<float>(), result).empty())
    return "a bias that the type of the result does not hold";
  problem.rounds_bias = true;
  return {};
}

std::string set_epilogue(LtProblem& problem, const LtProduct& product, const Request& request,
                         size_t row_axis) {
  if (request.epilogues.empty() || request.epilogues[0].empty())
    return request.inputs.size() > static_cast<size_t>(request.op_input_count)
               ? "inputs without an epilogue"
               : "";
  const Program& program = request.epilogues[0];
  std::vector<LtOperand> kinds;
  for (const AxisStrides& strides : product.extra) {
    const auto kind = operand_kind(product, strides, row_axis);
    if (!kind) return "an epilogue operand that is neither a bias of the columns nor a residual";
    kinds.push_back(*kind);
  }
  if (program.is_identity() && kinds.empty()) return {};
  const auto epilogue = lt_epilogue(program, kinds);
  if (!epilogue) return epilogue.reason();
  problem.alpha = epilogue->alpha;
  problem.epilogue = lt_code(epilogue->activation, epilogue->bias.has_value());
  const auto input = [&](int of_program) {
    return static_cast<size_t>(request.op_input_count + of_program - 1);
  };
  if (epilogue->residual) {
    const size_t at = input(*epilogue->residual);
    const auto type = lt_type(request.inputs[at].type.dtype);
    if (!type || *type != problem.d.type) return "a residual of another type than the result";
    set_residual(problem, product, at, static_cast<size_t>(*epilogue->residual) - 1, row_axis);
  }
  return epilogue->bias ? set_bias(problem, request, input(*epilogue->bias)) : "";
}

std::string why_not_wanted(const LtProblem& problem, bool approximate) {
  const bool has_gelu =
      problem.epilogue == CUBLASLT_EPILOGUE_GELU || problem.epilogue == CUBLASLT_EPILOGUE_GELU_BIAS;
  const bool has_relu =
      problem.compute != CUBLAS_COMPUTE_32I && (problem.epilogue == CUBLASLT_EPILOGUE_RELU ||
                                                problem.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS);
  if (approximate)
    return has_gelu || has_relu || problem.rounds_bias ? "" : "nothing is approximate";
  if (has_gelu) return "GELU, which the library approximates";
  if (has_relu) return "ReLU, which may not pass NaN on";
  return problem.rounds_bias ? "a bias that is rounded to the type of the result" : "";
}

Result<LtProblem> problem_of(LtProduct product, const Request& request, LtArithmetic wanted) {
  for (const int64_t size : product.axes.sizes)
    if (size <= 0) return refuse("an empty product");
  join_axes(product);
  if (product.axes.row() > 1) return refuse("batch axes that are not one");
  LtProblem problem;
  if (product.axes.row() == 1) {
    if (product.axes.sizes[0] > std::numeric_limits<int32_t>::max())
      return refuse("a batch of more than 2^31 products");
    problem.batches = static_cast<int32_t>(product.axes.sizes[0]);
  }
  std::string why = set_types(problem, request.inputs[0].type.dtype, request.inputs[1].type.dtype,
                              request.outputs[0].type.dtype, wanted.tf32);
  if (!why.empty()) return refuse(std::move(why));
  const size_t row_axis = row_axis_of_d(product);
  why = set_matrices(problem, product, row_axis);
  if (why.empty()) why = set_epilogue(problem, product, request, row_axis);
  if (why.empty()) why = why_not_wanted(problem, wanted.approximate);
  if (why.empty()) why = broken_rule(problem);
  if (!why.empty()) return refuse(std::move(why));
  return problem;
}

// Strides of an operand that broadcasts to the output's axes, in their order.
AxisStrides broadcast_strides(const Operand& operand, int rank, std::span<const int> axes) {
  AxisStrides strides;
  for (const int axis : axes) {
    const int own = axis - (rank - operand.type.shape.rank());
    strides.push_back(own < 0 ? 0 : stride_at(operand, own));
  }
  strides.push_back(0);  // the depth
  return strides;
}

void add_extra(LtProduct& product, const Request& request, std::span<const int> axes) {
  const int rank = request.outputs[0].type.shape.rank();
  product.d = broadcast_strides(request.outputs[0], rank, axes);
  for (size_t i = static_cast<size_t>(request.op_input_count); i < request.inputs.size(); ++i)
    product.extra.push_back(broadcast_strides(request.inputs[i], rank, axes));
}

std::string why_not_one_output(const Request& request) {
  if (request.outputs.size() != 1 || request.epilogues.size() > 1) return "several results";
  if (has_open_size(request)) return "sizes that are not constants";
  for (size_t i = 2; i < static_cast<size_t>(request.op_input_count); ++i)
    if (request.inputs[i].present) return "zero points or scales of 8-bit operands";
  for (const Operand& input : request.inputs.subspan(static_cast<size_t>(request.op_input_count)))
    if (!input.present || input.type.shape.rank() > request.outputs[0].type.shape.rank())
      return "an epilogue operand of more axes than the result";
  return {};
}

std::string broken_rule(const LtMatrix& matrix, const LtProblem& problem, const char* name) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const auto says = [&](const std::string& rule) { return fmt::format("{} {}", name, rule); };
  if (matrix.rows > kMost || matrix.columns > kMost || matrix.leading > kMost)
    return says("has more than 2^31 rows or columns");
  if (matrix.leading < matrix.rows)
    return says(fmt::format("has columns {} elements apart, fewer than its {} rows", matrix.leading,
                            matrix.rows));
  if (problem.batches > 1 && matrix.batch_stride < 0)
    return says("has batches in descending order");
  if (matrix.type == CUDA_R_8I && matrix.alignment % 4 != 0)
    return says("has columns of 8 bits at no multiples of 4 bytes");
  return {};
}

bool results_overlap(const LtMatrix& d, int32_t batches) {
  if (batches == 1) return false;
  const bool behind = d.batch_stride >= d.leading * (d.columns - 1) + d.rows;
  const bool beside =
      d.batch_stride >= d.rows && d.batch_stride * (batches - 1) + d.rows <= d.leading;
  return !behind && !beside;
}

}  // namespace

std::string broken_rule(const LtProblem& problem) {
  const LtMatrix &a = problem.a, &b = problem.b, &d = problem.d;
  for (const auto& [matrix, name] : {std::pair(&a, "A"), {&b, "B"}, {&d, "D"}})
    if (std::string rule = broken_rule(*matrix, problem, name); !rule.empty()) return rule;
  if (problem.c) {
    if (std::string rule = broken_rule(*problem.c, problem, "C"); !rule.empty()) return rule;
    if (problem.batches > 1 && problem.c->batch_stride == 0)
      return "a residual that is the same for all batches";
  }
  if (results_overlap(d, problem.batches)) return "results of a batch that overlap";
  if (problem.compute != CUBLAS_COMPUTE_32I) return {};
  const int64_t depth = problem.transpose_a ? a.rows : a.columns;
  if (!problem.transpose_a || problem.transpose_b)
    return "8-bit operands along whose depth elements are not adjacent";
  if (depth % 4 != 0 || d.rows % 4 != 0)
    return fmt::format("8 bits with a depth of {} and {} columns: both must be multiples of 4",
                       depth, d.rows);
  if (problem.scale == CUDA_R_32I &&
      (problem.alpha != 1 || problem.c || problem.epilogue != CUBLASLT_EPILOGUE_DEFAULT))
    return "an epilogue of results of i32";
  return {};
}

Result<LtProblem> lt_problem(const MatMul& op, const Request& request, LtArithmetic wanted) {
  if (!op.split.empty()) return refuse("several results");
  if (std::string why = why_not_one_output(request); !why.empty()) return refuse(std::move(why));
  const Operand &a = request.inputs[0], &b = request.inputs[1];
  const int rank = request.outputs[0].type.shape.rank();
  const int a_rank = a.type.shape.rank(), b_rank = b.type.shape.rank();
  LtProduct product;
  std::vector<int> axes;
  for (int axis = 0; axis < rank; ++axis) {
    axes.push_back(axis);
    product.axes.sizes.push_back(request.outputs[0].type.shape[axis].value());
  }
  const int a_depth = a_rank - (op.transpose_a ? 2 : 1),
            b_depth = b_rank - (op.transpose_b ? 1 : 2);
  product.axes.sizes.push_back(a.type.shape[a_depth].value());
  add_extra(product, request, axes);
  const auto leading = std::span(axes).first(static_cast<size_t>(rank - 2));
  // Row, column, depth behind the batches.
  const auto strides_of = [&](const Operand& operand, int row, int column, int depth) {
    AxisStrides strides = broadcast_strides(operand, rank, leading);
    strides.pop_back();
    for (const int axis : {row, column, depth})
      strides.push_back(axis < 0 ? 0 : stride_at(operand, axis));
    return strides;
  };
  product.a = strides_of(a, a_rank - (op.transpose_a ? 1 : 2), -1, a_depth);
  product.b = strides_of(b, -1, b_rank - (op.transpose_b ? 2 : 1), b_depth);
  return problem_of(std::move(product), request, wanted);
}

Result<LtProblem> lt_problem(const Conv& op, const Request& request, LtArithmetic wanted) {
  const auto is_all = [](const std::vector<int64_t>& values, int64_t value) {
    return std::ranges::all_of(values, [&](int64_t each) { return each == value; });
  };
  if (!op.split.empty()) return refuse("several results");
  if (op.groups != 1) return refuse("groups");
  if (!is_all(op.strides, 1) || !is_all(op.pads_begin, 0) || !is_all(op.pads_end, 0))
    return refuse("strides or padding, so that it is no product");
  if (std::string why = why_not_one_output(request); !why.empty()) return refuse(std::move(why));
  const Operand &x = request.inputs[0], &w = request.inputs[1];
  const int rank = x.type.shape.rank();
  for (int axis = 2; axis < rank; ++axis)
    if (w.type.shape[axis].value() != 1) return refuse("windows of more than one place");
  // Batch and places in order, then channels.
  std::vector<int> axes = {0};
  for (int axis = 2; axis < rank; ++axis) axes.push_back(axis);
  LtProduct product;
  for (const int axis : axes) product.axes.sizes.push_back(x.type.shape[axis].value());
  product.axes.sizes.push_back(w.type.shape[0].value());
  product.axes.sizes.push_back(w.type.shape[1].value());
  for (const int axis : axes) product.a.push_back(stride_at(x, axis));
  product.a.insert(product.a.end(), {0, stride_at(x, 1)});
  product.b.assign(axes.size(), 0);
  product.b.insert(product.b.end(), {stride_at(w, 0), stride_at(w, 1)});
  axes.push_back(1);
  add_extra(product, request, axes);
  return problem_of(std::move(product), request, wanted);
}

}  // namespace anneal::cuda
