// What a warp does as a whole: exchanges between lanes, votes, copies to shared memory, barriers;
// and moves.
#include <fmt/format.h>

#include <algorithm>

#include "anneal/tests/virtual_card/ptx/access.h"
#include "anneal/tests/virtual_card/ptx/entries.h"
#include "anneal/tests/virtual_card/ptx/lanes.h"

namespace anneal::ptx {
namespace {

template <class T>
struct Same {
  T operator()(T a) const { return a; }
};

// Which bytes of a result of two registers have no value.
void join_bytes(Warp& warp, const Instruction& instruction, size_t bytes_of_each) {
  if (warp.without_value() == 0) return;
  const uint32_t has_low = warp.lanes_with_value(instruction, 1),
                 has_high = warp.lanes_with_value(instruction, 2);
  const uint32_t each = (1u << bytes_of_each) - 1;
  Warp::Bytes bytes = {};
  for (int i = 0; i < kLanes; ++i)
    bytes[i] = static_cast<uint8_t>((has_low >> i & 1 ? 0 : each) |
                                    (has_high >> i & 1 ? 0 : each << bytes_of_each));
  warp.set_bytes_without_value(bytes);
}
void join_halves(Warp& warp, const Instruction& instruction) {
  const auto* const low = warp.read<uint16_t>(instruction.at[1]);
  const auto* const high = warp.read<uint16_t>(instruction.at[2]);
  uint32_t result[kLanes];
  for (int i = 0; i < kLanes; ++i) result[i] = uint32_t{high[i]} << 16 | low[i];
  warp.write(instruction.at[0], result);
  join_bytes(warp, instruction, sizeof(uint16_t));
}
void split_halves(Warp& warp, const Instruction& instruction) {
  const auto* const whole = warp.read<uint32_t>(instruction.at[2]);
  uint16_t low[kLanes], high[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    low[i] = static_cast<uint16_t>(whole[i]);
    high[i] = static_cast<uint16_t>(whole[i] >> 16);
  }
  warp.write(instruction.at[0], low);
  warp.write(instruction.at[1], high);
}
void join_words(Warp& warp, const Instruction& instruction) {
  const auto* const low = warp.read<uint32_t>(instruction.at[1]);
  const auto* const high = warp.read<uint32_t>(instruction.at[2]);
  uint64_t result[kLanes];
  for (int i = 0; i < kLanes; ++i) result[i] = uint64_t{high[i]} << 32 | low[i];
  warp.write(instruction.at[0], result);
  join_bytes(warp, instruction, sizeof(uint32_t));
}
void split_words(Warp& warp, const Instruction& instruction) {
  const auto* const whole = warp.read<uint64_t>(instruction.at[2]);
  uint32_t low[kLanes], high[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    low[i] = static_cast<uint32_t>(whole[i]);
    high[i] = static_cast<uint32_t>(whole[i] >> 32);
  }
  warp.write(instruction.at[0], low);
  warp.write(instruction.at[1], high);
}

enum class Exchange : uint8_t { kUp, kDown, kButterfly, kIndex };
// "shfl.sync.bfly.b32 d|p, a, b, c, membermask"; p: whether the other lane is in range.
template <Exchange exchange>
void shuffle(Warp& warp, const Instruction& instruction) {
  const auto* const a = warp.read<uint32_t>(instruction.at[2]);
  const auto* const b = warp.read<uint32_t>(instruction.at[3]);
  const auto* const c = warp.read<uint32_t>(instruction.at[4]);
  const auto* const members = warp.read<uint32_t>(instruction.at[5]);
  if (!warp.has_met(members[std::countr_zero(warp.mask())])) return;
  uint32_t result[kLanes] = {}, in_range = 0;
  for (uint32_t left = warp.mask(); left != 0; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(left));
    const uint32_t by = b[lane] & 0x1f, clamp = c[lane] & 0x1f, segment = c[lane] >> 8 & 0x1f;
    const uint32_t most = (lane & segment) | (clamp & ~segment);
    const uint32_t least = lane & segment;
    int64_t other = lane;
    bool is_in_range = false;
    switch (exchange) {
      case Exchange::kUp:
        other = int64_t{lane} - by;
        is_in_range = other >= most;
        break;
      case Exchange::kDown:
        other = int64_t{lane} + by;
        is_in_range = other <= most;
        break;
      case Exchange::kButterfly:
        other = lane ^ by;
        is_in_range = other <= most;
        break;
      case Exchange::kIndex:
        other = least | (by & ~segment);
        is_in_range = other <= most;
        break;
    }
    if (!is_in_range) other = lane;
    if ((members[lane] & warp.mask() & 1u << other) == 0)
      warp.fault(Fault::kUndefined,
                 fmt::format("lane {} reads of lane {}, which is not here", lane, other));
    result[lane] = a[other];
    in_range |= uint32_t{is_in_range} << lane;
  }
  warp.write(instruction.at[0], result);
  warp.set_predicate(instruction.at[1], in_range);
}

enum class Vote : uint8_t { kAll, kAny, kUniform, kBallot };
// "vote.sync.all.pred p, a, membermask": over the members that are here. Every lane of the mask
// must execute it, unless it has ended.
template <Vote vote>
void take_vote(Warp& warp, const Instruction& instruction) {
  const auto* const all_members = warp.read<uint32_t>(instruction.at[2]);
  const auto caller = static_cast<uint32_t>(std::countr_zero(warp.mask()));
  const uint32_t members = all_members[caller];
  if (!warp.has_met(members)) return;
  for (uint32_t left = warp.mask(); left != 0; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(left));
    if (all_members[lane] != members || (members >> lane & 1) == 0)
      warp.fault(Fault::kUndefined,
                 fmt::format("lane {} votes with the mask {:08x}, lane {} with {:08x}", lane,
                             all_members[lane], caller, members));
  }
  const uint32_t voters = warp.mask();
  const uint32_t yes = voters & (warp.predicate(instruction.at[1]) ^
                                 (instruction.parameters[0] != 0 ? kAllLanes : 0));
  if (vote == Vote::kBallot) {
    uint32_t result[kLanes];
    std::fill_n(result, kLanes, yes);
    warp.write(instruction.at[0], result);
    return;
  }
  const bool is_yes = vote == Vote::kAny   ? yes != 0
                      : vote == Vote::kAll ? yes == voters
                                           : yes == voters || yes == 0;
  warp.set_predicate(instruction.at[0], is_yes ? kAllLanes : 0);
}

void active_lanes(Warp& warp, const Instruction& instruction) {
  uint32_t result[kLanes];
  std::fill_n(result, kLanes, warp.mask());
  warp.write(instruction.at[0], result);
}

// Fences order what barriers and atomic operations order here anyway.
void fence(Warp&, const Instruction&) {}

void synchronize_warp(Warp& warp, const Instruction& instruction) {
  const auto* const members = warp.read<uint32_t>(instruction.at[0]);
  if (warp.has_met(members[std::countr_zero(warp.mask())])) warp.synchronize();
}

void wait_at_barrier(Warp& warp, const Instruction& instruction) {
  if (warp.read<uint32_t>(instruction.at[0])[0] != 0)
    warp.fault(Fault::kUndefined, "barriers other than 0 are not implemented");
  warp.wait_at_barrier();
}

void end(Warp& warp, const Instruction&) { warp.end_lanes(); }

// "[to], [from], bytes, read": the bytes that are not read become 0.
void copy_async(Warp& warp, const Instruction& instruction) {
  const auto* const to = warp.read<uint32_t>(instruction.at[0]);
  const auto* const from = warp.read<uint64_t>(instruction.at[1]);
  const auto* const bytes = warp.read<uint32_t>(instruction.at[2]);
  const auto* const read = warp.read<uint32_t>(instruction.at[3]);
  for (uint32_t left = warp.mask(); left != 0; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(left));
    AsyncCopy copy{from[lane],
                   to[lane],
                   bytes[lane],
                   std::min(read[lane], bytes[lane]),
                   static_cast<uint8_t>(lane),
                   0,
                   instruction.line};
    const bool is_allowed = copy.bytes == 16 || (instruction.parameters[0] == 0 &&
                                                 (copy.bytes == 4 || copy.bytes == 8));
    if (!is_allowed) warp.fault(Fault::kUndefined, fmt::format("cp.async of {} bytes", copy.bytes));
    checked_shared(warp, copy.to, copy.bytes, lane, Access::kStore);
    if (copy.from % copy.bytes != 0)
      warp.fault(Fault::kMisaligned,
                 fmt::format("cp.async of {} bytes from {:#x}", copy.bytes, copy.from));
    // A source that is read in part is aligned as a whole, checked above.
    for (uint32_t at = 0; at < copy.read;) {
      const uint32_t part = std::bit_floor(copy.read - at);
      checked_global(warp, copy.from + at, part, Access::kLoad);
      at += part;
    }
    warp.begin_copy(copy);
  }
}
void commit_copies(Warp& warp, const Instruction&) { warp.commit_copies(); }
void wait_for_copies(Warp& warp, const Instruction& instruction) {
  warp.finish_copies(warp.read<uint32_t>(instruction.at[0])[0]);
}
void wait_for_all_copies(Warp& warp, const Instruction&) {
  warp.commit_copies();
  warp.finish_copies(0);
}

constexpr Entry kMoves[] = {
    {"mov.b16", unary<uint16_t, uint16_t, Same<uint16_t>>, "h=h"},
    {"mov.u16", unary<uint16_t, uint16_t, Same<uint16_t>>, "h=h"},
    {"mov.b32", unary<uint32_t, uint32_t, Same<uint32_t>>, "w=w"},
    {"mov.u32", unary<uint32_t, uint32_t, Same<uint32_t>>, "w=w"},
    {"mov.s32", unary<uint32_t, uint32_t, Same<uint32_t>>, "w=w"},
    {"mov.f32", unary<uint32_t, uint32_t, Same<uint32_t>>, "w=w"},
    {"mov.b64", unary<uint64_t, uint64_t, Same<uint64_t>>, "d=d"},
    {"mov.u64", unary<uint64_t, uint64_t, Same<uint64_t>>, "d=d"},
    {"mov.f64", unary<uint64_t, uint64_t, Same<uint64_t>>, "d=d"},
    {"mov.b32", join_halves, "w=2h"},
    {"mov.b32", split_halves, "2h=w"},
    {"mov.b64", join_words, "d=2w"},
    {"mov.b64", split_words, "2w=d"},
    // Addresses of global memory are generic ones. Local and shared ones are used as such.
    {"cvta.to.shared.u64", unary<uint64_t, uint64_t, Same<uint64_t>>, "d=d"},
    {"cvta.shared.u64", unary<uint64_t, uint64_t, Same<uint64_t>>, "d=d"},
    {"cvta.to.local.u64", unary<uint64_t, uint64_t, Same<uint64_t>>, "d=d"},
    {"cvta.local.u64", unary<uint64_t, uint64_t, Same<uint64_t>>, "d=d"},
    {"cvta.to.global.u64", unary<uint64_t, uint64_t, Same<uint64_t>>, "d=d"},
};

constexpr Entry kEntries[] = {
    {"shfl.sync.up.b32", shuffle<Exchange::kUp>, "wp=wwww"},
    {"shfl.sync.down.b32", shuffle<Exchange::kDown>, "wp=wwww"},
    {"shfl.sync.bfly.b32", shuffle<Exchange::kButterfly>, "wp=wwww"},
    {"shfl.sync.idx.b32", shuffle<Exchange::kIndex>, "wp=wwww"},
    {"vote.sync.all.pred", take_vote<Vote::kAll>, "p=cw"},
    {"vote.sync.any.pred", take_vote<Vote::kAny>, "p=cw"},
    {"vote.sync.uni.pred", take_vote<Vote::kUniform>, "p=cw"},
    {"vote.sync.ballot.b32", take_vote<Vote::kBallot>, "w=cw"},
    {"activemask.b32", active_lanes, "w="},
    {"membar.cta", fence, "="},
    {"membar.gl", fence, "="},
    {"membar.sys", fence, "="},
    {"fence.acq_rel.cta", fence, "="},
    {"fence.acq_rel.gpu", fence, "="},
    {"fence.acq_rel.sys", fence, "="},
    {"fence.sc.cta", fence, "="},
    {"fence.sc.gpu", fence, "="},
    {"fence.sc.sys", fence, "="},
    {"fence.mbarrier_init.release.cluster", fence, "="},
    {"bar.warp.sync", synchronize_warp, "=w"},
    {"bar.sync", wait_at_barrier, "=w"},
    {"barrier.sync", wait_at_barrier, "=w"},
    {"ret", end, "="},
    {"cp.async.ca.shared.global", copy_async, "=sdww"},
    {"cp.async.cg.shared.global", copy_async, "=Sdww"},
    {"cp.async.commit_group", commit_copies, "="},
    {"cp.async.wait_group", wait_for_copies, "=w"},
    {"cp.async.wait_all", wait_for_all_copies, "="},
};

}  // namespace

std::span<const Entry> move_entries() { return kMoves; }
std::span<const Entry> warp_entries() { return kEntries; }

}  // namespace anneal::ptx
