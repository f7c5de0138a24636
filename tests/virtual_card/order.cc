#include "anneal/tests/virtual_card/order.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/tests/virtual_card/queue.h"

namespace anneal::virtual_card {
namespace {

[[noreturn]] void report_conflict(const Call& first, const Call& second, const std::string& what) {
  report_violation(
      fmt::format("nothing orders {} on {} and {} on {}, which use {}: an event between them is "
                  "missing",
                  first.name, first.stream, second.name, second.stream, what));
}

bool is_in(const Clock& clock, const Call& call) {
  return call.slot < clock.size() && clock[call.slot] >= call.number;
}

}  // namespace

void join(Clock& into, const Clock& with) {
  if (into.size() < with.size()) into.resize(with.size());
  for (size_t i = 0; i < with.size(); ++i) into[i] = std::max(into[i], with[i]);
}

bool is_before(const Call& first, const Call& second) { return is_in(second.clock, first); }

void Order::note(const std::shared_ptr<const Call>& call, ptx::Touched& touched) {
  for (auto& [address, bytes] : touched.take()) {
    std::vector<Use>& uses = device_[address];
    for (const Use& use : uses) {
      if (is_before(*use.call, *call) || is_before(*call, *use.call)) continue;
      if (const auto at = use.bytes->conflict(*bytes))
        report_conflict(*use.call, *call,
                        fmt::format("byte {} of an allocation of {} bytes", *at, bytes->bytes()));
    }
    uses.push_back({.call = call, .bytes = std::move(bytes)});
  }
}

void Order::note_host(const std::shared_ptr<const Call>& call, uint64_t begin, uint64_t end,
                      bool is_written) {
  for (const Use& use : on_host_) {
    if (use.begin >= end || begin >= use.end || !(is_written || use.is_written)) continue;
    if (!is_before(*use.call, *call) && !is_before(*call, *use.call))
      report_conflict(*use.call, *call,
                      fmt::format("memory of the host at {:#x}", std::max(begin, use.begin)));
  }
  on_host_.push_back(
      {.call = call, .bytes = {}, .begin = begin, .end = end, .is_written = is_written});
}

void Order::forget_host(uint64_t begin, uint64_t end) {
  std::erase_if(on_host_, [&](const Use& use) { return use.begin < end && begin < use.end; });
}

void Order::check_host_free(const std::string& call, uint64_t begin, uint64_t end) {
  if (!is_apart_) return;  // the host has waited for what is not under way
  for (const Use& use : on_host_)
    if (use.begin < end && begin < use.end && !is_in(host(), *use.call))
      report_violation(fmt::format("{} by a thread that has not waited for {} on {}", call,
                                   use.call->name, use.call->stream));
}

void Order::end_thread() {
  const auto found = threads_.find(std::this_thread::get_id());
  if (found == threads_.end()) return;
  for (auto& [thread, clock] : threads_) join(clock, found->second);
  threads_.erase(found);
}

void Order::wait(const Clock& clock, uint64_t pending, uint64_t next) {
  join(host_, clock);
  join(threads_[std::this_thread::get_id()], clock);
  for (auto& [address, uses] : device_) retire(uses, pending, next);
  std::erase_if(device_, [](const auto& each) { return each.second.empty(); });
  retire(on_host_, pending, next);
}

void Order::retire(std::vector<Use>& uses, uint64_t pending, uint64_t next) const {
  std::erase_if(uses, [&](Use& use) {
    if (use.waited_at == 0 && is_known_to_all(*use.call)) use.waited_at = next;
    return use.waited_at != 0 && use.waited_at <= pending;
  });
}

bool Order::is_known_to_all(const Call& call) const {
  if (!is_apart_) return is_in(host_, call);
  return std::ranges::all_of(threads_, [&](const auto& each) { return is_in(each.second, call); });
}

}  // namespace anneal::virtual_card
