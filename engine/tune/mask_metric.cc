#include "anneal/engine/tune/mask_metric.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "anneal/core/error.h"
#include "anneal/engine/data/elements.h"
#include "anneal/engine/tune/judged_output.h"

namespace anneal {
namespace {

// The class of each pixel; NaN: none, for all its scores are NaN.
using Mask = std::vector<double>;

bool is_of_masks(const Tensor& output) {
  const Dims& dims = output.dims();
  if (is_float(output.dtype())) return dims.rank() == 4 && dims[0] == 1 && dims[1] > 1;
  if (!is_integer(output.dtype()) && output.dtype() != DataType::kBool) return false;
  return (dims.rank() == 3 || (dims.rank() == 4 && dims[1] == 1)) && dims[0] == 1;
}

// REQUIRES: is_of_masks(output)
Mask mask_of(const Tensor& output) {
  const DataType dtype = output.dtype();
  const size_t size = size_of(dtype);
  const std::byte* at = output.bytes().data();
  const int rank = output.dims().rank();
  Mask mask(static_cast<size_t>(output.dims()[rank - 2] * output.dims()[rank - 1]), NAN);
  if (!is_float(dtype)) {
    for (double& pixel : mask) {
      pixel = read_element(dtype, at);
      at += size;
    }
    return mask;
  }
  std::vector<double> best(mask.size(), NAN);
  for (int64_t c = 0; c < output.dims()[1]; ++c)
    for (size_t i = 0; i < mask.size(); ++i, at += size) {
      const double score = read_element(dtype, at);
      if (score > best[i] || (std::isnan(best[i]) && !std::isnan(score))) {
        best[i] = score;
        mask[i] = static_cast<double>(c);
      }
    }
  return mask;
}

class MeanIntersectionOverUnion final : public Metric {
 public:
  explicit MeanIntersectionOverUnion(std::string output) : output_(std::move(output)) {}
  std::string name() const override { return "mIoU"; }
  std::string unit() const override { return "%"; }
  bool wants_reference() const override { return true; }

  // Of each class that occurs: the class, its intersection, its union.
  SampleScore judge(const Answer& answer) const override {
    check(answer.reference.size() == answer.outputs.size(), "a reference was wanted");
    const size_t index = find_output(answer, output_, is_of_masks);
    if (index == answer.outputs.size())
      fail_without_output(answer, output_,
                          "of masks, floats [1,classes,height,width] or integers [1,height,width]",
                          name());
    const Mask mask = mask_of(answer.outputs[index]);
    const Mask reference = mask_of(answer.reference[index]);
    // Sizes that depend on values have no pixel in common where they differ.
    const bool is_same_size = answer.outputs[index].dims() == answer.reference[index].dims();
    std::unordered_map<double, Overlap> overlaps;
    const auto add_union = [&](double of) {
      if (!std::isnan(of)) ++overlaps[of].either;
    };
    for (size_t i = 0; i < mask.size(); ++i) {
      add_union(mask[i]);
      if (is_same_size && mask[i] == reference[i]) ++overlaps[mask[i]].both;
    }
    for (size_t i = 0; i < reference.size(); ++i)
      if (!is_same_size || mask[i] != reference[i]) add_union(reference[i]);
    SampleScore score;
    for (const auto& [of, overlap] : std::map(overlaps.begin(), overlaps.end()))
      score.insert(score.end(), {of, overlap.both, overlap.either});
    return score;
  }

  double score(std::span<const SampleScore* const> samples) const override {
    std::map<double, Overlap> overlaps;
    for (const SampleScore* sample : samples)
      for (size_t i = 0; i < sample->size(); i += 3) {
        Overlap& overlap = overlaps[(*sample)[i]];
        overlap.both += (*sample)[i + 1];
        overlap.either += (*sample)[i + 2];
      }
    if (overlaps.empty()) return 100;
    double sum = 0;
    for (const auto& [of, overlap] : overlaps) sum += overlap.both / overlap.either;
    return 100 * (sum / static_cast<double>(overlaps.size()));
  }

 private:
  struct Overlap {
    double both = 0, either = 0;  // pixels
  };
  const std::string output_;
};

}  // namespace

std::shared_ptr<const Metric> mask_metric(std::string output) {
  return std::make_shared<MeanIntersectionOverUnion>(std::move(output));
}

}  // namespace anneal
