// Memory of a GPU that the application owns, by the driver's functions. A program that links CUDA
// calls cudaMalloc() and cudaMemcpy() instead.
#pragma once
#include <anneal/core/tensor_view.h>

#include <cstddef>
#include <span>

class GpuMemory {
 public:
  // REQUIRES: an engine on the GPU lives as long as this, since it keeps the GPU's context.
  // Throws std::runtime_error without the driver, without the GPU, or if the memory is short.
  GpuMemory(int device, size_t bytes);
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  void write(std::span<const std::byte> bytes) const;  // at its beginning
  void read(std::span<std::byte> bytes) const;         // from its beginning
  // A dense row-major f32 tensor at its beginning.
  anneal::TensorView view(const anneal::Dims& dims) const;

 private:
  int device_;
  std::byte* address_ = nullptr;  // of the GPU
};
