// Memory of the GPU, by the functions of NVIDIA's driver, and the speed of its copies. The driver
// is opened at run time, so the program also runs where there is none.
#pragma once
#include <anneal/anneal.h>

#include <cstddef>
#include <memory>

struct GpuDriver;  // functions of libcuda.so.1

class GpuMemory {
 public:
  // The primary context of GPU 0, which Anneal uses, too. Fails without a driver or a GPU.
  GpuMemory();
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  // A buffer, freed with its owner. `from`: a view of host memory, whose contents it gets.
  using Buffer = std::shared_ptr<std::byte>;
  Buffer allocate(size_t bytes);
  Buffer copy_of(const anneal::ConstTensorView& from);
  // Copies bytes to any place from any place, and waits.
  void copy(std::byte* to, const std::byte* from, size_t bytes);
  // A view of a buffer: as `like`, which is in host memory, but for the place.
  static anneal::TensorView view(const Buffer& buffer, const anneal::TensorView& like);

  // Bytes per second: of copies within the GPU's memory, where each byte is read and written; and
  // of copies from and to page-locked host memory.
  struct Speeds {
    double memory, to_gpu, from_gpu;
  };
  // Each is copied five times, or for `seconds`.
  Speeds measure(size_t bytes, double seconds);

 private:
  std::shared_ptr<GpuDriver> driver_;
};
