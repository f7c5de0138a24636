#include "anneal/tests/virtual_card/cudnn/pointwise.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace anneal::fake_cudnn {
namespace {

double clipped(const Operation& o, double x) {
  if (std::isnan(x)) return x;
  return x < o.lower ? o.lower + o.slope * (x - o.lower) : std::min(x, o.upper);
}
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double unary(const Operation& o, double x) {
  switch (o.mode) {
    case CUDNN_POINTWISE_SQRT:
      return std::sqrt(x);
    case CUDNN_POINTWISE_ABS:
      return std::abs(x);
    case CUDNN_POINTWISE_CEIL:
      return std::ceil(x);
    case CUDNN_POINTWISE_COS:
      return std::cos(x);
    case CUDNN_POINTWISE_EXP:
      return std::exp(x);
    case CUDNN_POINTWISE_FLOOR:
      return std::floor(x);
    case CUDNN_POINTWISE_LOG:
      return std::log(x);
    case CUDNN_POINTWISE_NEG:
      return -x;
    case CUDNN_POINTWISE_RSQRT:
      return 1 / std::sqrt(x);
    case CUDNN_POINTWISE_SIN:
      return std::sin(x);
    case CUDNN_POINTWISE_TAN:
      return std::tan(x);
    case CUDNN_POINTWISE_ERF:
      return std::erf(x);
    case CUDNN_POINTWISE_RECIPROCAL:
      return 1 / x;
    case CUDNN_POINTWISE_RELU_FWD:
      return clipped(o, x);
    case CUDNN_POINTWISE_TANH_FWD:
      return std::tanh(x);
    case CUDNN_POINTWISE_SIGMOID_FWD:
      return sigmoid(x);
    case CUDNN_POINTWISE_ELU_FWD:
      return x > 0 ? x : o.factor * std::expm1(x);
    case CUDNN_POINTWISE_GELU_FWD:
      return 0.5 * x * (1 + std::erf(x * std::sqrt(0.5)));
    case CUDNN_POINTWISE_SOFTPLUS_FWD:
      return std::log1p(std::exp(o.factor * x)) / o.factor;
    case CUDNN_POINTWISE_SWISH_FWD:
      return x * sigmoid(o.factor * x);
    case CUDNN_POINTWISE_GELU_APPROX_TANH_FWD:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case CUDNN_POINTWISE_LOGICAL_NOT:
      return x == 0;
    default:  // CUDNN_POINTWISE_IDENTITY
      return x;
  }
}

double binary(const Operation& o, double x, double b) {
  switch (o.mode) {
    case CUDNN_POINTWISE_MUL:
      return x * b;
    case CUDNN_POINTWISE_MIN:
      return std::isnan(x) || x < b ? x : b;
    case CUDNN_POINTWISE_MAX:
      return std::isnan(x) || x > b ? x : b;
    case CUDNN_POINTWISE_ADD_SQUARE:
      return x + b * b;
    case CUDNN_POINTWISE_DIV:
      return x / b;
    case CUDNN_POINTWISE_MOD:
      return std::fmod(x, b);
    case CUDNN_POINTWISE_POW:
      return std::pow(x, b);
    case CUDNN_POINTWISE_SUB:
      return x - b;
    case CUDNN_POINTWISE_CMP_EQ:
      return x == b;
    case CUDNN_POINTWISE_CMP_NEQ:
      return x != b;
    case CUDNN_POINTWISE_CMP_GT:
      return x > b;
    case CUDNN_POINTWISE_CMP_GE:
      return x >= b;
    case CUDNN_POINTWISE_CMP_LT:
      return x < b;
    case CUDNN_POINTWISE_CMP_LE:
      return x <= b;
    case CUDNN_POINTWISE_LOGICAL_AND:
      return x != 0 && b != 0;
    case CUDNN_POINTWISE_LOGICAL_OR:
      return x != 0 || b != 0;
    default:  // CUDNN_POINTWISE_ADD
      return x + b;
  }
}

// Calls with the index in the operand of each element of the result, in order. Dimensions of one
// element in the operand are spread.
template <class Function>
void for_each_index(const Tensor& operand, const Tensor& result, const Function& function) {
  const size_t rank = result.dims.size();
  std::vector<int64_t> steps(rank, 0), index(rank, 0);
  int64_t dense = 1;
  for (size_t i = rank; i-- > 0; dense *= operand.dims[i])
    steps[i] = operand.dims[i] == 1 ? 0 : dense;
  const int64_t count = result.count();
  int64_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    function(static_cast<size_t>(i), static_cast<size_t>(at));
    for (size_t axis = rank; axis-- > 0;) {
      at += steps[axis];
      if (++index[axis] < result.dims[axis]) break;
      at -= index[axis] * steps[axis];
      index[axis] = 0;
    }
  }
}

Elements spread(const Operand& operand, const Tensor& result, double factor) {
  Elements made(static_cast<size_t>(result.count()));
  for_each_index(*operand.tensor, result,
                 [&](size_t to, size_t from) { made[to] = factor * (*operand.elements)[from]; });
  return made;
}

Elements indices(const Tensor& result, size_t axis) {
  Elements made(static_cast<size_t>(result.count()));
  int64_t inner = 1;
  for (size_t i = axis + 1; i < result.dims.size(); ++i) inner *= result.dims[i];
  for (size_t i = 0; i < made.size(); ++i)
    made[i] = static_cast<double>(static_cast<int64_t>(i) / inner % result.dims[axis]);
  return made;
}

}  // namespace

Elements pointwise(const Operation& o, const Tensor& result, std::span<const Operand> operands) {
  if (o.mode == CUDNN_POINTWISE_GEN_INDEX) return indices(result, static_cast<size_t>(o.axis));
  Elements x = spread(operands[0], result, o.alpha);
  if (operands.size() == 1) {
    for (double& each : x) each = unary(o, each);
  } else if (operands.size() == 2) {
    const Elements b = spread(operands[1], result, o.beta);
    for (size_t i = 0; i < x.size(); ++i) x[i] = binary(o, x[i], b[i]);
  } else {
    const Elements b = spread(operands[1], result, 1), t = spread(operands[2], result, 1);
    for (size_t i = 0; i < x.size(); ++i)
      if (t[i] == 0) x[i] = b[i];
  }
  // The type of computation is between the operands and the result.
  if (o.compute != CUDNN_DATA_DOUBLE) round_to(o.compute, x);
  return x;
}

Elements reduction(const Operation& o, const Tensor& x, const Tensor& result,
                   const Elements& elements) {
  double first = 0;
  if (o.mode == CUDNN_REDUCE_TENSOR_MUL) first = 1;
  if (o.mode == CUDNN_REDUCE_TENSOR_MIN) first = std::numeric_limits<double>::infinity();
  if (o.mode == CUDNN_REDUCE_TENSOR_MAX) first = -std::numeric_limits<double>::infinity();
  Elements made(static_cast<size_t>(result.count()), first);
  for_each_index(result, x, [&](size_t from, size_t to) {
    const double value = elements[from];
    double& sum = made[to];
    switch (o.mode) {
      case CUDNN_REDUCE_TENSOR_MUL:
        sum *= value;
        break;
      case CUDNN_REDUCE_TENSOR_MIN:
        sum = std::isnan(value) || value < sum ? value : sum;
        break;
      case CUDNN_REDUCE_TENSOR_MAX:
        sum = std::isnan(value) || value > sum ? value : sum;
        break;
      case CUDNN_REDUCE_TENSOR_AMAX:
        sum = std::max(sum, std::abs(value));
        break;
      case CUDNN_REDUCE_TENSOR_NORM1:
        sum += std::abs(value);
        break;
      case CUDNN_REDUCE_TENSOR_NORM2:
        sum += value * value;
        break;
      default:  // sums and means
        sum += value;
    }
  });
  for (double& each : made) {
    if (o.mode == CUDNN_REDUCE_TENSOR_AVG)
      each *= static_cast<double>(result.count()) / static_cast<double>(x.count());
    if (o.mode == CUDNN_REDUCE_TENSOR_NORM2) each = std::sqrt(each);
  }
  return made;
}

}  // namespace anneal::fake_cudnn
