#include "anneal/tests/virtual_card/queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "anneal/tests/virtual_card/card.h"

namespace anneal::virtual_card {

uint64_t hash_of(const std::byte* bytes, size_t count) {
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < count; ++i)
    hash = (hash ^ static_cast<uint64_t>(bytes[i])) * 0x100000001b3;
  return hash;
}

std::shared_ptr<Stream> Queues::make(Context& context) {
  auto made = std::make_shared<Stream>();
  made->context = &context;
  made->name = fmt::format("stream {} of device {}", ++context.streams_made, context.device);
  if (free_slots_.empty()) {
    free_slots_.push_back(slot_ends_.size());
    slot_ends_.push_back(0);
  }
  made->slot = free_slots_.back();
  free_slots_.pop_back();
  made->added = made->done = made->due = made->waited = slot_ends_[made->slot];
  streams_.push_back(made);
  return made;
}

void Queues::destroy(const std::shared_ptr<Stream>& stream) {
  slot_ends_[stream->slot] = stream->added;
  free_slots_.push_back(stream->slot);
  std::erase(streams_, stream);
}

void Queues::add(const std::shared_ptr<Stream>& stream, Work work) {
  Stream& s = *stream;
  // The default stream comes after every blocking stream's work, and before their later work.
  for (const auto& other : streams_)
    if (other->context == s.context && other != stream &&
        ((s.is_default && other->is_blocking) || (s.is_blocking && other->is_default))) {
      work.after.push_back({other, other->added});
      join(s.clock, other->clock);
    }
  auto call = std::make_shared<Call>();
  call->name = work.call;
  call->stream = s.name;
  call->slot = s.slot;
  call->number = ++s.added;
  call->sequence = sequence_++;
  join(s.clock, order_.host());
  if (s.clock.size() <= s.slot) s.clock.resize(s.slot + 1);
  s.clock[s.slot] = s.added;
  call->clock = s.clock;
  if (work.records != nullptr) {
    work.records->recorded = {stream, s.added};
    work.records->clock = s.clock;
  }
  Stream::Queued queued{std::move(work), std::move(call), {}, false};
  queued.is_mark = queued.work.run == nullptr;
  const Work& w = queued.work;
  if (w.host_begin != w.host_end) {
    order_.note_host(queued.call, w.host_begin, w.host_end, w.is_host_written);
    const auto overlaps = [&](const Work& other) {
      return other.host_begin < w.host_end && w.host_begin < other.host_end;
    };
    const auto overlaps_written = [&](const Work& other) {
      return overlaps(other) && other.is_host_written;
    };
    auto* const memory = reinterpret_cast<std::byte*>(w.host_begin);
    const size_t bytes = w.host_end - w.host_begin;
    // What a host reads too early is no result. An earlier copy may still read there.
    if (w.is_host_written) {
      if (find(*s.context, overlaps) == nullptr) std::memset(memory, 0xff, bytes);
    } else if (find(*s.context, overlaps_written) == nullptr) {
      queued.host_hash = hash_of(memory, bytes);
    }
  }
  s.works.push_back(std::move(queued));
  if (seed_ != 0) let_some_run();
}

void Queues::wait(const Reached& reached, const Clock& clock) {
  demand_for_host(*reached.stream, reached.number);
  changed_.wait(mutex_, [&] { return is_reached(reached); });
  order_.wait(clock, first_pending(), sequence_);
}

void Queues::finish(const Context& context) {
  std::vector<Reached> all;
  for (const auto& stream : streams_)
    if (stream->context == &context) all.push_back({stream, stream->added});
  for (const Reached& each : all) demand_for_host(*each.stream, each.number);
  changed_.wait(mutex_, [&] {
    return std::ranges::all_of(all, [&](const Reached& each) { return is_reached(each); });
  });
}

const Work* Queues::find(const Context& context,
                         const std::function<bool(const Work&)>& is_it) const {
  for (const auto& stream : streams_)
    if (stream->context == &context)
      for (const auto* works : {&stream->early, &stream->works})
        for (const Stream::Queued& queued : *works)
          if (is_it(queued.work)) return &queued.work;
  return nullptr;
}

const Work* Queues::find(const Stream& stream) {
  for (const auto* works : {&stream.early, &stream.works})
    for (const Stream::Queued& queued : *works)
      if (!queued.is_mark) return &queued.work;
  return nullptr;
}

void Queues::demand(Stream& stream, uint64_t number) {
  if (number <= stream.due) return;
  const uint64_t from = stream.due;
  stream.due = number;
  for (const Stream::Queued& queued : stream.works)
    if (queued.call->number > from && queued.call->number <= number)
      for (const Reached& each : queued.work.after) demand(*each.stream, each.number);
  start();
  changed_.notify_all();
}

void Queues::demand_for_host(Stream& stream, uint64_t number) {
  if (number <= stream.waited) return;
  stream.waited = number;
  for (const auto* works : {&stream.early, &stream.works})
    for (const Stream::Queued& queued : *works)
      if (queued.call->number <= number)
        for (const Reached& each : queued.work.after) demand_for_host(*each.stream, each.number);
  for (; !stream.early.empty() && stream.early.front().call->number <= number;
       stream.early.pop_front()) {
    const auto& [work, call, hash, is_mark] = stream.early.front();
    if (hash) read_unchanged(work.host_begin, work.host_end - work.host_begin, work.call, hash);
  }
  demand(stream, number);
}

// Results for the host come when it waits for them: until then the host reads none.
bool Queues::may_be_early(const Stream& stream, uint64_t number) {
  for (const Stream::Queued& queued : stream.works) {
    if (queued.call->number > number) return true;
    if (queued.work.is_host_written) return false;
    for (const Reached& each : queued.work.after)
      if (!may_be_early(*each.stream, each.number)) return false;
  }
  return true;
}

void Queues::let_some_run() {
  if (random_() % 2 == 0) return;
  Stream& stream = *streams_[random_() % streams_.size()];
  const uint64_t number = stream.done + random_() % (stream.works.size() + 1);
  if (may_be_early(stream, number)) demand(stream, number);
}

void Queues::start() {
  if (is_started_) return;
  is_started_ = true;
  const char* const asked = std::getenv("ANNEAL_VIRTUAL_CARD_WORKERS");
  const int count = asked != nullptr ? std::max(std::atoi(asked), 1) : 2;
  // They end with the process, as a card does not.
  for (int i = 0; i < count; ++i) std::thread([this] { serve(); }).detach();
}

void Queues::serve() {
  mutex_.lock();
  while (true) {
    if (Stream* const stream = next())
      run(*stream);
    else
      changed_.wait(mutex_);
  }
}

// A stream whose first work may be done.
Stream* Queues::next() {
  std::vector<Stream*> ready;
  for (const auto& stream : streams_) {
    if (stream->is_running || stream->works.empty()) continue;
    const Stream::Queued& first = stream->works.front();
    if (first.call->number <= stream->due &&
        std::ranges::all_of(first.work.after,
                            [&](const Reached& each) { return is_reached(each); }))
      ready.push_back(stream.get());
  }
  if (ready.empty()) return nullptr;
  return ready[seed_ == 0 ? 0 : random_() % ready.size()];
}

void Queues::run(Stream& stream) {
  stream.is_running = true;
  Stream::Queued& first = stream.works.front();
  Context& context = *stream.context;
  Running running;
  running.host_hash = first.host_hash;
  if (first.work.run != nullptr && context.error == CUDA_SUCCESS) {
    running.launch = ++context.launches;
    most_running_ = std::max(most_running_, ++running_);
    CUresult error = CUDA_SUCCESS;
    std::string fault;
    mutex_.unlock();
    try {
      first.work.run(running);
    } catch (const Refusal& refusal) {
      // The memory was there when the call was made, or when it was captured.
      error = CUDA_ERROR_ILLEGAL_ADDRESS;
      fault = refusal.text;
    } catch (const ptx::Fault& raised) {
      error = result_of(raised.kind());
      fault = raised.what();
    }
    mutex_.lock();
    --running_;
    order_.note(first.call, running.touched);
    steps_ += running.steps;
    if (error != CUDA_SUCCESS) {
      fault += unordered(*first.call, context);
      std::fprintf(stderr, "virtual card: %s\n", fault.c_str());
      context.error = error;
      context.fault = fault;
    }
  }
  if (first.work.records != nullptr)
    first.work.records->milliseconds = std::chrono::duration<double, std::milli>(
                                           std::chrono::steady_clock::now().time_since_epoch())
                                           .count();
  if (first.call->number > stream.waited) {
    first.work.run = nullptr;
    stream.early.push_back(std::move(first));
  }
  stream.works.pop_front();
  ++stream.done;
  stream.is_running = false;
  changed_.notify_all();
}

// A fault may come of work that was not waited for.
std::string Queues::unordered(const Call& call, const Context& context) const {
  std::string names;
  int count = 0;
  for (const auto& stream : streams_) {
    if (stream->context != &context || stream->slot == call.slot) continue;
    for (const Stream::Queued& queued : stream->works)
      if (queued.work.run != nullptr && !is_before(call, *queued.call) && ++count <= 3)
        names += fmt::format("{}{} on {}", count == 1 ? "; nothing orders it with " : ", ",
                             queued.call->name, stream->name);
  }
  return names;
}

uint64_t Queues::first_pending() const {
  uint64_t first = sequence_;
  for (const auto& stream : streams_)
    if (!stream->works.empty()) first = std::min(first, stream->works.front().call->sequence);
  return first;
}

}  // namespace anneal::virtual_card
