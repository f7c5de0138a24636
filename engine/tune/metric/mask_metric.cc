#include "anneal/engine/tune/metric/mask_metric.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/engine/data/elements.h"
#include "anneal/engine/tune/metric/judged_output.h"

namespace anneal {
namespace {

// The class of each pixel; NaN: none, for all its scores are NaN. Of the truth, it does not count.
struct Mask {
  int64_t height = 0, width = 0;
  std::vector<double> classes;
};

bool is_of_scores(const Tensor& output) {
  const Dims& dims = output.dims();
  return is_float(output.dtype()) && dims.rank() == 4 && dims[0] == 1 && dims[1] > 1;
}
bool is_of_classes(const Tensor& output) {
  const Dims& dims = output.dims();
  if (!is_integer(output.dtype()) && output.dtype() != DataType::kBool) return false;
  return (dims.rank() == 3 || (dims.rank() == 4 && dims[1] == 1)) && dims[0] == 1;
}
// Probabilities of class 1, where class 0 is the only other.
bool is_of_chances(const Tensor& output) {
  const Dims& dims = output.dims();
  return is_float(output.dtype()) && dims.rank() == 4 && dims[0] == 1 && dims[1] == 1;
}

// Between which neighbours a pixel of another size lies, and how near it is to the second.
struct Between {
  size_t first = 0, second = 0;
  double share = 0;
};
// Centres stay on centres; beyond the outermost ones nothing changes.
std::vector<Between> places_of(int64_t from, int64_t to) {
  std::vector<Between> places;
  const double step = static_cast<double>(from) / static_cast<double>(to);
  for (int64_t i = 0; i < to; ++i) {
    const double at =
        std::clamp((static_cast<double>(i) + 0.5) * step - 0.5, 0.0, static_cast<double>(from - 1));
    const auto first = static_cast<size_t>(at);
    places.push_back({first, std::min(first + 1, static_cast<size_t>(from - 1)),
                      at - static_cast<double>(first)});
  }
  return places;
}

double blend(double first, double second, double share) {
  return share == 0 ? first : (1 - share) * first + share * second;  // infinite ones stay
}

// Calls take(pixel, score) for each pixel of one class's scores, resized.
template <class Take>
void for_each_score(const Tensor& output, int64_t of_class, const std::vector<Between>& rows,
                    const std::vector<Between>& columns, const Take& take) {
  const auto height = static_cast<size_t>(output.dims()[2]);
  const auto width = static_cast<size_t>(output.dims()[3]);
  const size_t size = size_of(output.dtype());
  const std::byte* plane =
      output.bytes().data() + static_cast<size_t>(of_class) * height * width * size;
  const auto score = [&](size_t y, size_t x) {
    return read_element(output.dtype(), plane + (y * width + x) * size);
  };
  std::vector<double> row(width);
  size_t pixel = 0;
  for (const Between& y : rows) {
    for (size_t x = 0; x < width; ++x)
      row[x] =
          y.share == 0 ? score(y.first, x) : blend(score(y.first, x), score(y.second, x), y.share);
    for (const Between& x : columns) take(pixel++, blend(row[x.first], row[x.second], x.share));
  }
}

Mask mask_of_scores(const Tensor& output, const Dims& size) {
  Mask mask{size[0], size[1], std::vector<double>(static_cast<size_t>(count(size)), NAN)};
  std::vector<double> best(mask.classes.size(), NAN);
  const auto rows = places_of(output.dims()[2], size[0]);
  const auto columns = places_of(output.dims()[3], size[1]);
  for (int64_t c = 0; c < output.dims()[1]; ++c)
    for_each_score(output, c, rows, columns, [&](size_t i, double score) {
      if (score > best[i] || (std::isnan(best[i]) && !std::isnan(score))) {
        best[i] = score;
        mask.classes[i] = static_cast<double>(c);
      }
    });
  return mask;
}

Mask mask_of_chances(const Tensor& output, const Dims& size, std::string_view name) {
  Mask mask{size[0], size[1], std::vector<double>(static_cast<size_t>(count(size)))};
  for_each_score(
      output, 0, places_of(output.dims()[2], size[0]), places_of(output.dims()[3], size[1]),
      [&](size_t i, double chance) {
        if (chance < 0 || chance > 1)
          fail(ErrorCode::kInvalidArgument,
               fmt::format("the output \"{}\" {}{} has one channel and holds {}, which is "
                           "no chance from 0 to 1: end the network with a Sigmoid, or "
                           "name another output",
                           name, anneal::to_string(output.dtype()), to_string(output.dims()),
                           chance));
        mask.classes[i] = std::isnan(chance) ? NAN : chance > 0.5 ? 1 : 0;
      });
  return mask;
}

Mask mask_of_classes(const Tensor& output, const Dims& size) {
  const int rank = output.dims().rank();
  const int64_t height = output.dims()[rank - 2], width = output.dims()[rank - 1];
  Mask mask{size[0], size[1], {}};
  const size_t element = size_of(output.dtype());
  // The pixel whose middle is nearest, of two the later.
  for (int64_t y = 0; y < size[0]; ++y)
    for (int64_t x = 0; x < size[1]; ++x) {
      const int64_t at =
          (2 * y + 1) * height / (2 * size[0]) * width + (2 * x + 1) * width / (2 * size[1]);
      mask.classes.push_back(
          read_element(output.dtype(), output.bytes().data() + static_cast<size_t>(at) * element));
    }
  return mask;
}

class MeanIntersectionOverUnion final : public Metric {
 public:
  MeanIntersectionOverUnion(std::string output, MasksOf truth)
      : output_(std::move(output)), truth_(truth) {}
  std::string name() const override {
    return truth_ == MasksOf::kSamples ? "mIoU" : "mIoU with f32's masks";
  }
  std::string unit() const override { return "%"; }
  bool wants_masks() const override { return truth_ == MasksOf::kSamples; }
  bool wants_reference() const override { return truth_ == MasksOf::kReference; }

  // For each class that occurs: the class, its intersection, its union; never empty.
  SampleScore judge(const Answer& answer) const override {
    const size_t index = masks_index(answer);
    if (truth_ == MasksOf::kSamples) {
      const Mask truth = truth_of(answer, index);
      return overlaps(mask_of(answer.outputs[index], {truth.height, truth.width}, answer, index),
                      truth, true);
    }
    check(answer.reference.size() == answer.outputs.size(), "a reference was wanted");
    const Tensor &output = answer.outputs[index], &reference = answer.reference[index];
    return overlaps(mask_of(output, sides_of(output), answer, index),
                    mask_of(reference, sides_of(reference), answer, index), false);
  }

  // NaN: there is nothing that counts.
  double score(std::span<const SampleScore* const> samples) const override {
    std::map<double, Overlap> overlaps;
    for (const SampleScore* sample : samples)
      for (size_t i = 0; i < sample->size(); i += 3) {
        Overlap& overlap = overlaps[(*sample)[i]];
        overlap.both += (*sample)[i + 1];
        overlap.either += (*sample)[i + 2];
      }
    double sum = 0, classes = 0;
    for (const auto& [of, overlap] : overlaps)
      if (overlap.either > 0) sum += overlap.both / overlap.either, ++classes;
    return classes == 0 ? std::numeric_limits<double>::quiet_NaN() : 100 * (sum / classes);
  }

 private:
  struct Overlap {
    double both = 0, either = 0;  // pixels
  };

  size_t masks_index(const Answer& answer) const {
    // Among several outputs, one with a single channel is less likely to be that of the masks.
    size_t index = find_output(answer, output_, [](const Tensor& output) {
      return is_of_scores(output) || is_of_classes(output);
    });
    if (index == answer.outputs.size()) index = find_output(answer, output_, is_of_chances);
    if (index == answer.outputs.size())
      fail_without_output(answer, output_,
                          "of masks, floats [1,classes,height,width] or integers [1,height,width]",
                          name());
    return index;
  }

  static Dims sides_of(const Tensor& output) {
    const int rank = output.dims().rank();
    return {output.dims()[rank - 2], output.dims()[rank - 1]};
  }

  static Mask mask_of(const Tensor& output, const Dims& size, const Answer& answer, size_t index) {
    if (output.count() == 0)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("the output \"{}\" {} of the sample \"{}\" is empty", answer.names[index],
                       to_string(output.dims()), answer.sample));
    if (is_of_scores(output)) return mask_of_scores(output, size);
    if (is_of_classes(output)) return mask_of_classes(output, size);
    return mask_of_chances(output, size, answer.names[index]);
  }

  Mask truth_of(const Answer& answer, size_t index) const {
    if (!answer.mask)
      fail(ErrorCode::kInvalidArgument,
           fmt::format(
               "the sample \"{}\" has no mask, which {} needs: give masks, or choose miou-f32, "
               "which compares with the masks of f32",
               answer.sample, name()));
    const Tensor& given = *answer.mask;
    if (given.dtype() != DataType::kI32 || given.dims().rank() != 2)
      fail(ErrorCode::kInvalidArgument,
           fmt::format("the mask of the sample \"{}\" is {}{}; masks are i32 [height,width]",
                       answer.sample, anneal::to_string(given.dtype()), to_string(given.dims())));
    const Tensor& output = answer.outputs[index];
    // In an integer output, any number may be a class.
    const int64_t classes = is_of_scores(output)    ? output.dims()[1]
                            : is_of_classes(output) ? std::numeric_limits<int64_t>::max()
                                                    : 2;
    Mask truth{given.dims()[0], given.dims()[1], {}};
    for (const int32_t of : given.as<int32_t>()) {
      if (of >= classes)
        fail(ErrorCode::kInvalidArgument,
             fmt::format(
                 "the mask of the sample \"{}\" has the class {}, but the output \"{}\" has {} "
                 "classes, from 0 on; --ignore-label names the one that does not count, and "
                 "--label-offset is added to all others",
                 answer.sample, of, answer.names[index], classes));
      truth.classes.push_back(of < 0 ? NAN : of);
    }
    return truth;
  }

  // Whether pixels without a class in the truth count at all.
  static SampleScore overlaps(const Mask& mask, const Mask& truth, bool ignores) {
    // Sizes that depend on values have no pixel in common where they differ.
    const bool is_same_size = mask.height == truth.height && mask.width == truth.width;
    std::unordered_map<double, Overlap> overlaps;
    const auto add_union = [&](double of) {
      if (!std::isnan(of)) ++overlaps[of].either;
    };
    for (size_t i = 0; i < mask.classes.size(); ++i) {
      if (ignores && std::isnan(truth.classes[i])) continue;
      add_union(mask.classes[i]);
      if (is_same_size && mask.classes[i] == truth.classes[i]) ++overlaps[mask.classes[i]].both;
    }
    for (size_t i = 0; i < truth.classes.size(); ++i)
      if (!is_same_size || mask.classes[i] != truth.classes[i]) add_union(truth.classes[i]);
    SampleScore score;
    for (const auto& [of, overlap] : std::map(overlaps.begin(), overlaps.end()))
      score.insert(score.end(), {of, overlap.both, overlap.either});
    if (score.empty()) score = {0, 0, 0};
    return score;
  }

  const std::string output_;
  const MasksOf truth_;
};

}  // namespace

std::shared_ptr<const Metric> mask_metric(std::string output, MasksOf truth) {
  return std::make_shared<MeanIntersectionOverUnion>(std::move(output), truth);
}

}  // namespace anneal
