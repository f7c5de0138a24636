#include "anneal/kernels/cuda/emulated/shared.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace anneal::cuda {

void EmulatedShared::begin_launch(uint32_t dynamic_bytes, bool checks) {
  checks_ = checks;
  count_ = 0;
  used_ = 0;
  dynamic_bytes_ = dynamic_bytes;
}

void EmulatedShared::begin_block(uint32_t block_syncs) {
  first_sync_ = block_syncs;
  for (int i = 0; i < count_; ++i)
    std::memset(reinterpret_cast<void*>(arrays_[i].begin), 0xff, arrays_[i].bytes);
}

Result<emulator::SharedArray*> EmulatedShared::declare(const void* key, uint64_t bytes,
                                                       uint32_t element, const char* name) {
  const bool dynamic = key == nullptr;
  const int granule = std::countr_zero(element);
  if (dynamic) bytes = dynamic_bytes_;
  for (int i = 0; i < count_; ++i) {
    Array& known = arrays_[i];
    if (known.key != key) continue;
    if (known.bytes != bytes)
      return anneal::refuse(
          fmt::format("declares {} with {} and with {} bytes", name, known.bytes, bytes));
    if (granule < known.granule) {  // another view of dynamic memory
      known.granule = granule;
      known.cells.assign((bytes >> granule) + 1, Cell{});
    }
    return &known;
  }
  uint64_t fixed = dynamic ? 0 : bytes;
  for (int i = 0; i < count_; ++i)
    if (arrays_[i].key != nullptr) fixed += arrays_[i].bytes;
  constexpr uint64_t kAlignment = 16;
  const uint64_t offset = (used_ + kAlignment - 1) / kAlignment * kAlignment;
  if (fixed > kMostStaticBytes || fixed + dynamic_bytes_ > kMostBytes ||
      offset + bytes > memory_.size() || count_ == kMostArrays)
    return anneal::refuse(fmt::format(
        "declares {} bytes of shared memory and is given {} more: {} may be declared, {} used",
        fixed, dynamic_bytes_, kMostStaticBytes, kMostBytes));
  Array& array = arrays_[count_++];
  // Dynamic memory is aligned to 16 bytes, as on a card; its size may be no multiple of anything.
  array.begin = reinterpret_cast<uint64_t>(memory_.data()) + offset;
  array.begin = (array.begin + kAlignment - 1) / kAlignment * kAlignment;
  array.bytes = bytes;
  array.name = name;
  array.key = key;
  array.granule = granule;
  array.cells.assign((bytes >> granule) + 1, Cell{});
  used_ = offset + bytes;
  std::memset(reinterpret_cast<void*>(array.begin), 0xff, bytes);
  return &array;
}

EmulatedShared::Array& EmulatedShared::of(const emulator::SharedArray& array) {
  return const_cast<Array&>(static_cast<const Array&>(array));
}

std::string EmulatedShared::out_of_bounds(const Array& array, uint64_t at, uint32_t bytes) const {
  const auto from = static_cast<int64_t>(at - array.begin);
  const auto size = static_cast<int64_t>(array.bytes);
  if (from < 0 || from + bytes > size)
    return fmt::format("{} bytes at byte {} of shared {}, which has {}", bytes, from, array.name,
                       size);
  if ((at & (bytes - 1)) != 0)
    return fmt::format("{} bytes at byte {} of shared {}, which is not aligned", bytes, from,
                       array.name);
  return "";
}

bool EmulatedShared::read(Cell& cell, int line, const Moment& now) const {
  if (cell.under_way || cell.written.block_syncs < first_sync_ || !now.follows(cell.written))
    return false;
  if (cell.read.block_syncs != now.block_syncs) {
    cell.many = cell.many_warps = false;
  } else if (cell.read.thread / 32 != now.thread / 32) {
    cell.many_warps = true;
  } else if (cell.read.warp_syncs != now.warp_syncs) {
    cell.many = false;
  } else if (cell.read.thread != now.thread) {
    cell.many = true;
  }
  cell.read = now;
  cell.read_line = static_cast<uint16_t>(line);
  return true;
}

bool EmulatedShared::write(Cell& cell, bool atomic, int line, const Moment& now) const {
  if (cell.under_way) return false;
  if (cell.written.block_syncs < first_sync_) {
    if (atomic) return false;
  } else if (!now.follows(cell.written) && !(atomic && cell.atomic)) {
    return false;
  }
  if (cell.read.block_syncs == now.block_syncs) {
    const bool others = cell.many && cell.read.warp_syncs == now.warp_syncs;
    if (cell.many_warps || others || !now.follows(cell.read)) return false;
  }
  cell.written = now;
  cell.written_line = static_cast<uint16_t>(line);
  cell.atomic = atomic;
  return true;
}

std::string EmulatedShared::why_not(const Cell& cell, emulator::Access access,
                                    const Moment& now) const {
  if (cell.under_way)
    return fmt::format("thread {} began a copy to it in line {} and has not waited for it",
                       cell.written.thread, cell.written_line);
  const bool written = cell.written.block_syncs >= first_sync_;
  const bool both_atomic = access == emulator::Access::kAtomic && cell.atomic;
  if (written && !now.follows(cell.written) && !both_atomic)
    return fmt::format("thread {} wrote it in line {} with no barrier in between",
                       cell.written.thread, cell.written_line);
  if (access != emulator::Access::kWrite && !written) return "no thread has written it";
  return fmt::format("thread {} read it in line {} with no barrier in between", cell.read.thread,
                     cell.read_line);
}

std::string EmulatedShared::access(const emulator::SharedArray& given, uint64_t at, uint32_t bytes,
                                   emulator::Access access, int line, const Moment& now) {
  Array& array = of(given);
  const char* const verb = access == emulator::Access::kRead    ? "reads"
                           : access == emulator::Access::kWrite ? "writes"
                                                                : "accesses";
  if (const std::string wrong = out_of_bounds(array, at, bytes); !wrong.empty())
    return fmt::format("{} {}", verb, wrong);
  if (!checks_) return "";
  const uint64_t from = at - array.begin;
  const uint64_t last = (from + bytes - 1) >> array.granule;
  for (uint64_t i = from >> array.granule; i <= last; ++i) {
    Cell& cell = array.cells[i];
    const bool reads = access == emulator::Access::kRead;
    if (reads ? read(cell, line, now) : write(cell, access == emulator::Access::kAtomic, line, now))
      continue;
    return fmt::format("{} {} bytes at byte {} of shared {}, but {}", verb, bytes, from, array.name,
                       why_not(cell, access, now));
  }
  return "";
}

std::string EmulatedShared::begin_copy(const emulator::SharedArray& given, uint64_t at,
                                       uint32_t bytes, int line, const Moment& now) {
  std::string wrong = access(given, at, bytes, emulator::Access::kWrite, line, now);
  if (!wrong.empty()) return wrong;
  std::memset(reinterpret_cast<void*>(at), 0xff, bytes);
  if (!checks_) return "";
  Array& array = of(given);
  const uint64_t from = at - array.begin;
  for (uint64_t i = from >> array.granule; i <= (from + bytes - 1) >> array.granule; ++i)
    array.cells[i].under_way = true;
  return "";
}

void EmulatedShared::end_copy(const emulator::SharedArray& given, uint64_t at, uint32_t bytes,
                              int line, const Moment& now) {
  if (!checks_) return;
  Array& array = of(given);
  const uint64_t from = at - array.begin;
  for (uint64_t i = from >> array.granule; i <= (from + bytes - 1) >> array.granule; ++i) {
    Cell& cell = array.cells[i];
    cell.under_way = false;
    cell.written = now;
    cell.written_line = static_cast<uint16_t>(line);
    cell.atomic = false;
  }
}

}  // namespace anneal::cuda
