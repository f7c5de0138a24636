// A GPU as a Device: a real one, the emulated one, or a description to build for.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "anneal/core/device.h"
#include "anneal/core/tensor.h"
#include "anneal/kernels/cuda/code/code.h"
#include "anneal/kernels/cuda/cost/device_spec.h"

namespace anneal::cuda {

// "sm_90": to build for, on any machine; memory and streams fail. "cuda", "cuda:1": a card.
// "emulated": the host, which runs the plans of every card; "emulated:counting" also counts what
// functions do (take_counts() of backend.h), and runs the same plans. Fails with kInvalidArgument
// if it is none of these, with kDevice in one sentence if this machine has no such device.
std::unique_ptr<Device> open_device(std::string_view target);

struct Geometry {
  std::array<uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};
  uint32_t shared_bytes = 0;  // dynamic
};

// The arguments of one launch, in the order of the function's parameters.
class Arguments {
 public:
  // A tensor's data, for In<T> and Out<T>.
  void add(const TensorView& view) { add(view.data); }
  template <class T>
  void add(T value) {  // REQUIRES: fewer than kMost before it
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t));
    __builtin_memcpy(&values_[count_], &value, sizeof(T));
    ++count_;
  }
  static constexpr size_t kMost = 120;
  size_t count() const { return count_; }
  void* const* pointers();  // one to each value

 private:
  std::array<uint64_t, kMost> values_;
  std::array<void*, kMost> pointers_;
  size_t count_ = 0;
};

// For devices of this backend only. A grid without blocks launches nothing.
const DeviceSpec& spec_of(const Device& device);
Code& code_of(Device& device);
void launch(DeviceStream& stream, const Function& function, const Geometry& geometry,
            Arguments& arguments);

}  // namespace anneal::cuda
