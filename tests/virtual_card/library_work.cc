#include "anneal/tests/virtual_card/library_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "anneal/tests/virtual_card/calls.h"

namespace anneal::virtual_card {
namespace {

struct Use : LibraryMemory {
  size_t index = 0;  // in the caller's list
  uint64_t row(size_t number) const { return address + number * pitch; }
};

// Checks that the rows are there, and notes them. The host's address of the first byte.
std::byte* begin_use(Context& context, const Use& use, const std::string& call, Running& running) {
  std::byte* first = nullptr;
  for (size_t i = 0; i < use.rows; ++i) {
    const Place place = place_of(context, use.row(i), use.bytes, call);
    if (i == 0) first = place.data();
    if (use.is_read) {
      uint8_t* const end = place.written() + use.bytes;
      const uint8_t* const without = std::find(place.written(), end, uint8_t{0});
      if (without != end)
        throw ptx::Fault(ptx::Fault::kUndefined,
                         fmt::format("{} reads byte {} of row {} of its memory {}, which has no "
                                     "value",
                                     call, without - place.written(), i, use.index));
      running.touched.note(*place.allocation, place.at, use.bytes, false);
    }
    if (use.is_written) running.touched.note(*place.allocation, place.at, use.bytes, true);
  }
  return first;
}

void end_use(Context& context, const Use& use, const std::string& call) {
  if (!use.is_written) return;
  for (size_t i = 0; i < use.rows; ++i)
    std::memset(place_of(context, use.row(i), use.bytes, call).written(), 1, use.bytes);
}

// All rows of a memory are in one allocation.
std::vector<Use> uses_of(Context& context, const LibraryWork& work, const std::string& call) {
  std::vector<Use> uses;
  for (size_t i = 0; i < work.memory_count; ++i) {
    const Use use{work.memory[i], i};
    if (use.bytes == 0 || use.rows == 0)
      refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("{}: memory {} has no bytes", call, i));
    if (use.rows > 1 && use.pitch < use.bytes)
      refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("{}: rows of memory {} overlap", call, i));
    place_of(context, use.address, use.row(use.rows - 1) + use.bytes - use.address, call);
    uses.push_back(use);
  }
  return uses;
}

}  // namespace

extern "C" {

CUresult virtual_card_library_work(CUstream stream, const LibraryWork* work) {
  const std::shared_ptr<void> state(work->state, work->destroy);
  return within(work->name, [&](Context& c) {
    const std::string call = work->name;
    Work queued{.call = call,
                .run = [&c, call, state, function = work->run,
                        uses = uses_of(c, *work, call)](Running& running) {
                  std::vector<std::byte*> memory;
                  for (const Use& use : uses) memory.push_back(begin_use(c, use, call, running));
                  function(state.get(), memory.data());
                  for (const Use& use : uses) end_use(c, use, call);
                }};
    give(stream_of(c, stream), std::move(queued));
  });
}

int virtual_card_current_architecture() {
  const std::lock_guard lock(machine().mutex);
  return caller().contexts.empty() ? 0 : architecture();
}

int virtual_card_current_device() {
  const std::lock_guard lock(machine().mutex);
  return caller().contexts.empty() ? -1 : caller().contexts.back()->device;
}

}  // extern "C"

}  // namespace anneal::virtual_card
