#include "anneal/engine/tune/samples/sample_cache.h"

#include <mutex>
#include <utility>

namespace anneal {
namespace {

class KeptSamples final : public Dataset {
 public:
  KeptSamples(std::shared_ptr<const Dataset> samples, size_t most)
      : samples_(std::move(samples)),
        left_(most),
        kept_(static_cast<size_t>(samples_->size())),
        masks_(kept_.size()) {}

  int64_t size() const override { return samples_->size(); }
  std::string name(int64_t i) const override { return samples_->name(i); }
  std::optional<int64_t> label(int64_t i) const override { return samples_->label(i); }
  std::optional<Tensor> mask(int64_t i) const override {
    return kept(
        masks_[static_cast<size_t>(i)], [&] { return samples_->mask(i); },
        [](const std::optional<Tensor>& mask) { return mask ? mask->bytes().size() : 0; });
  }
  std::vector<SampleTensor> read(int64_t i) const override {
    return kept(
        kept_[static_cast<size_t>(i)], [&] { return samples_->read(i); },
        [](const std::vector<SampleTensor>& tensors) {
          size_t bytes = 0;
          for (const SampleTensor& each : tensors) bytes += each.tensor.bytes().size();
          return bytes;
        });
  }

 private:
  // The content of `place`, or else the result of reading, which `place` keeps if there is space.
  // Tensors share their bytes.
  template <class T, class Read, class BytesOf>
  T kept(std::optional<T>& place, const Read& read, const BytesOf& bytes_of) const {
    {
      const std::lock_guard lock(mutex_);
      if (place) return *place;
    }
    T made = read();
    const size_t bytes = bytes_of(made);
    const std::lock_guard lock(mutex_);
    if (!place && bytes <= left_) {
      left_ -= bytes;
      place = made;
    }
    return made;
  }

  const std::shared_ptr<const Dataset> samples_;
  mutable std::mutex mutex_;
  mutable size_t left_;
  mutable std::vector<std::optional<std::vector<SampleTensor>>> kept_;
  mutable std::vector<std::optional<std::optional<Tensor>>> masks_;
};

}  // namespace

std::shared_ptr<const Dataset> kept_samples(std::shared_ptr<const Dataset> samples,
                                            size_t most_bytes) {
  return std::make_shared<KeptSamples>(std::move(samples), most_bytes);
}

}  // namespace anneal
