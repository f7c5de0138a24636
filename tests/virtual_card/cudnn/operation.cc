#include "anneal/tests/virtual_card/cudnn/operation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <limits>

namespace anneal::fake_cudnn {
namespace {

[[noreturn]] void refuse_attribute(Attribute attribute, const std::string& why,
                                   Status status = CUDNN_STATUS_BAD_PARAM) {
  refuse(status, fmt::format("{}: {}", name_of(attribute), why));
}
[[noreturn]] void refuse_shape(Attribute attribute, const std::string& why) {
  refuse_attribute(attribute, why, CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
}

void check_compute_type(const Descriptor& d, Attribute attribute) {
  const uint32_t type = d.enumerator(attribute);
  for (const DataType known :
       {CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_INT32, CUDNN_DATA_BOOLEAN})
    if (type == known) return;
  refuse_attribute(attribute, fmt::format("no operation computes in type {}", type));
}

// Builds an operation, and keeps its tensors.
class Building {
 public:
  explicit Building(const Descriptor& d) : d_(d) { operation.type = d.type; }

  const Tensor& input(const char* name, Attribute attribute) {
    return add(operation.inputs, name, attribute);
  }
  const Tensor* optional_input(const char* name, Attribute attribute) {
    return d_.has(attribute) ? &input(name, attribute) : nullptr;
  }
  const Tensor& output(const char* name, Attribute attribute) {
    const Tensor& made = add(operation.outputs, name, attribute);
    for (const auto& [other, uid] : operation.inputs)
      if (uid == made.uid)
        refuse_attribute(attribute, fmt::format("tensor {} is an input, too", uid));
    return made;
  }
  OperationGraph take() {
    graph_.operations.push_back(operation);
    return std::move(graph_);
  }

  Operation operation;

 private:
  const Tensor& add(std::map<std::string, int64_t>& list, const char* name, Attribute attribute) {
    const Tensor& tensor = d_.meaning_of<TensorMeaning>(attribute).tensor;
    const auto [found, is_new] = graph_.tensors.emplace(tensor.uid, tensor);
    if (!is_new && found->second != tensor)
      refuse_attribute(attribute, fmt::format("two different tensors have the id {}", tensor.uid),
                       CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
    list[name] = tensor.uid;
    return found->second;
  }

  const Descriptor& d_;
  OperationGraph graph_;
};

struct ConvolutionAttributes {
  Attribute convolution, x, w, y, alpha, beta;
};
constexpr ConvolutionAttributes kForward = {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
// Backwards, x is what is made of y.
constexpr ConvolutionAttributes kBackward = {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};

void check_convolution_shapes(const ConvolutionAttributes& a, const Operation& c, const Tensor& x,
                              const Tensor& w, const Tensor& y) {
  const size_t spatial = c.strides.size();
  for (const auto& [tensor, attribute] : {std::pair(&x, a.x), {&w, a.w}, {&y, a.y}})
    if (tensor->dims.size() != spatial + 2)
      refuse_shape(attribute,
                   fmt::format("{} dimensions for {} spatial ones", tensor->dims, spatial));
  if (x.dims[1] % w.dims[1] != 0)
    refuse_shape(a.w, fmt::format("{} channels of a filter for {} of x", w.dims[1], x.dims[1]));
  const int64_t groups = x.dims[1] / w.dims[1];
  if (w.dims[0] % groups != 0)
    refuse_shape(a.w, fmt::format("{} filters for {} groups", w.dims[0], groups));
  if (y.dims[0] != x.dims[0] || y.dims[1] != w.dims[0])
    refuse_shape(a.y, fmt::format("{} of x {} and w {}", y.dims, x.dims, w.dims));
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t reach = (w.dims[i + 2] - 1) * c.dilations[i] + 1;
    const int64_t padded = x.dims[i + 2] + c.pre[i] + c.post[i];
    if (padded < reach || (padded - reach) / c.strides[i] + 1 != y.dims[i + 2])
      refuse_shape(a.y, fmt::format("dimension {} is {}: x has {}, w {}, stride {}, dilation {}, "
                                    "paddings {} and {}",
                                    i + 2, y.dims[i + 2], x.dims[i + 2], w.dims[i + 2],
                                    c.strides[i], c.dilations[i], c.pre[i], c.post[i]));
  }
}

bool is_in_order(const Tensor& tensor, bool channels_last) {
  std::vector<size_t> order;  // the outermost first
  for (size_t i = 0; i < tensor.dims.size(); ++i)
    if (!channels_last || i != 1) order.push_back(i);
  if (channels_last) order.push_back(1);
  std::erase_if(order, [&](size_t i) { return tensor.dims[i] == 1; });
  return std::ranges::is_sorted(order, std::greater(), [&](size_t i) { return tensor.strides[i]; });
}

// NVIDIA's library takes any order and computes wrong numbers (9.14 on an H100).
void check_convolution_orders(const ConvolutionAttributes& a, const Tensor& x, const Tensor& w,
                              const Tensor& y) {
  const auto all_in = [&](bool channels_last) {
    return is_in_order(x, channels_last) && is_in_order(w, channels_last) &&
           is_in_order(y, channels_last);
  };
  if (!all_in(false) && !all_in(true))
    refuse_attribute(a.x, fmt::format("tensors neither all row-major nor all channels-last: "
                                      "strides {} of {}, {} of {} and {} of {}",
                                      x.strides, x.dims, w.strides, w.dims, y.strides, y.dims));
}

OperationGraph convolution_operation(const Descriptor& d) {
  const bool is_forward = d.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
  const ConvolutionAttributes& a = is_forward ? kForward : kBackward;
  Building made(d);
  made.operation = d.meaning_of<ConvolutionMeaning>(a.convolution).part;
  made.operation.type = d.type;
  made.operation.alpha = d.real(a.alpha, 1), made.operation.beta = d.real(a.beta, 0);
  if (made.operation.beta != 0) refuse_attribute(a.beta, "the fake adds to no output");
  const Tensor& w = made.input("w", a.w);
  const Tensor& x = is_forward ? made.input("x", a.x) : made.output("x", a.x);
  const Tensor& y = is_forward ? made.output("y", a.y) : made.input("y", a.y);
  check_convolution_shapes(a, made.operation, x, w, y);
  check_convolution_orders(a, x, w, y);
  if (!w.is_dense())
    refuse_attribute(a.w,
                     fmt::format("gaps between elements: strides {} of {}", w.strides, w.dims));
  const bool is_integer = made.operation.compute == CUDNN_DATA_INT32;
  for (const auto& [tensor, attribute] :
       {std::pair(is_forward ? &x : &y, is_forward ? a.x : a.y), {&w, a.w}}) {
    const bool has_integers = tensor->type == CUDNN_DATA_INT8 || tensor->type == CUDNN_DATA_UINT8;
    if (has_integers != is_integer)
      refuse_attribute(
          attribute, fmt::format("{} does not fit the type of computation", name_of(tensor->type)));
  }
  const Tensor& result = is_forward ? y : x;
  if (is_integer && result.is_virtual && result.type != CUDNN_DATA_INT32)
    refuse_attribute(is_forward ? a.y : a.x, "sums of integers are CUDNN_DATA_INT32");
  return made.take();
}

OperationGraph matmul_operation(const Descriptor& d) {
  Building made(d);
  made.operation.compute = static_cast<DataType>(
      d.descriptor(CUDNN_ATTR_OPERATION_MATMUL_DESC).enumerator(CUDNN_ATTR_MATMUL_COMP_TYPE));
  const Tensor& a = made.input("a", CUDNN_ATTR_OPERATION_MATMUL_ADESC);
  const Tensor& b = made.input("b", CUDNN_ATTR_OPERATION_MATMUL_BDESC);
  const Tensor& c = made.output("c", CUDNN_ATTR_OPERATION_MATMUL_CDESC);
  const size_t rank = a.dims.size();
  if (rank < 2) refuse_shape(CUDNN_ATTR_OPERATION_MATMUL_ADESC, fmt::format("{}", a.dims));
  if (b.dims.size() != rank) refuse_shape(CUDNN_ATTR_OPERATION_MATMUL_BDESC, "another rank");
  if (c.dims.size() != rank) refuse_shape(CUDNN_ATTR_OPERATION_MATMUL_CDESC, "another rank");
  if (a.dims[rank - 1] != b.dims[rank - 2])
    refuse_shape(CUDNN_ATTR_OPERATION_MATMUL_BDESC,
                 fmt::format("{} rows, a has {} columns", b.dims[rank - 2], a.dims[rank - 1]));
  if (c.dims[rank - 2] != a.dims[rank - 2] || c.dims[rank - 1] != b.dims[rank - 1])
    refuse_shape(CUDNN_ATTR_OPERATION_MATMUL_CDESC,
                 fmt::format("{} of a {} and b {}", c.dims, a.dims, b.dims));
  for (size_t i = 0; i + 2 < rank; ++i) {
    // One matrix of an operand may belong to several of the other.
    const int64_t most = std::max(a.dims[i], b.dims[i]);
    if (most % a.dims[i] != 0 || most % b.dims[i] != 0)
      refuse_shape(CUDNN_ATTR_OPERATION_MATMUL_BDESC,
                   fmt::format("batches of {} and {}", a.dims[i], b.dims[i]));
    if (c.dims[i] != most)
      refuse_shape(CUDNN_ATTR_OPERATION_MATMUL_CDESC, fmt::format("{} batches", c.dims[i]));
  }
  return made.take();
}

OperationGraph pointwise_operation(const Descriptor& d) {
  Building made(d);
  const Descriptor& p = d.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  Operation& o = made.operation;
  o.mode = p.enumerator(CUDNN_ATTR_POINTWISE_MODE);
  o.compute = static_cast<DataType>(p.enumerator(CUDNN_ATTR_POINTWISE_MATH_PREC));
  o.lower = p.real(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, 0);
  o.upper =
      std::min(p.real(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, std::numeric_limits<double>::max()),
               std::numeric_limits<double>::max());
  o.slope = p.real(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, 0);
  for (const Attribute each : {CUDNN_ATTR_POINTWISE_ELU_ALPHA, CUDNN_ATTR_POINTWISE_SOFTPLUS_BETA,
                               CUDNN_ATTR_POINTWISE_SWISH_BETA})
    if (p.has(each)) o.factor = p.real(each, 1);
  o.axis = p.integer(CUDNN_ATTR_POINTWISE_AXIS, -1);
  o.alpha = d.real(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1);
  o.beta = d.real(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1);
  const int operands = operands_of(o.mode);
  const Tensor& x = made.input("x", CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
  const Tensor* const b = made.optional_input("b", CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  const Tensor* const t = made.optional_input("t", CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
  const Tensor& y = made.output("y", CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  if ((b != nullptr) != (operands >= 2))
    refuse_attribute(CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                     fmt::format("an operation of {} operands", operands));
  if ((t != nullptr) != (operands >= 3))
    refuse_attribute(CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
                     fmt::format("an operation of {} operands", operands));
  if (o.mode == CUDNN_POINTWISE_GEN_INDEX &&
      (o.axis < 0 || o.axis >= static_cast<int64_t>(y.dims.size())))
    refuse_attribute(CUDNN_ATTR_POINTWISE_AXIS, fmt::format("{} of {}", o.axis, y.dims));
  // Each is spread over the result, whose every dimension is that of an operand.
  std::vector<int64_t> spread(y.dims.size(), 1);
  for (const auto& [tensor, attribute] : {std::pair(&x, CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
                                          {b, CUDNN_ATTR_OPERATION_POINTWISE_BDESC},
                                          {t, CUDNN_ATTR_OPERATION_POINTWISE_TDESC}}) {
    if (tensor == nullptr) continue;
    if (tensor->dims.size() != y.dims.size())
      refuse_shape(attribute, fmt::format("{} for a result {}", tensor->dims, y.dims));
    for (size_t i = 0; i < spread.size(); ++i) {
      if (tensor->dims[i] != 1 && tensor->dims[i] != y.dims[i])
        refuse_shape(attribute, fmt::format("{} for a result {}", tensor->dims, y.dims));
      spread[i] = std::max(spread[i], tensor->dims[i]);
    }
  }
  if (spread != y.dims)
    refuse_shape(CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
                 fmt::format("{}, the operands give {}", y.dims, spread));
  return made.take();
}

OperationGraph reduction_operation(const Descriptor& d) {
  Building made(d);
  const Descriptor& r = d.descriptor(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
  made.operation.mode = r.enumerator(CUDNN_ATTR_REDUCTION_OPERATOR);
  made.operation.compute = static_cast<DataType>(r.enumerator(CUDNN_ATTR_REDUCTION_COMP_TYPE));
  const Tensor& x = made.input("x", CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
  const Tensor& y = made.output("y", CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
  bool fits = x.dims.size() == y.dims.size();
  for (size_t i = 0; fits && i < x.dims.size(); ++i)
    fits = y.dims[i] == 1 || y.dims[i] == x.dims[i];
  if (!fits)
    refuse_shape(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, fmt::format("{} of {}", y.dims, x.dims));
  return made.take();
}

void check_scalar(const Tensor* tensor, Attribute attribute) {
  if (tensor != nullptr && tensor->count() != 1)
    refuse_shape(attribute, fmt::format("{} for one number", tensor->dims));
}

OperationGraph attention_operation(const Descriptor& d) {
  Building made(d);
  for (const Attribute each :
       {CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC,
        CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC})
    if (d.has(each)) refuse_attribute(each, "the fake has none", CUDNN_STATUS_NOT_SUPPORTED);
  const Tensor& q = made.input("q", CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC);
  const Tensor& k = made.input("k", CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC);
  const Tensor& v = made.input("v", CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC);
  check_scalar(made.optional_input("scale", CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC),
               CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC);
  const Tensor& o = made.output("o", CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC);
  for (const auto& [tensor, attribute] : {std::pair(&q, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC),
                                          {&k, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC},
                                          {&v, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC},
                                          {&o, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC}}) {
    if (tensor->dims.size() != 4)
      refuse_shape(attribute, fmt::format("{}, not batch, heads, rows, columns", tensor->dims));
    if (tensor->type != CUDNN_DATA_HALF && tensor->type != CUDNN_DATA_BFLOAT16)
      refuse_attribute(attribute, fmt::format("attention in {}", name_of(tensor->type)),
                       CUDNN_STATUS_NOT_SUPPORTED);
    if (tensor->strides[3] != 1)
      refuse_attribute(attribute, fmt::format("columns with a stride of {}", tensor->strides[3]));
    if (tensor->dims[0] != q.dims[0])
      refuse_shape(attribute, fmt::format("{} batches, q has {}", tensor->dims[0], q.dims[0]));
  }
  if (k.dims[3] != q.dims[3] || q.dims[1] % k.dims[1] != 0)
    refuse_shape(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, fmt::format("k {} for q {}", k.dims, q.dims));
  if (v.dims[2] != k.dims[2] || v.dims[1] != k.dims[1])
    refuse_shape(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, fmt::format("v {} for k {}", v.dims, k.dims));
  if (o.dims[1] != q.dims[1] || o.dims[2] != q.dims[2] || o.dims[3] != v.dims[3])
    refuse_shape(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC,
                 fmt::format("o {} of q {} and v {}", o.dims, q.dims, v.dims));
  return made.take();
}

OperationGraph reshape_operation(const Descriptor& d) {
  Building made(d);
  const Tensor& x = made.input("x", CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
  const Tensor& y = made.output("y", CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
  if (x.count() != y.count() || x.type != y.type)
    refuse_shape(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, fmt::format("{} of {}", y.dims, x.dims));
  return made.take();
}

}  // namespace

int operands_of(uint32_t mode) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
    case CUDNN_POINTWISE_MUL:
    case CUDNN_POINTWISE_MIN:
    case CUDNN_POINTWISE_MAX:
    case CUDNN_POINTWISE_ADD_SQUARE:
    case CUDNN_POINTWISE_DIV:
    case CUDNN_POINTWISE_MOD:
    case CUDNN_POINTWISE_POW:
    case CUDNN_POINTWISE_SUB:
    case CUDNN_POINTWISE_CMP_EQ:
    case CUDNN_POINTWISE_CMP_NEQ:
    case CUDNN_POINTWISE_CMP_GT:
    case CUDNN_POINTWISE_CMP_GE:
    case CUDNN_POINTWISE_CMP_LT:
    case CUDNN_POINTWISE_CMP_LE:
    case CUDNN_POINTWISE_LOGICAL_AND:
    case CUDNN_POINTWISE_LOGICAL_OR:
      return 2;
    case CUDNN_POINTWISE_BINARY_SELECT:
      return 3;
    default:
#define X(name, value) mode == (value) ||
      return FAKE_CUDNN_POINTWISE_MODES(X) false ? 1 : 0;
#undef X
  }
}

Operation convolution_of(const Descriptor& d) {
  check_compute_type(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
  Operation made;
  made.compute = static_cast<DataType>(d.enumerator(CUDNN_ATTR_CONVOLUTION_COMP_TYPE));
  made.mode = d.enumerator(CUDNN_ATTR_CONVOLUTION_CONV_MODE);
  if (made.mode != CUDNN_CROSS_CORRELATION)
    refuse_attribute(CUDNN_ATTR_CONVOLUTION_CONV_MODE, "the fake has cross-correlation only");
  const int64_t spatial = d.integer(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
  if (spatial < 1 || spatial > 3)
    refuse_attribute(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, fmt::format("{}", spatial));
  const auto read = [&](Attribute attribute, int64_t least) {
    std::vector<int64_t> list = d.integers(attribute);
    if (static_cast<int64_t>(list.size()) != spatial)
      refuse_attribute(attribute,
                       fmt::format("{} elements for {} spatial dimensions", list.size(), spatial));
    for (const int64_t each : list)
      if (each < least || each > std::numeric_limits<int32_t>::max())
        refuse_attribute(attribute, fmt::format("{}", each));
    return list;
  };
  made.pre = read(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0);
  made.post = read(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0);
  made.strides = read(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1);
  made.dilations = read(CUDNN_ATTR_CONVOLUTION_DILATIONS, 1);
  return made;
}

void check_part(const Descriptor& d) {
  if (d.type == CUDNN_BACKEND_MATMUL_DESCRIPTOR) {
    check_compute_type(d, CUDNN_ATTR_MATMUL_COMP_TYPE);
  } else if (d.type == CUDNN_BACKEND_REDUCTION_DESCRIPTOR) {
    check_compute_type(d, CUDNN_ATTR_REDUCTION_COMP_TYPE);
    const uint32_t mode = d.enumerator(CUDNN_ATTR_REDUCTION_OPERATOR);
#define X(name, value) mode != (value)&&
    if (FAKE_CUDNN_REDUCTION_OPERATORS(X) true)
      refuse_attribute(CUDNN_ATTR_REDUCTION_OPERATOR, fmt::format("there is no operator {}", mode));
#undef X
  } else {
    check_compute_type(d, CUDNN_ATTR_POINTWISE_MATH_PREC);
    if (operands_of(d.enumerator(CUDNN_ATTR_POINTWISE_MODE)) == 0)
      refuse_attribute(CUDNN_ATTR_POINTWISE_MODE,
                       fmt::format("there is no mode {}", d.enumerator(CUDNN_ATTR_POINTWISE_MODE)));
  }
}

OperationGraph operation_of(const Descriptor& d) {
  switch (d.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return convolution_operation(d);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return matmul_operation(d);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return pointwise_operation(d);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return reduction_operation(d);
    case CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR:
      return attention_operation(d);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return reshape_operation(d);
    default:
      refuse(CUDNN_STATUS_NOT_SUPPORTED, fmt::format("the fake has no {}", name_of(d.type)));
  }
}

}  // namespace anneal::fake_cudnn
