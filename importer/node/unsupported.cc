#include "anneal/importer/node/unsupported.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "anneal/core/fail.h"

namespace anneal {
namespace {

constexpr size_t kMaxLines = 100;

}  // namespace

void UnsupportedReport::add(std::string what, const std::string& name, std::string reason) {
  const auto same = std::ranges::find_if(
      entries_, [&](const Entry& entry) { return entry.what == what && entry.reason == reason; });
  if (same != entries_.end()) {
    ++same->count;
  } else {
    entries_.push_back({std::move(what), name, std::move(reason)});
  }
}

void UnsupportedReport::throw_if_any() const {
  if (entries_.empty()) return;
  std::string text = "the model needs what is not supported:";
  for (size_t i = 0; i < std::min(entries_.size(), kMaxLines); ++i) {
    const Entry& entry = entries_[i];
    const std::string count =
        entry.count == 1 ? "once" : fmt::format("{} times, first", entry.count);
    text += fmt::format("\n  {}, {} in \"{}\": {}", entry.what, count, entry.first, entry.reason);
  }
  if (entries_.size() > kMaxLines)
    text += fmt::format("\n  and {} more", entries_.size() - kMaxLines);
  if (std::ranges::find(entries_, kNotImplemented, &Entry::reason) != entries_.end())
    text +=
        "\n  --library FILE, or the option `libraries`, gives kernels of your own for operators "
        "that are not implemented";
  fail(ErrorCode::kUnsupported, text);
}

}  // namespace anneal
