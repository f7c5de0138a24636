// The files of kernels/cuda/device, as text inside the libraries (cmake/embed_text.cmake).
#pragma once
#include <span>
#include <string_view>

namespace anneal::cuda {

struct EmbeddedText {
  std::string_view name, text;
};

// What kernels consist of, for NVRTC and the host's compiler. In libengine.
std::span<const EmbeddedText> device_texts();
// What the host's compiler needs before it. In libanneal_emulated.
std::span<const EmbeddedText> host_texts();

}  // namespace anneal::cuda
