// Memory and messages of the application. All threads may call these at once; they must not throw.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace anneal {

class Allocator {
 public:
  virtual ~Allocator() = default;
  // alignment: a power of two. Null where there is no memory: the call fails with kOutOfMemory.
  virtual void* allocate(size_t bytes, size_t alignment) = 0;
  virtual void release(void* memory, size_t bytes) = 0;  // with the bytes of allocate()
};

enum class Severity : uint8_t { kInfo, kWarning };                              // of a message
using LogSink = std::function<void(Severity severity, std::string_view text)>;  // one sentence

}  // namespace anneal
