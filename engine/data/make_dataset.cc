#include <utility>

#include "anneal/core/fail.h"
#include "anneal/engine/data/dataset.h"

namespace anneal {
namespace {

class CalledDataset final : public Dataset {
 public:
  CalledDataset(int64_t count, std::function<std::vector<SampleTensor>(int64_t i)> read,
                std::function<std::optional<int64_t>(int64_t i)> label)
      : count_(count), read_(std::move(read)), label_(std::move(label)) {}
  int64_t size() const override { return count_; }
  std::vector<SampleTensor> read(int64_t i) const override { return read_(i); }
  std::optional<int64_t> label(int64_t i) const override {
    return label_ ? label_(i) : std::nullopt;
  }

 private:
  int64_t count_;
  std::function<std::vector<SampleTensor>(int64_t i)> read_;
  std::function<std::optional<int64_t>(int64_t i)> label_;
};

}  // namespace

std::shared_ptr<const Dataset> make_dataset(
    int64_t count, std::function<std::vector<SampleTensor>(int64_t i)> read,
    std::function<std::optional<int64_t>(int64_t i)> label) {
  return at_entry([&]() -> std::shared_ptr<const Dataset> {
    if (count < 1 || !read)
      fail(ErrorCode::kInvalidArgument,
           "make_dataset() needs a sample and a function that reads it");
    return std::make_shared<CalledDataset>(count, std::move(read), std::move(label));
  });
}

}  // namespace anneal
