#include "anneal/kernels/cuda/cudnn/operation_graph.h"

#include <span>

namespace anneal::cuda {
namespace {

std::span<const int64_t> numbers(const std::vector<int64_t>& values) { return values; }

class GraphMaker {
 public:
  GraphMaker(CudnnCalls& calls, const Operations& operations)
      : calls_(calls), operations_(operations) {}

  OperationGraph run() {
    for (size_t i = 0; i < operations_.tensors.size(); ++i)
      tensors_.push_back(make_tensor(operations_.tensors[i], i));
    std::vector<cudnnBackendDescriptor_t> handles;
    for (const CudnnOperation& each : operations_.operations) {
      parts_.push_back(make_operation(each));
      handles.push_back(parts_.back().handle());
    }
    Descriptor graph = calls_.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    calls_.set_all<cudnnBackendDescriptor_t>(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, handles);
    calls_.finalize(graph, "finalizing the graph of operations");
    for (Descriptor& tensor : tensors_) parts_.push_back(std::move(tensor));
    return {std::move(parts_), std::move(graph)};
  }

 private:
  Descriptor make_tensor(const CudnnTensor& from, size_t index) {
    Descriptor tensor = calls_.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    calls_.set(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, unique_id(index));
    calls_.set(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, from.dtype);
    calls_.set_all(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, from.dims.span());
    calls_.set_all(tensor, CUDNN_ATTR_TENSOR_STRIDES, from.strides.span());
    calls_.set(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, from.alignment);
    if (from.place == TensorPlace::kVirtual) calls_.set(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
    if (from.place == TensorPlace::kValue) calls_.set(tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
    calls_.finalize(tensor, "finalizing a tensor");
    return tensor;
  }

  Descriptor make_operation(const CudnnOperation& from) {
    switch (from.kind) {
      case OperationKind::kConv:
        return make_conv(from);
      case OperationKind::kConvTranspose:
        return make_conv_transpose(from);
      case OperationKind::kMatMul:
        return make_matmul(from);
      case OperationKind::kPointwise:
        return make_pointwise(from);
      case OperationKind::kReduction:
        return make_reduction(from);
    }
    return {};
  }

  void set_tensor(const Descriptor& operation, cudnnBackendAttributeName_t name,
                  TensorIndex tensor) {
    if (tensor != kNoTensor) calls_.set(operation, name, tensors_[static_cast<size_t>(tensor)]);
  }

  Descriptor convolution(const CudnnOperation& from) {
    Descriptor made = calls_.make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    calls_.set(made, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, from.math);
    calls_.set(made, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
    calls_.set(made, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS,
               static_cast<int64_t>(from.strides.size()));
    calls_.set_all(made, CUDNN_ATTR_CONVOLUTION_DILATIONS, numbers(from.dilations));
    calls_.set_all(made, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, numbers(from.strides));
    calls_.set_all(made, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, numbers(from.pads_begin));
    calls_.set_all(made, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, numbers(from.pads_end));
    calls_.finalize(made, "finalizing a convolution");
    return made;
  }
  const Descriptor& kept(Descriptor part) {
    parts_.push_back(std::move(part));
    return parts_.back();
  }

  // The names of an operation of two tensors that has a descriptor of its own.
  struct TwoTensors {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t a, b, y, what;
  };
  // Not finalized.
  Descriptor begin(const TwoTensors& names, const CudnnOperation& from, Descriptor what) {
    const Descriptor& part = kept(std::move(what));
    Descriptor made = calls_.make(names.type);
    set_tensor(made, names.a, from.a);
    set_tensor(made, names.b, from.b);
    set_tensor(made, names.y, from.y);
    calls_.set(made, names.what, part);
    return made;
  }

  Descriptor make_conv(const CudnnOperation& from) {
    Descriptor made = begin(
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC},
        from, convolution(from));
    calls_.set(made, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0f);
    calls_.set(made, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0f);
    calls_.finalize(made, "finalizing the operation of a convolution");
    return made;
  }

  // The gradient of a convolution with regard to its input.
  Descriptor make_conv_transpose(const CudnnOperation& from) {
    Descriptor made = begin(
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC},
        from, convolution(from));
    calls_.set(made, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1.0f);
    calls_.set(made, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0.0f);
    calls_.finalize(made, "finalizing the operation of a transposed convolution");
    return made;
  }

  Descriptor make_matmul(const CudnnOperation& from) {
    Descriptor what = calls_.make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    calls_.set(what, CUDNN_ATTR_MATMUL_COMP_TYPE, from.math);
    calls_.finalize(what, "finalizing a product of matrices");
    Descriptor made = begin({CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
                             CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC,
                             CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_ATTR_OPERATION_MATMUL_DESC},
                            from, std::move(what));
    calls_.finalize(made, "finalizing the operation of a product of matrices");
    return made;
  }

  Descriptor make_pointwise(const CudnnOperation& from) {
    Descriptor what = calls_.make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    calls_.set(what, CUDNN_ATTR_POINTWISE_MODE, from.mode);
    calls_.set(what, CUDNN_ATTR_POINTWISE_MATH_PREC, from.math);
    if (from.lower)
      calls_.set(what, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, static_cast<double>(*from.lower));
    if (from.upper)
      calls_.set(what, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, static_cast<double>(*from.upper));
    if (from.beta)
      calls_.set(what, CUDNN_ATTR_POINTWISE_SWISH_BETA, static_cast<double>(*from.beta));
    if (from.axis) calls_.set(what, CUDNN_ATTR_POINTWISE_AXIS, *from.axis);
    calls_.finalize(what, "finalizing a pointwise function");
    const Descriptor& function = kept(std::move(what));
    Descriptor made = calls_.make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    calls_.set(made, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function);
    set_tensor(made, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, from.a);
    set_tensor(made, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, from.b);
    set_tensor(made, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, from.t);
    set_tensor(made, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, from.y);
    calls_.finalize(made, "finalizing a pointwise operation");
    return made;
  }

  Descriptor make_reduction(const CudnnOperation& from) {
    Descriptor what = calls_.make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    calls_.set(what, CUDNN_ATTR_REDUCTION_OPERATOR, from.reduction);
    calls_.set(what, CUDNN_ATTR_REDUCTION_COMP_TYPE, from.math);
    calls_.finalize(what, "finalizing a reduction");
    const Descriptor& reduction = kept(std::move(what));
    Descriptor made = calls_.make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_tensor(made, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, from.a);
    set_tensor(made, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, from.y);
    calls_.set(made, CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction);
    calls_.finalize(made, "finalizing the operation of a reduction");
    return made;
  }

  CudnnCalls& calls_;
  const Operations& operations_;
  std::vector<Descriptor> tensors_, parts_;
};

}  // namespace

OperationGraph make_operation_graph(CudnnCalls& calls, const Operations& operations) {
  return GraphMaker(calls, operations).run();
}

}  // namespace anneal::cuda
