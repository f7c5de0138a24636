#include "anneal/engine/run/memory/memory_budget.h"

#include <fmt/format.h>

#include <utility>

#include "anneal/core/fail.h"

namespace anneal {

class MemoryBudget::CountedBuffer : public Buffer {
 public:
  CountedBuffer(std::unique_ptr<Buffer> memory, std::atomic<size_t>& held)
      : memory_(std::move(memory)), held_(held) {
    held_ += memory_->size();
  }
  ~CountedBuffer() override { held_ -= memory_->size(); }
  CountedBuffer(const CountedBuffer&) = delete;
  CountedBuffer& operator=(const CountedBuffer&) = delete;

  std::byte* data() override { return memory_->data(); }
  size_t size() const override { return memory_->size(); }

 private:
  std::unique_ptr<Buffer> memory_;
  std::atomic<size_t>& held_;
};

std::unique_ptr<Buffer> MemoryBudget::allocate(Device& device, size_t bytes, bool staging) {
  require(bytes);
  return std::make_unique<CountedBuffer>(
      staging ? device.allocate_staging(bytes) : device.allocate(bytes), held_);
}

void MemoryBudget::require(size_t more) const {
  const size_t held = held_;
  if (limit_ == 0 || (held <= limit_ && more <= limit_ - held)) return;
  fail(
      ErrorCode::kLimit,
      fmt::format("{} bytes are needed and {} held already, the memory limit is {} bytes: raise it "
                  "(--max-memory, ContextOptions::max_memory) or bind smaller shapes",
                  more, held, limit_));
}

}  // namespace anneal
