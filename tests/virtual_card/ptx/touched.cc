#include "anneal/tests/virtual_card/ptx/touched.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace anneal::ptx {

void TouchedBytes::note(uint64_t at, size_t bytes, bool is_store) {
  while (bytes != 0) {
    const uint64_t in_word = at % kWordBytes;
    const size_t here = std::min<size_t>(bytes, kWordBytes - in_word);
    const uint64_t mask = (here == kWordBytes ? ~uint64_t{0} : (uint64_t{1} << here) - 1)
                          << in_word;
    std::unique_ptr<Page>& page = pages_[at / kPageBytes];
    if (page == nullptr) page = std::make_unique<Page>();
    (is_store ? page->written : page->read)[at % kPageBytes / kWordBytes] |= mask;
    at += here;
    bytes -= here;
  }
}

std::optional<uint64_t> TouchedBytes::conflict(const TouchedBytes& other) const {
  for (size_t i = 0; i < std::min(pages_.size(), other.pages_.size()); ++i) {
    if (pages_[i] == nullptr || other.pages_[i] == nullptr) continue;
    const Page& mine = *pages_[i];
    const Page& its = *other.pages_[i];
    for (size_t word = 0; word < mine.read.size(); ++word) {
      const uint64_t both = (mine.written[word] & (its.read[word] | its.written[word])) |
                            (mine.read[word] & its.written[word]);
      if (both != 0)
        return i * kPageBytes + word * kWordBytes + static_cast<uint64_t>(std::countr_zero(both));
    }
  }
  return std::nullopt;
}

std::map<uint64_t, std::shared_ptr<TouchedBytes>> Touched::take() {
  last_ = nullptr;
  return std::exchange(all_, {});
}

void Touched::find(const GlobalMemory::Allocation& allocation) {
  auto& found = all_[allocation.address];
  if (found == nullptr) found = std::make_shared<TouchedBytes>(allocation.bytes);
  last_ = found.get();
  last_address_ = allocation.address;
}

}  // namespace anneal::ptx
