// Constants that kernels pack before each launch, in memory that they share.
#pragma once
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>

#include "anneal/core/new_tensor.h"
#include "anneal/core/parallel.h"

namespace anneal {

// A region of the address space. The system provides its pages when they are first written.
class SharedPacking : public std::enable_shared_from_this<SharedPacking> {
 public:
  static std::shared_ptr<SharedPacking> make();  // null: there is no address space for it
  explicit SharedPacking(std::byte* data) : data_(data) {}
  ~SharedPacking();
  SharedPacking(const SharedPacking&) = delete;
  SharedPacking& operator=(const SharedPacking&) = delete;

  // The next `bytes` of the region, which begin at `used` and are added to it: u8, 64-byte aligned,
  // zeroed. nullopt: few bytes, or more than are left.
  std::optional<NewTensor> take(size_t bytes, size_t& used, ThreadTeam& team);
  std::mutex& mutex() { return mutex_; }  // held by the one kernel that uses the region

 private:
  std::byte* data_;
  std::mutex mutex_;
};

}  // namespace anneal
