#include "anneal/kernels/cuda/emulated/block.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <map>
#include <new>

#include "anneal/kernels/cuda/code/program_lines.h"
#include "anneal/kernels/cuda/emulated/calls.h"

namespace anneal::cuda {
namespace {

emulator::Index3 index_of(uint64_t number, const emulator::Index3& size) {
  if (number < size.x) return {static_cast<unsigned>(number), 0, 0};
  const uint64_t plane = uint64_t{size.x} * size.y;
  return {static_cast<unsigned>(number % size.x), static_cast<unsigned>(number % plane / size.x),
          static_cast<unsigned>(number / plane)};
}

std::string index_text(const emulator::Index3& index) {
  return fmt::format("({}, {}, {})", index.x, index.y, index.z);
}

bool same(const emulator::Site& a, const emulator::Site& b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

}  // namespace

std::optional<EmulatedFault> BlockRunner::run(const EmulatedLaunch& launch,
                                              std::vector<FunctionCounts>& counts) {
  launch_ = &launch;
  fault_.reset();
  const emulator::Entry& entry = *launch.function->entry;
  operands_.clear();
  for (int i = 0; i < entry.parameters; ++i) {
    const uint64_t given = launch.parameters[static_cast<size_t>(i)];
    const unsigned element = entry.elements[i];
    emulator::Operand operand{given, kUnbound, 0, i};
    const auto* allocation = element == 0 ? nullptr : memory_.find(given);
    if (allocation != nullptr && (given - allocation->begin) % element == 0)
      operand = {reinterpret_cast<uint64_t>(EmulatedMemory::host(given)),
                 reinterpret_cast<uint64_t>(EmulatedMemory::host(allocation->open_begin)),
                 allocation->open_bytes / element * element, i};
    operands_.push_back(operand);
  }
  shared_.begin_launch(launch.shared_bytes, entry.checks_shared);
  threads_ = launch.block.x * launch.block.y * launch.block.z;
  const uint64_t blocks = uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  counts_ = entry.counts;
  if (counts_) counter_.begin_launch(threads_, blocks);
  for (uint64_t i = 0; i < blocks && !fault_; ++i) {
    block_ = index_of(reversed_ ? blocks - 1 - i : i, launch.grid);
    run_block();
  }
  if (fault_) {  // its fibers stand anywhere
    idle_.clear();
    begun_fibers_ = 0;
    for (State& state : states_) {
      state.copies.clear();
      state.groups.clear();
    }
  } else if (counts_) {
    add_counts(counts, {counter_.counts(launch.function->name, launch.function->program)});
  }
  return std::move(fault_);
}

void BlockRunner::run_block() {
  unstarted_ = live_ = threads_;
  at_barrier_ = at_warp_ = ready_count_ = 0;
  shared_.begin_block(++block_syncs_);
  warp_syncs_.fill(0);
  for (uint32_t i = 0; i < threads_; ++i) states_[i].status = Status::kUnstarted;
  const size_t fiber = idle_fiber();
  const uint32_t first = *next();
  states_[first].fiber = fiber;
  assign(fibers_[fiber], first);
  switch_fiber(fibers_.host(), fibers_[fiber]);
}

void BlockRunner::assign(Fiber& fiber, uint32_t number) {
  auto& thread = *std::launder(reinterpret_cast<Running*>(fiber.stack));
  thread.thread_index = index_of(number, launch_->block);
  thread.block_index = block_;
  thread.block_size = launch_->block;
  thread.grid_size = launch_->grid;
  thread.runner = this;
  thread.number = number;
  states_[number].status = Status::kRunning;
}

size_t BlockRunner::idle_fiber() {
  if (!idle_.empty()) {
    const size_t fiber = idle_.back();
    idle_.pop_back();
    return fiber;
  }
  if (begun_fibers_ == fibers_.size()) {
    Fiber& made = fibers_.add();
    new (made.stack) Running{};
    reinterpret_cast<Running*>(made.stack)->api = &emulator_api();
  }
  Fibers::prepare(fibers_[begun_fibers_], run_threads);
  return begun_fibers_++;
}

void BlockRunner::run_threads() {
  fiber_started();
  const auto here = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  auto& thread = *reinterpret_cast<Running*>(here & ~(emulator::kStackBytes - 1));
  for (;;) {
    BlockRunner& runner = *thread.runner;
    runner.launch_->function->entry->call(runner.operands_.data());
    runner.end(thread);
  }
}

void BlockRunner::make_ready(uint32_t number) {
  states_[number].status = Status::kReady;
  ready_[(ready_first_ + ready_count_++) % kMostThreads] = static_cast<uint16_t>(number);
}

std::optional<uint32_t> BlockRunner::next() {
  if (ready_count_ != 0) {
    const uint32_t number = ready_[ready_first_];
    ready_first_ = (ready_first_ + 1) % kMostThreads;
    --ready_count_;
    return number;
  }
  if (unstarted_ == 0) return std::nullopt;
  --unstarted_;
  return reversed_ ? unstarted_ : threads_ - 1 - unstarted_;
}

void BlockRunner::leave(Running& thread, bool ended) {
  const size_t own = states_[thread.number].fiber;
  if (ended && live_ == 0) {
    idle_.push_back(own);
    switch_fiber(fibers_[own], fibers_.host());
    return;
  }
  const std::optional<uint32_t> chosen = next();
  if (!chosen) {
    fault_ = deadlock();
    give_up(thread);
  }
  State& state = states_[*chosen];
  if (state.status == Status::kReady) {
    if (ended) idle_.push_back(own);
    state.status = Status::kRunning;
  } else {
    state.fiber = ended ? own : idle_fiber();
    assign(fibers_[state.fiber], *chosen);
  }
  if (state.fiber != own) switch_fiber(fibers_[own], fibers_[state.fiber]);
}

void BlockRunner::end(Running& thread) {
  State& state = states_[thread.number];
  if (!state.copies.empty()) finish_copies(thread, state.copies.size());
  state.groups.clear();
  state.status = Status::kDone;
  --live_;
  tell_counter(thread.number);
  if (live_ != 0 && at_barrier_ == live_ && !barriers_differ_) release_barrier();
  // Those that wait for this thread's warp need not wait for this thread.
  const uint32_t warp = thread.number / kWarp * kWarp;
  for (uint32_t i = warp; at_warp_ != 0 && i < warp + kWarp && i < threads_; ++i)
    if (states_[i].status == Status::kAtWarp) complete_warp(i, thread);
  leave(thread, true);
}

void BlockRunner::wait_for_block(Running& thread, emulator::Site site) {
  State& state = states_[thread.number];
  state.status = Status::kAtBarrier;
  state.site = site;
  state.what = "__syncthreads";
  tell_counter(thread.number);
  if (at_barrier_ == 0) {
    barrier_ = site;
    barriers_differ_ = false;
  }
  barriers_differ_ = barriers_differ_ || !same(barrier_, site);
  if (++at_barrier_ == live_ && !barriers_differ_) release_barrier();
  leave(thread, false);
}

void BlockRunner::release_barrier() {
  at_barrier_ = 0;
  ++block_syncs_;
  warp_syncs_.fill(0);
  for (uint32_t k = 0; k < threads_; ++k) {
    const uint32_t i = reversed_ ? threads_ - 1 - k : k;
    if (states_[i].status == Status::kAtBarrier) make_ready(i);
  }
}

void BlockRunner::wait_for_warp(Running& thread, uint32_t mask, const char* what, Complete complete,
                                void* given, emulator::Site site, bool only_whole_warp) {
  const uint32_t lane = thread.number % kWarp;
  if ((mask >> lane & 1) == 0) {
    take_fault(thread, CUDA_ERROR_LAUNCH_FAILED,
               fmt::format("calls {} with the mask {:#010x}, which does not name its lane {}", what,
                           mask, lane),
               site);
    give_up(thread);
  }
  State& state = states_[thread.number];
  state.status = Status::kAtWarp;
  ++at_warp_;
  state.site = site;
  state.what = what;
  state.mask = mask;
  state.complete = complete;
  state.given = given;
  state.only_whole_warp = only_whole_warp;
  complete_warp(thread.number, thread);
  leave(thread, false);
}

void BlockRunner::complete_warp(uint32_t any_lane, Running& current) {
  const State& example = states_[any_lane];
  const uint32_t warp = any_lane / kWarp * kWarp;
  void* given[kWarp] = {};
  uint32_t active = 0;
  for (uint32_t lane = 0; lane < kWarp && warp + lane < threads_; ++lane) {
    const State& state = states_[warp + lane];
    if ((example.mask >> lane & 1) == 0 || state.status == Status::kDone) continue;
    if (state.status != Status::kAtWarp || state.mask != example.mask ||
        std::strcmp(state.what, example.what) != 0)
      return;
    active |= 1u << lane;
    given[lane] = state.given;
  }
  if (example.only_whole_warp && active != kWholeWarp) {
    fault_ = fault_of(any_lane, CUDA_ERROR_LAUNCH_FAILED,
                      fmt::format("calls {} in a warp of fewer than 32 threads", example.what),
                      example.site);
    give_up(current);
  }
  if (example.complete != nullptr)
    example.complete(*this, given, active);
  else
    ++warp_syncs_[any_lane / kWarp];
  for (uint32_t k = 0; k < kWarp; ++k) {
    const uint32_t lane = reversed_ ? kWarp - 1 - k : k;
    if ((active >> lane & 1) != 0) make_ready(warp + lane);
  }
  at_warp_ -= static_cast<uint32_t>(std::popcount(active));
  if (counts_ && example.mask == kWholeWarp) counter_.lanes_met(any_lane / kWarp);
}

void BlockRunner::tell_counter(uint32_t thread) {
  if (!counts_) return;
  const uint32_t warp = thread / kWarp * kWarp;
  for (uint32_t i = warp; i < warp + kWarp && i < threads_; ++i)
    if (states_[i].status != Status::kDone && states_[i].status != Status::kAtBarrier) return;
  counter_.lanes_met(thread / kWarp);
}

void BlockRunner::finish_copies(Running& thread, size_t count) {
  State& state = states_[thread.number];
  for (size_t i = 0; i < count; ++i) {
    const Copy& copy = state.copies[i];
    if (copy.from == 0)
      std::memset(reinterpret_cast<void*>(copy.to), 0, copy.bytes);
    else
      std::memcpy(reinterpret_cast<void*>(copy.to), reinterpret_cast<const void*>(copy.from),
                  copy.bytes);
    shared_.end_copy(*copy.array, copy.to, copy.bytes, copy.line, now(thread));
  }
  state.copies.erase(state.copies.begin(),
                     state.copies.begin() + static_cast<std::ptrdiff_t>(count));
  for (size_t& group : state.groups) group -= std::min(group, count);
}

Moment BlockRunner::now(const Running& thread) const {
  return {thread.number, block_syncs_, warp_syncs_[thread.number / kWarp]};
}

std::string BlockRunner::place(emulator::Site site) const {
  const auto& [name, entry, program] = *launch_->function;
  const ProgramLine line = ProgramLines(name, program).at(site);
  const std::string in = line.file.empty() ? "" : fmt::format(" of {}", line.file);
  return fmt::format("line {}{}: {}", line.line, in, line.text);
}

EmulatedFault BlockRunner::fault_of(uint32_t thread, CUresult code, const std::string& what,
                                    emulator::Site site) const {
  return {code, fmt::format("{}, block {}, thread {} {} [{}]", launch_->function->name,
                            index_text(block_), index_text(index_of(thread, launch_->block)), what,
                            place(site))};
}

void BlockRunner::give_up(Running& current) {
  switch_fiber(fibers_[states_[current.number].fiber], fibers_.host(), true);
  __builtin_unreachable();
}

EmulatedFault BlockRunner::deadlock() const {
  std::map<std::pair<std::string, int>, uint32_t> waiting;  // by kind and line: how many
  std::map<int, emulator::Site> sites;
  uint32_t done = 0;
  for (uint32_t i = 0; i < threads_; ++i) {
    const State& state = states_[i];
    if (state.status == Status::kDone) ++done;
    if (state.status != Status::kAtBarrier && state.status != Status::kAtWarp) continue;
    ++waiting[{state.what, state.site.line}];
    sites[state.site.line] = state.site;
  }
  std::string text;
  for (const auto& [where, count] : waiting)
    text += fmt::format("{}{} of {} threads wait at {} [{}]", text.empty() ? "" : ", ", count,
                        threads_, where.first, place(sites[where.second]));
  return {CUDA_ERROR_LAUNCH_FAILED,
          fmt::format("{}, block {} waits for ever: {}, {} are done", launch_->function->name,
                      index_text(block_), text, done)};
}

}  // namespace anneal::cuda
