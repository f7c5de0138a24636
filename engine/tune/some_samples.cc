#include "anneal/engine/tune/some_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "anneal/engine/tune/onnx_tuning.h"

namespace anneal {
namespace {

class SomeSamples final : public Dataset {
 public:
  SomeSamples(std::shared_ptr<const Dataset> samples, std::vector<int64_t> which)
      : samples_(std::move(samples)), which_(std::move(which)) {}
  int64_t size() const override { return static_cast<int64_t>(which_.size()); }
  std::string name(int64_t i) const override { return samples_->name(at(i)); }
  std::optional<int64_t> label(int64_t i) const override { return samples_->label(at(i)); }
  std::vector<SampleTensor> read(int64_t i) const override { return samples_->read(at(i)); }

 private:
  int64_t at(int64_t i) const { return which_[static_cast<size_t>(i)]; }
  const std::shared_ptr<const Dataset> samples_;
  const std::vector<int64_t> which_;
};

}  // namespace

std::shared_ptr<const Dataset> some_samples(std::shared_ptr<const Dataset> samples,
                                            std::vector<int64_t> which) {
  return std::make_shared<SomeSamples>(std::move(samples), std::move(which));
}

TuneSamples split_samples(const std::shared_ptr<const Dataset>& samples, int64_t calibrate,
                          int64_t search) {
  const int64_t all = samples->size();
  if (calibrate == 0) calibrate = all / 5;
  if (search == 0) search = all * 3 / 10;
  if (calibrate < 1 || search < 1 || calibrate + search >= all)
    fail(
        Code::kInvalidArgument,
        fmt::format("{} samples cannot be split into {} to calibrate, {} to search with and others "
                    "to confirm",
                    all, calibrate, search));
  std::vector<int64_t> order(static_cast<size_t>(all));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::stable_sort(order, {}, [&](int64_t i) { return sample_hash(samples->name(i)); });
  const auto part = [&](int64_t begin, int64_t end) {
    std::vector<int64_t> which(order.begin() + begin, order.begin() + end);
    std::ranges::sort(which);
    return some_samples(samples, std::move(which));
  };
  return {part(0, calibrate), part(calibrate, calibrate + search), part(calibrate + search, all)};
}

}  // namespace anneal
