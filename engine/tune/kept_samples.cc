#include "anneal/engine/tune/kept_samples.h"

#include <mutex>
#include <utility>

namespace anneal {
namespace {

class KeptSamples final : public Dataset {
 public:
  KeptSamples(std::shared_ptr<const Dataset> samples, size_t most)
      : samples_(std::move(samples)), left_(most), kept_(static_cast<size_t>(samples_->size())) {}

  int64_t size() const override { return samples_->size(); }
  std::string name(int64_t i) const override { return samples_->name(i); }
  std::optional<int64_t> label(int64_t i) const override { return samples_->label(i); }

  std::vector<SampleTensor> read(int64_t i) const override {
    std::vector<SampleTensor>& kept = kept_[static_cast<size_t>(i)];
    {
      const std::lock_guard lock(mutex_);
      if (!kept.empty()) return kept;  // tensors share their bytes
    }
    std::vector<SampleTensor> read = samples_->read(i);
    size_t bytes = 0;
    for (const SampleTensor& each : read) bytes += each.tensor.bytes().size();
    const std::lock_guard lock(mutex_);
    if (kept.empty() && bytes <= left_) {
      left_ -= bytes;
      kept = read;
    }
    return read;
  }

 private:
  const std::shared_ptr<const Dataset> samples_;
  mutable std::mutex mutex_;
  mutable size_t left_;
  mutable std::vector<std::vector<SampleTensor>> kept_;
};

}  // namespace

std::shared_ptr<const Dataset> kept_samples(std::shared_ptr<const Dataset> samples,
                                            size_t most_bytes) {
  return std::make_shared<KeptSamples>(std::move(samples), most_bytes);
}

}  // namespace anneal
