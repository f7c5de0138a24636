#include "anneal/tests/virtual_card/ptx/access.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/tests/virtual_card/ptx/touched.h"

namespace anneal::ptx {
namespace {

std::string access_name(Access access, uint32_t bytes) {
  return fmt::format("{} of {} bytes",
                     access == Access::kLoad    ? "a load"
                     : access == Access::kStore ? "a store"
                                                : "an atomic",
                     bytes);
}

// Whether an access of `me` meets a byte that another block of the same launch has written.
bool is_race(Mark writer, Mark me, bool is_atomic) {
  if (!is_of_launch(writer, me) || mark_block(writer) == mark_block(me)) return false;
  return !is_atomic || (writer & kMarkAtomic) == 0;
}

// The access, if nothing is wrong with it; false: examine() says what is.
template <uint32_t kBytes, bool is_store>
bool pass(GlobalMemory::Allocation& of, uint64_t at, Mark me) {
  Mark* const writer = of.writer.get() + at;
  uint8_t* const written = of.written.get() + at;
  uint64_t wrong = 0;
  for (uint32_t i = 0; i < kBytes; ++i) wrong |= static_cast<uint64_t>(is_of_other(writer[i], me));
  if (is_store) {
    if (wrong != 0 || of.other_reader(at, kBytes, me) != 0) return false;
    std::fill_n(writer, kBytes, me);
    std::fill_n(written, kBytes, uint8_t{1});
    return true;
  }
  for (uint32_t i = 0; i < kBytes; ++i) wrong |= static_cast<uint64_t>(written[i] == 0);
  if (wrong != 0) return false;
  of.add_reader(at, kBytes, me);
  return true;
}
template <bool is_store>
bool pass(GlobalMemory::Allocation& of, uint64_t at, uint32_t bytes, Mark me) {
  switch (bytes) {
    case 1:
      return pass<1, is_store>(of, at, me);
    case 2:
      return pass<2, is_store>(of, at, me);
    case 4:
      return pass<4, is_store>(of, at, me);
    case 8:
      return pass<8, is_store>(of, at, me);
    case 16:
      return pass<16, is_store>(of, at, me);
    case 32:
      return pass<32, is_store>(of, at, me);
    default:
      return false;
  }
}

// Marks the byte as written by the block, beside the blocks that have written it.
void mark(Mark& writer, Mark me, Access access) {
  if (access == Access::kStore) {
    writer = me;
  } else if (access == Access::kAtomic) {
    const bool is_shared = is_of_launch(writer, me) && mark_block(writer) != mark_block(me);
    writer = kMarkAtomic | me | (is_shared ? kManyBlocks << kMarkLineBits : 0);
  }
}

std::string block_text(Mark other, const char* done) {
  if (mark_block(other) == kManyBlocks)
    return fmt::format("which several blocks of the same launch have {}", done);
  return fmt::format("which block {} of the same launch has {} at line {}", mark_block(other) - 1,
                     done, other & kMarkLine);
}

// The access byte by byte: what is wrong with it is a Fault.
std::byte* examine(Warp& warp, uint64_t address, uint32_t bytes, Access access) {
  GlobalMemory::Allocation*& found = warp.block().last;
  if (found == nullptr || address - found->address >= found->bytes)
    found = warp.block().global.find(address);
  if (found == nullptr || bytes > found->bytes - (address - found->address)) {
    const GlobalMemory::Allocation* const near = warp.block().global.before(address);
    warp.fault(Fault::kAddress,
               near == nullptr
                   ? fmt::format("{} at {:#x}, where nothing is allocated",
                                 access_name(access, bytes), address)
                   : fmt::format("{} at byte {} of an allocation of {} bytes",
                                 access_name(access, bytes), address - near->address, near->bytes));
  }
  const uint64_t at = address - found->address;
  const auto refuse = [&](Fault::Kind kind, const std::string& why) {
    warp.fault(kind, fmt::format("{} at byte {}, {}", access_name(access, bytes), at, why));
  };
  if (address % bytes != 0) refuse(Fault::kMisaligned, "which is not a multiple of it");
  const Mark me = with_line(warp.block().mark, warp.line());
  for (uint64_t byte = at; byte < at + bytes; ++byte) {
    Mark& writer = found->writer[byte];
    if (is_race(writer, me, access == Access::kAtomic))
      refuse(Fault::kUndefined, block_text(writer, "written"));
    mark(writer, me, access);
  }
  if (access == Access::kLoad)
    found->add_reader(at, bytes, me);
  else if (const Mark reader = found->other_reader(at, bytes, me))
    refuse(Fault::kUndefined, block_text(reader, "read"));
  if (Touched* const touched = warp.block().touched)
    touched->note(*found, at, bytes, access != Access::kLoad);
  uint8_t* const written = found->written.get() + at;
  if (access == Access::kStore)
    std::memset(written, 1, bytes);
  else if (std::find(written, written + bytes, 0) != written + bytes)
    refuse(Fault::kUndefined, "which has no value");
  return found->data.get() + at;
}

template <bool is_store>
std::byte* global_place(Warp& warp, uint64_t address, uint32_t bytes, uint32_t line) {
  GlobalMemory::Allocation* const of = warp.block().last;
  const uint64_t at = of == nullptr ? 0 : address - of->address;
  if (of != nullptr && at < of->bytes && bytes <= of->bytes - at && address % bytes == 0 &&
      pass<is_store>(*of, at, bytes, with_line(warp.block().mark, line))) {
    if (Touched* const touched = warp.block().touched) touched->note(*of, at, bytes, is_store);
    return of->data.get() + at;
  }
  return examine(warp, address, bytes, is_store ? Access::kStore : Access::kLoad);
}

void refuse_written(Warp& warp, uint64_t address, uint32_t bytes) {
  GlobalMemory::Allocation* const of = warp.block().last;
  const uint64_t at = address - of->address;
  for (uint64_t i = at; i < at + bytes; ++i)
    if (is_of_launch(of->writer[i], warp.block().mark))
      warp.fault(Fault::kUndefined,
                 fmt::format("a load by .nc at byte {}, which the same launch has written", at));
}

// Two lanes of one instruction that store different values at one address.
void refuse_collisions(Warp& warp, const uint64_t (&addresses)[kLanes], uint32_t bytes,
                       const std::byte (&values)[kLanes][32]) {
  uint64_t next = 0;
  bool ascends = true;
  for (uint32_t left = warp.mask(); left != 0; left &= left - 1) {
    const auto lane = static_cast<size_t>(std::countr_zero(left));
    ascends = ascends && addresses[lane] >= next;
    next = addresses[lane] + bytes;
  }
  if (ascends) return;
  // All are multiples of their bytes: they are the same, or have no common byte.
  std::array<uint8_t, kLanes> lanes = {};
  size_t count = 0;
  for (uint32_t left = warp.mask(); left != 0; left &= left - 1)
    lanes[count++] = static_cast<uint8_t>(std::countr_zero(left));
  std::stable_sort(lanes.begin(), lanes.begin() + count,
                   [&](uint8_t a, uint8_t b) { return addresses[a] < addresses[b]; });
  for (size_t i = 1; i < count; ++i) {
    const uint8_t a = lanes[i - 1], b = lanes[i];
    if (addresses[a] == addresses[b] && std::memcmp(values[a], values[b], bytes) != 0)
      warp.fault(
          Fault::kUndefined,
          fmt::format("threads {} and {} store different values at one address",
                      warp.first_thread() + std::min(a, b), warp.first_thread() + std::max(a, b)));
  }
}

// The elements' places in the registers.
template <class T>
struct Elements {
  T* at[8];
};

template <Space space, class Address, bool is_store>
void access(Warp& warp, const Instruction& instruction) {
  const uint32_t elements = instruction.parameters[0], bytes = instruction.parameters[1],
                 width = instruction.parameters[2], all = elements * bytes;
  const uint8_t flags = instruction.parameters[3];
  const Address* const bases = warp.read<Address>(instruction.at[0]);
  uint64_t addresses[kLanes];
  for (size_t i = 0; i < kLanes; ++i)
    addresses[i] = static_cast<Address>(bases[i] + static_cast<Address>(instruction.offset));
  const auto place = [&](uint32_t lane) {
    if (space == Space::kGlobal)
      return global_place<is_store>(warp, addresses[lane], all, instruction.line);
    if (space == Space::kLocal)
      return checked_local(warp, addresses[lane], all, lane,
                           is_store ? Access::kStore : Access::kLoad);
    return checked_shared(warp, addresses[lane], all, lane,
                          is_store ? Access::kStore : Access::kLoad);
  };
  if constexpr (is_store) {
    Elements<const std::byte> from;
    for (uint32_t i = 0; i < elements; ++i)
      from.at[i] = warp.read<std::byte>(instruction.at[1 + i]);
    std::byte values[kLanes][32];
    for (uint32_t left = warp.mask(); left != 0; left &= left - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(left));
      for (uint32_t i = 0; i < elements; ++i)
        std::memcpy(&values[lane][i * bytes], from.at[i] + lane * width, bytes);
      std::memcpy(place(lane), values[lane], all);
    }
    if (space == Space::kGlobal) refuse_collisions(warp, addresses, all, values);
  } else {
    Elements<std::byte> to;
    for (uint32_t i = 0; i < elements; ++i)
      to.at[i] = warp.registers<std::byte>(instruction.at[1 + i]);
    for (uint32_t left = warp.mask(); left != 0; left &= left - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(left));
      const std::byte* const memory = place(lane);
      if ((flags & kIsReadOnly) != 0) refuse_written(warp, addresses[lane], all);
      for (uint32_t i = 0; i < elements; ++i) {
        const std::byte* const from = memory + i * bytes;
        std::byte* const into = to.at[i] + lane * width;
        std::memcpy(into, from, bytes);
        if (width == bytes) continue;
        const bool is_negative =
            (flags & kIsSigned) != 0 && (from[bytes - 1] & std::byte{0x80}) != std::byte{0};
        std::memset(into + bytes, is_negative ? 0xff : 0, width - bytes);
      }
    }
  }
}

template <bool is_store>
Run access_of(Space space, bool is_wide_address) {
  if (space == Space::kGlobal) return access<Space::kGlobal, uint64_t, is_store>;
  if (space == Space::kLocal)
    return is_wide_address ? access<Space::kLocal, uint64_t, is_store>
                           : access<Space::kLocal, uint32_t, is_store>;
  return is_wide_address ? access<Space::kShared, uint64_t, is_store>
                         : access<Space::kShared, uint32_t, is_store>;
}

}  // namespace

Run load(Space space, bool is_wide_address) { return access_of<false>(space, is_wide_address); }
Run store(Space space, bool is_wide_address) { return access_of<true>(space, is_wide_address); }

std::byte* checked_global(Warp& warp, uint64_t address, uint32_t bytes, Access access) {
  if (access == Access::kAtomic) return examine(warp, address, bytes, access);
  return access == Access::kStore ? global_place<true>(warp, address, bytes, warp.line())
                                  : global_place<false>(warp, address, bytes, warp.line());
}

std::byte* checked_local(Warp& warp, uint64_t address, uint32_t bytes, uint32_t lane,
                         Access access) {
  const size_t size = warp.block().function.local_bytes;
  if (address > size || bytes > size - address)
    warp.fault(Fault::kAddress, fmt::format("{} at byte {} of {} bytes of local memory",
                                            access_name(access, bytes), address, size));
  if (address % bytes != 0)
    warp.fault(Fault::kMisaligned,
               fmt::format("{} at byte {} of local memory, which is not a multiple of it",
                           access_name(access, bytes), address));
  uint8_t* const written = warp.local_is_written(lane) + address;
  if (access == Access::kStore)
    std::fill_n(written, bytes, uint8_t{1});
  else if (std::find(written, written + bytes, 0) != written + bytes)
    warp.fault(Fault::kUndefined, fmt::format("{} at byte {} of local memory, which has no value",
                                              access_name(access, bytes), address));
  return warp.local(lane) + address;
}

std::byte* checked_shared(Warp& warp, uint64_t address, uint32_t bytes, uint32_t lane,
                          Access access) {
  SharedMemory& shared = warp.block().shared;
  if (address > shared.bytes() || bytes > shared.bytes() - address)
    warp.fault(Fault::kAddress, fmt::format("{} at byte {} of {} bytes of shared memory",
                                            access_name(access, bytes), address, shared.bytes()));
  if (address % bytes != 0)
    warp.fault(Fault::kMisaligned,
               fmt::format("{} at byte {} of shared memory, which is not a multiple of it",
                           access_name(access, bytes), address));
  const auto at = static_cast<uint32_t>(address);
  const uint32_t thread = warp.first_thread() + lane;
  if (access != Access::kStore && !shared.is_written(at, bytes))
    warp.fault(Fault::kUndefined, fmt::format("{} at byte {} of shared memory, which has no value",
                                              access_name(access, bytes), address));
  const int other = access == Access::kStore  ? shared.write(at, bytes, thread, warp.time())
                    : access == Access::kLoad ? shared.read(at, bytes, thread, warp.time())
                                              : shared.update(at, bytes, thread, warp.time());
  if (other >= 0)
    warp.fault(Fault::kUndefined,
               fmt::format("thread {} has {} at byte {} of shared memory, which thread {} uses "
                           "without a barrier between",
                           thread, access_name(access, bytes), address, other));
  return shared.data() + at;
}

}  // namespace anneal::ptx
