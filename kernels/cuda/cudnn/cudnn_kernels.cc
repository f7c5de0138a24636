// Kernels of cuDNN. Tensor cores add in an order of their own, a residual is added before the bias,
// and biases of 16-bit layers are rounded to 16 bits, so that none is exact.
#include "anneal/core/channels_last.h"
#include "anneal/kernels/cuda/cudnn/cudnn_kernel.h"
#include "anneal/kernels/cuda/cudnn/layer_operations.h"
#include "anneal/kernels/cuda/kernels/entries.h"
#include "anneal/kernels/cuda/kernels/input_layouts.h"
#include "anneal/kernels/cuda/text/window_text.h"

namespace anneal::cuda {
namespace {

template <class T, Result<Operations> (*operations)(const T&, const Request&, EpilogueForm)>
constexpr KernelEntry cudnn_entry(std::string_view name, Layout prefers = Layout::kAny) {
  return {.name = name,
          .op = op_index<T>,
          .prefers = prefers,
          .make =
              [](const Request& request) {
                return make_cudnn_kernel(request, [&](EpilogueForm form) {
                  return operations(std::get<T>(request.op), request, form);
                });
              },
          .exact = false,
          .source = KernelSource::kCudnn,
          .tactics =
              [](const Request& request) {
                return cudnn_tactics(request, [&](EpilogueForm form) {
                  return operations(std::get<T>(request.op), request, form);
                });
              }};
}

constexpr KernelEntry kCudnnEntries[] = {
    cudnn_entry<Conv, conv_operations>("cudnn.conv", Layout::kChannelsLast),
    cudnn_entry<ConvTranspose, conv_transpose_operations>("cudnn.conv_transpose",
                                                          Layout::kChannelsLast),
    cudnn_entry<MatMul, matmul_operations>("cudnn.matmul"),
    cudnn_entry<Attention, attention_operations>("cudnn.attention"),
};

// Channels last where the input's channels are.
std::optional<Shape> cudnn_conv_strides(const Request& request, size_t input) {
  if (input != 1 || !is_channels_first_in_memory(request.inputs[0])) return std::nullopt;
  const Shape& shape = request.inputs[1].type.shape;
  if (!known(shape)) return std::nullopt;
  return shape_of(channels_last_strides(dims_of(shape)));
}
constexpr InputLayout kCudnnLayouts[] = {{"cudnn.conv", cudnn_conv_strides},
                                         {"cudnn.conv_transpose", cudnn_conv_strides}};

}  // namespace

std::span<const KernelEntry> cudnn_entries() { return kCudnnEntries; }
std::span<const InputLayout> cudnn_input_layouts() { return kCudnnLayouts; }

}  // namespace anneal::cuda
