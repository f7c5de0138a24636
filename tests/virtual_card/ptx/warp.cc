#include "anneal/tests/virtual_card/ptx/warp.h"

#include <fmt/format.h>

#include <algorithm>

namespace anneal::ptx {
namespace {

constexpr Warp::Bytes all_bytes() {
  Warp::Bytes bytes = {};
  for (uint8_t& byte : bytes) byte = 0xff;
  return bytes;
}

uint32_t value_of(Special special, const Block& block, uint32_t thread) {
  switch (special) {
    case Special::kTidX:
      return thread % block.size.x;
    case Special::kTidY:
      return thread / block.size.x % block.size.y;
    case Special::kTidZ:
      return thread / block.size.x / block.size.y;
    case Special::kNtidX:
      return block.size.x;
    case Special::kNtidY:
      return block.size.y;
    case Special::kNtidZ:
      return block.size.z;
    case Special::kCtaidX:
      return block.index.x;
    case Special::kCtaidY:
      return block.index.y;
    case Special::kCtaidZ:
      return block.index.z;
    case Special::kNctaidX:
      return block.grid.x;
    case Special::kNctaidY:
      return block.grid.y;
    case Special::kNctaidZ:
      return block.grid.z;
    case Special::kLaneid:
      return thread % kLanes;
    case Special::kWarpid:
      return thread / kLanes;
  }
  return 0;
}

}  // namespace

Warp::Warp(Block& block, uint32_t first_thread)
    : block_(block),
      first_thread_(first_thread),
      registers_(std::make_unique<std::byte[]>(block.function.register_bytes)),
      predicates_(block.function.predicates),
      has_value_(block.function.register_bytes / kRegisterUnit),
      predicate_has_value_(block.function.predicates),
      local_(std::make_unique<std::byte[]>(block.function.local_bytes * kLanes)),
      local_is_written_(block.function.local_bytes * kLanes) {}

void Warp::begin() {
  const uint64_t threads = block_.size.count() - first_thread_;
  began_ = live_ = active_ = mask_ = threads >= kLanes ? kAllLanes : (1u << threads) - 1;
  place_ = 0;
  waiting_ = {};
  others_.clear();
  parked_.clear();
  copies_.clear();
  origins_.clear();
  bytes_.clear();
  std::ranges::fill(has_value_, 0);
  std::ranges::fill(predicate_has_value_, 0);
  std::ranges::fill(local_is_written_, 0);
  for (const auto& [special, place] : block_.function.specials) {
    auto* const to = registers<uint32_t>(place);
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      to[lane] = value_of(special, block_, first_thread_ + lane);
  }
  // The one behind the function's own is constant.
  if (block_.function.predicate_names.size() < predicates_.size())
    set_predicate(static_cast<Place>(predicates_.size()) - 1, 0);
}

Warp::State Warp::run() {
  const Function& function = block_.function;
  while (true) {
    if (active_ == 0 || (!others_.empty() && function.begins_block[place_] != 0)) {
      meet();
      if (active_ == 0) {
        if (!parked_.empty()) {
          place_ = parked_.front().place + 1;
          fault(Fault::kUndefined,
                fmt::format("lanes {:08x} wait here for others of {:08x} that never come",
                            parked_.front().lanes, live_));
        }
        if (waiting_.lanes == 0) return State::kDone;
        if (waiting_.lanes != began_)
          fault(Fault::kUndefined, "some threads wait at a barrier that others of their warp miss");
        return State::kAtBarrier;
      }
    }
    const Instruction& instruction = function.instructions[place_];
    if (++block_.steps > block_.most_steps)
      fault(Fault::kEndless, fmt::format("a block has run {} instructions of a warp without an end",
                                         block_.most_steps));
    mask_ = active_;
    ++place_;
    if (instruction.guard != Instruction::kNoGuard) {
      const uint32_t lanes = predicate(instruction.guard);
      mask_ &= instruction.is_guard_negated ? ~lanes : lanes;
    }
    if (mask_ == 0) continue;
    if (instruction.is_lanewise) {
      uint32_t all = kAllLanes;
      for (size_t i = instruction.results; i < instruction.operands; ++i)
        all &= lanes_with_value(instruction, i);
      without_value_ = mask_ & ~all;
      if (without_value_ != 0)
        run_without_values(instruction);
      else
        instruction.run(*this, instruction);
      continue;
    }
    instruction.run(*this, instruction);
    if (polls_) {
      polls_ = false;
      if (!give_way()) return State::kPolls;
    }
  }
}

// To other lanes of the warp; false: there are none.
bool Warp::give_way() {
  if (others_.empty()) return false;
  const LaneGroup here{place_, active_};
  active_ = 0;
  meet();
  others_.push_back(here);
  return true;
}

// Goes on with the lanes that are at the lowest place.
void Warp::meet() {
  if (active_ != 0) others_.push_back({place_, active_});
  active_ = 0;
  if (others_.empty()) return;
  const auto first = std::ranges::min_element(others_, {}, &LaneGroup::place);
  place_ = first->place;
  std::erase_if(others_, [&](const LaneGroup& group) {
    if (group.place != place_) return false;
    active_ |= group.lanes;
    return true;
  });
}

void Warp::branch(uint32_t target) {
  const uint32_t left = active_ & ~mask_;
  if (left == 0) {
    place_ = target;
    return;
  }
  others_.push_back({target, mask_});
  active_ = left;
  meet();
}

void Warp::end_lanes() {
  for (const AsyncCopy& copy : copies_)
    if ((mask_ >> copy.lane & 1) != 0)
      fault(Fault::kUndefined,
            fmt::format("a thread ends while its cp.async of line {} is under way", copy.line));
  live_ &= ~mask_;
  active_ &= ~mask_;
}

void Warp::wait_at_barrier() {
  if (waiting_.lanes != 0 && waiting_.place != place_)
    fault(Fault::kUndefined, "lanes of a warp wait at different barriers");
  waiting_ = {place_, waiting_.lanes | mask_};
  active_ &= ~mask_;
}

void Warp::pass_barrier() {
  place_ = waiting_.place;
  active_ = waiting_.lanes;
  waiting_ = {};
}

bool Warp::has_met(uint32_t lanes) {
  std::erase_if(parked_, [&](const LaneGroup& group) {
    if (group.place != place_ - 1) return false;
    active_ |= group.lanes;
    mask_ |= group.lanes;
    return true;
  });
  if ((lanes & live_ & ~mask_) == 0) return true;
  parked_.push_back({place_ - 1, mask_});
  active_ &= ~mask_;
  return false;
}

void Warp::begin_copy(AsyncCopy copy) {
  block_.shared.forget(copy.to, copy.bytes);
  copy.group = groups_[copy.lane];
  copies_.push_back(copy);
}

void Warp::commit_copies() {
  for (uint32_t left = mask_; left != 0; left &= left - 1)
    ++groups_[static_cast<size_t>(std::countr_zero(left))];
}

// As late as the program allows: what is read or overwritten too early shows.
void Warp::finish_copies(uint32_t newest_groups_left) {
  std::erase_if(copies_, [&](const AsyncCopy& copy) {
    if ((mask_ >> copy.lane & 1) == 0 || copy.group + newest_groups_left >= groups_[copy.lane])
      return false;
    arrive(copy);
    return true;
  });
}

std::vector<AsyncCopy> Warp::take_copies(uint32_t lane) {
  std::vector<AsyncCopy> taken;
  std::erase_if(copies_, [&](const AsyncCopy& copy) {
    if (copy.lane != lane) return false;
    taken.push_back(copy);
    return true;
  });
  return taken;
}

void Warp::arrive(const AsyncCopy& copy) {
  const uint32_t thread = first_thread_ + copy.lane;
  const int other = block_.shared.write(copy.to, copy.bytes, thread, time());
  if (other >= 0)
    fault(Fault::kUndefined, fmt::format("cp.async of line {} by thread {} writes shared memory "
                                         "that thread {} uses without a barrier between",
                                         copy.line, thread, other));
  std::byte* const to = block_.shared.data() + copy.to;
  std::memset(to, 0, copy.bytes);
  if (copy.read == 0) return;
  const GlobalMemory::Allocation* const from = block_.global.find(copy.from);
  if (from == nullptr) fault(Fault::kAddress, "cp.async reads memory that was freed");
  std::memcpy(to, from->data.get() + (copy.from - from->address), copy.read);
}

// Compilers make code that computes with registers without a value where the result does not
// matter: a selection of one that is not used, or "true or a comparison". So what has no value is
// followed to where it is used: an address, a stored value, a guard, an exchange.
void Warp::run_without_values(const Instruction& instruction) {
  allows_no_value_ = true;
  result_bytes_.reset();
  instruction.run(*this, instruction);
  allows_no_value_ = false;
  if (without_value_ == 0) return;
  Origin origin;
  for (size_t i = instruction.results; i < instruction.operands; ++i) {
    if ((without_value_ & ~lanes_with_value(instruction, i)) == 0) continue;
    const bool is_predicate = (instruction.predicates >> i & 1) != 0;
    const auto known = origins_.find({is_predicate, instruction.at[i]});
    origin = known != origins_.end() ? known->second
                                     : Origin{instruction.at[i], is_predicate, place_ - 1};
    break;
  }
  for (size_t i = 0; i < instruction.results; ++i) {
    const bool is_predicate = (instruction.predicates >> i & 1) != 0;
    const Place place = instruction.at[i];
    (is_predicate ? predicate_has_value_[place] : has_value_[place / kRegisterUnit]) &=
        ~without_value_;
    origins_[{is_predicate, place}] = origin;
    if (is_predicate) continue;
    if (!result_bytes_) {
      bytes_.erase(place);
      continue;
    }
    Bytes& bytes = bytes_.try_emplace(place, all_bytes()).first->second;
    for (uint32_t left = mask_; left != 0; left &= left - 1) {
      const auto lane = static_cast<size_t>(std::countr_zero(left));
      bytes[lane] = (*result_bytes_)[lane];
    }
  }
}

Warp::Bytes Warp::bytes_without_value(const Instruction& instruction, size_t i) const {
  const uint32_t lanes = ~lanes_with_value(instruction, i);
  const auto known = bytes_.find(instruction.at[i]);
  Bytes bytes = {};
  for (uint32_t lane = 0; lane < kLanes; ++lane)
    if ((lanes >> lane & 1) != 0) bytes[lane] = known == bytes_.end() ? 0xff : known->second[lane];
  return bytes;
}

void Warp::set_bytes_without_value(const Bytes& bytes) {
  uint32_t lanes = 0;
  for (uint32_t lane = 0; lane < kLanes; ++lane) lanes |= uint32_t{bytes[lane] != 0} << lane;
  set_without_value(lanes);
  result_bytes_ = bytes;
}

void Warp::refuse_register(Place place) const {
  if (!allows_no_value_) refuse_value(place, false, mask_ & ~has_value_[place / kRegisterUnit]);
}
void Warp::refuse_predicate(Place place) const {
  if (!allows_no_value_) refuse_value(place, true, mask_ & ~predicate_has_value_[place]);
}

void Warp::refuse_value(Place place, bool is_predicate, uint32_t lanes) const {
  std::string what = fmt::format("{} has no value in thread {}", name_of(place, is_predicate),
                                 first_thread_ + static_cast<uint32_t>(std::countr_zero(lanes)));
  if (const auto found = origins_.find({is_predicate, place}); found != origins_.end()) {
    const Origin& origin = found->second;
    const Instruction& reader = block_.function.instructions[origin.instruction];
    what += fmt::format(", since {} has none at line {} (PTX line {})",
                        name_of(origin.place, origin.is_predicate), reader.line, reader.text_line);
  }
  fault(Fault::kUndefined, what);
}

std::string Warp::name_of(Place place, bool is_predicate) const {
  const auto& names =
      is_predicate ? block_.function.predicate_names : block_.function.register_names;
  const size_t number = is_predicate ? place : place / kRegisterUnit;
  return fmt::format("{} {}", is_predicate ? "predicate" : "register",
                     number < names.size() ? names[number] : "?");
}

void Warp::fault(Fault::Kind kind, const std::string& what) const {
  const uint32_t place = place_ == 0 ? 0 : place_ - 1;
  const Instruction& instruction = block_.function.instructions[place];
  throw Fault(kind, fmt::format("{}, line {} (PTX line {}, {}), block [{},{},{}], warp {}: {}",
                                block_.function.name, instruction.line, instruction.text_line,
                                block_.function.opcodes[place], block_.index.x, block_.index.y,
                                block_.index.z, first_thread_ / kLanes, what));
}

}  // namespace anneal::ptx
