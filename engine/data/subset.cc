#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "anneal/core/bytes.h"
#include "anneal/core/fail.h"
#include "anneal/engine/data/subset.h"

namespace anneal {
namespace {

class Subset : public Dataset {
 public:
  Subset(std::shared_ptr<const Dataset> samples, std::vector<int64_t> kept)
      : samples_(std::move(samples)), kept_(std::move(kept)) {}
  int64_t size() const override { return static_cast<int64_t>(kept_.size()); }
  std::string name(int64_t i) const override { return samples_->name(at(i)); }
  std::optional<int64_t> label(int64_t i) const override { return samples_->label(at(i)); }
  std::optional<Tensor> mask(int64_t i) const override { return samples_->mask(at(i)); }
  std::vector<SampleTensor> read(int64_t i) const override { return samples_->read(at(i)); }

 private:
  int64_t at(int64_t i) const { return kept_[static_cast<size_t>(i)]; }
  std::shared_ptr<const Dataset> samples_;
  std::vector<int64_t> kept_;
};

[[noreturn]] void refuse_subset(std::string_view which, std::string_view why) {
  fail(ErrorCode::kInvalidArgument,
       fmt::format("samples \"{}\": {}; it may be first:N, hash:N, holdout:N, part:K/N or "
                   "part:K-L/N",
                   which, why));
}

int64_t subset_number(std::string_view which, std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || at != end || value < 1)
    refuse_subset(which, fmt::format("\"{}\" is no number from 1 on", text));
  return value;
}

// The n samples with the smallest hashes; of equals the one whose name is smaller.
std::vector<bool> drawn_samples(const Dataset& samples, int64_t n) {
  std::vector<int64_t> order(static_cast<size_t>(samples.size()));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::vector<std::pair<uint64_t, std::string>> keys;
  for (const int64_t i : order) keys.emplace_back(sample_hash(samples.name(i)), samples.name(i));
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return keys[static_cast<size_t>(a)] < keys[static_cast<size_t>(b)];
  });
  std::vector<bool> is_drawn(order.size());
  for (int64_t i = 0; i < n; ++i)
    is_drawn[static_cast<size_t>(order[static_cast<size_t>(i)])] = true;
  return is_drawn;
}

std::vector<bool> selected(const Dataset& samples, std::string_view which) {
  const auto size = static_cast<size_t>(samples.size());
  const size_t colon = which.find(':');
  const std::string_view word = which.substr(0, colon);
  const std::string_view value = colon == which.npos ? "" : which.substr(colon + 1);
  std::vector<bool> kept(size);
  if (word == "part") {
    const size_t slash = value.find('/');
    if (slash == value.npos) refuse_subset(which, "there is no /");
    const std::string_view range = value.substr(0, slash);
    const size_t dash = range.find('-');
    const int64_t first = subset_number(which, range.substr(0, dash));
    const int64_t last = dash == range.npos ? first : subset_number(which, range.substr(dash + 1));
    const int64_t parts = subset_number(which, value.substr(slash + 1));
    if (last < first || last > parts) refuse_subset(which, "there is no such part");
    for (size_t i = 0; i < size; ++i) {
      const auto part = static_cast<int64_t>(
          sample_hash(samples.name(static_cast<int64_t>(i))) % static_cast<uint64_t>(parts) + 1);
      kept[i] = first <= part && part <= last;
    }
    return kept;
  }
  if (word != "first" && word != "hash" && word != "holdout")
    refuse_subset(which, "it is not understood");
  const int64_t n = subset_number(which, value);
  if (n > samples.size())
    refuse_subset(which, fmt::format("there are only {} samples", samples.size()));
  if (word == "first") {
    std::fill_n(kept.begin(), n, true);
    return kept;
  }
  kept = drawn_samples(samples, n);
  if (word == "holdout") kept.flip();
  return kept;
}

}  // namespace

uint64_t sample_hash(std::string_view name) {
  uint64_t hash = hash_bytes(std::as_bytes(std::span(name.data(), name.size())));
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdU;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53U;
  return hash ^ (hash >> 33);
}

std::shared_ptr<const Dataset> subset(std::shared_ptr<const Dataset> samples,
                                      std::vector<int64_t> indices) {
  for (const int64_t i : indices) check(i >= 0 && i < samples->size(), "an index of a sample");
  return std::make_shared<Subset>(std::move(samples), std::move(indices));
}

std::shared_ptr<const Dataset> subset(std::shared_ptr<const Dataset> samples,
                                      std::string_view which) {
  return at_entry([&]() -> std::shared_ptr<const Dataset> {
    if (!samples) fail(ErrorCode::kInvalidArgument, "there are no samples: the dataset is null");
    while (true) {
      const size_t comma = which.find(',');
      const std::string_view one = which.substr(0, comma);
      const auto kept = selected(*samples, one);
      std::vector<int64_t> indices;
      for (size_t i = 0; i < kept.size(); ++i)
        if (kept[i]) indices.push_back(static_cast<int64_t>(i));
      if (indices.empty()) refuse_subset(one, "no sample is left");
      samples = subset(std::move(samples), std::move(indices));
      if (comma == which.npos) return samples;
      which.remove_prefix(comma + 1);
    }
  });
}

}  // namespace anneal
