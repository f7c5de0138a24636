#include "anneal/tests/virtual_card/ptx/memory.h"

#include <algorithm>
#include <new>

namespace anneal::ptx {
namespace {

// Between two allocations: more than any index that is wrong by a row or an image. A freed address
// has room for any allocation of this size.
constexpr uint64_t kGap = uint64_t{1} << 32;

GlobalMemory::Marks marks(size_t count) {
  auto* const made = static_cast<Mark*>(std::calloc(count, sizeof(Mark)));
  if (made == nullptr) throw std::bad_alloc();
  return GlobalMemory::Marks(made);
}

}  // namespace

uint64_t GlobalMemory::allocate(size_t bytes) {
  auto made = std::make_unique<Allocation>();
  made->bytes = bytes;
  made->data = std::make_unique<std::byte[]>(bytes);
  made->written = std::make_unique<uint8_t[]>(bytes);
  made->writer = marks(bytes);
  made->word_reader = marks(bytes / Allocation::kWordBytes + 1);
  made->byte_reader = marks(bytes);
  // What a kernel must not rely on: NaN as f32, f16 and bf16.
  std::fill_n(made->data.get(), bytes, std::byte{0xff});
  const std::lock_guard lock(mutex_);
  uint64_t address = next_;
  if (reuses_addresses_ && !freed_.empty() && bytes < kGap) {
    address = freed_.back();
    freed_.pop_back();
  } else {
    next_ += (bytes + 511) / 512 * 512 + kGap;
  }
  made->address = address;
  made->number = ++made_;
  allocations_.emplace(address + bytes, std::move(made));
  return address;
}

bool GlobalMemory::release(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(allocations_.begin(), allocations_.end(), [&](const auto& each) {
    return each.second->address == address;
  });
  if (found == allocations_.end()) return false;
  freed_.push_back(address);
  allocations_.erase(found);
  return true;
}

GlobalMemory::Allocation* GlobalMemory::find(uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.upper_bound(address);
  if (found == allocations_.end() || address < found->second->address) return nullptr;
  return found->second.get();
}

const GlobalMemory::Allocation* GlobalMemory::before(uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const Allocation* last = nullptr;
  for (const auto& [end, each] : allocations_)
    if (each->address <= address) last = each.get();
  return last;
}

size_t GlobalMemory::count() const {
  const std::lock_guard lock(mutex_);
  return allocations_.size();
}

uint64_t GlobalMemory::bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t total = 0;
  for (const auto& [end, each] : allocations_) total += each->bytes;
  return total;
}

SharedMemory::SharedMemory(size_t bytes)
    : data_(bytes),
      written_(bytes),
      words_((bytes + kWord - 1) / kWord),
      is_split_((bytes + kWord - 1) / kWord) {
  clear();
}

void SharedMemory::clear() {
  std::fill(data_.begin(), data_.end(), std::byte{0xff});
  std::fill(written_.begin(), written_.end(), uint8_t{0});
}

bool SharedMemory::is_ordered(const Access& before, uint32_t thread, Time time) {
  const auto other = static_cast<uint32_t>(before.thread);
  if (before.thread < 0 || other == thread || before.block != time.block) return true;
  return other / 32 == thread / 32 && before.warp != time.warp;
}

bool SharedMemory::History::is_after_updates(uint32_t thread, Time time) const {
  if (update.thread < 0 || update.block != time.block) return true;
  if (is_updated_by_warps) return false;
  if (is_updated_by_more &&
      (update.warp == time.warp || static_cast<uint32_t>(update.thread) / 32 != thread / 32))
    return false;
  return is_ordered(update, thread, time);
}
// Whether a thread that is not recorded read at an unordered time.
bool SharedMemory::History::has_lost_reader(uint32_t thread, Time time) const {
  return is_read_by_more && read.block == time.block && read.warp == time.warp &&
         static_cast<uint32_t>(read.thread) / 32 == thread / 32;
}

int SharedMemory::History::add_write(uint32_t thread, Time time) {
  int conflict = -1;
  for (const Access& before : {write, read, other})
    if (!is_ordered(before, thread, time)) conflict = before.thread;
  if (has_lost_reader(thread, time)) conflict = read.thread;
  if (!is_after_updates(thread, time)) conflict = update.thread;
  write = {time.block, time.warp, static_cast<int32_t>(thread)};
  return conflict;
}

int SharedMemory::History::add_update(uint32_t thread, Time time) {
  int conflict = -1;
  for (const Access& before : {write, read, other})
    if (!is_ordered(before, thread, time)) conflict = before.thread;
  if (has_lost_reader(thread, time)) conflict = read.thread;
  if (update.thread < 0 || update.block != time.block) {
    is_updated_by_more = is_updated_by_warps = false;
  } else if (!is_ordered(update, thread, time)) {
    const bool is_same_warp = static_cast<uint32_t>(update.thread) / 32 == thread / 32;
    is_updated_by_more = is_updated_by_more || is_same_warp;
    is_updated_by_warps = is_updated_by_warps || !is_same_warp;
  }
  update = {time.block, time.warp, static_cast<int32_t>(thread)};
  return conflict;
}

int SharedMemory::History::add_read(uint32_t thread, Time time) {
  int conflict = -1;
  if (!is_ordered(write, thread, time)) conflict = write.thread;
  if (!is_after_updates(thread, time)) conflict = update.thread;
  const auto last = static_cast<uint32_t>(read.thread);
  if (read.thread < 0 || read.block != time.block) {
    other = {};
    is_read_by_more = false;
  } else if (last / 32 != thread / 32) {
    other = read;
    is_read_by_more = false;
  } else {
    is_read_by_more = read.warp == time.warp && (is_read_by_more || last != thread);
  }
  read = {time.block, time.warp, static_cast<int32_t>(thread)};
  return conflict;
}

template <class Add>
int SharedMemory::for_each(uint32_t at, uint32_t bytes, Time time, Add add) {
  int conflict = -1;
  for (uint32_t word = at / kWord; word * kWord < at + bytes; ++word) {
    const uint32_t begin = std::max(at, word * kWord),
                   end = std::min(at + bytes, (word + 1) * kWord);
    if (end - begin == kWord && is_split_[word] != 0) {
      const auto is_old = [&](const History& byte) {
        return byte.write.block != time.block && byte.read.block != time.block &&
               byte.update.block != time.block;
      };
      if (std::all_of(&bytes_[begin], &bytes_[begin] + kWord, is_old)) {
        is_split_[word] = 0;
        words_[word] = {};
      }
    } else if (end - begin != kWord && is_split_[word] == 0) {
      if (bytes_.empty()) bytes_.resize(words_.size() * kWord);
      is_split_[word] = 1;
      std::fill_n(&bytes_[word * kWord], kWord, words_[word]);
    }
    if (is_split_[word] == 0) {
      if (const int found = add(words_[word]); found >= 0) conflict = found;
    } else {
      for (uint32_t i = begin; i < end; ++i)
        if (const int found = add(bytes_[i]); found >= 0) conflict = found;
    }
  }
  return conflict;
}

int SharedMemory::write(uint32_t at, uint32_t bytes, uint32_t thread, Time time) {
  std::fill_n(written_.begin() + at, bytes, uint8_t{1});
  return for_each(at, bytes, time,
                  [&](History& history) { return history.add_write(thread, time); });
}

int SharedMemory::read(uint32_t at, uint32_t bytes, uint32_t thread, Time time) {
  return for_each(at, bytes, time,
                  [&](History& history) { return history.add_read(thread, time); });
}

int SharedMemory::update(uint32_t at, uint32_t bytes, uint32_t thread, Time time) {
  return for_each(at, bytes, time,
                  [&](History& history) { return history.add_update(thread, time); });
}

bool SharedMemory::is_written(uint32_t at, uint32_t bytes) const {
  return std::all_of(written_.begin() + at, written_.begin() + at + bytes,
                     [](uint8_t byte) { return byte != 0; });
}

void SharedMemory::forget(uint32_t at, uint32_t bytes) {
  std::fill_n(written_.begin() + at, bytes, uint8_t{0});
}

}  // namespace anneal::ptx
