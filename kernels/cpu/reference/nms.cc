// NonMaxSuppression: of each class of each image, boxes by falling score, without those that
// overlap one taken before. All arithmetic is in f32, so that boxes at the threshold go the way
// they go elsewhere.
#include <algorithm>
#include <cmath>

#include "anneal/kernels/cpu/base/entries.h"
#include "anneal/kernels/cpu/reference/reference.h"
#include "anneal/kernels/nms_limits.h"

namespace anneal::cpu {
namespace {

struct Box {
  float y1 = 0, x1 = 0, y2 = 0, x2 = 0;  // y1 <= y2, x1 <= x2
  float area = 0;
};

struct Candidate {
  float score = 0;
  int64_t box = 0;
  // Of equal scores the lower index is better. No score is NaN.
  bool operator<(const Candidate& other) const {
    return score < other.score || (score == other.score && box > other.box);
  }
};

Box box_at(const TensorView& boxes, int64_t image, int64_t index, bool by_centre) {
  const auto* from = boxes.as<const float>() + image * boxes.strides[0] + index * boxes.strides[1];
  const int64_t step = boxes.strides[2];
  const float a = from[0], b = from[step], c = from[2 * step], d = from[3 * step];
  Box box;
  if (by_centre) {
    box = {b - d / 2, a - c / 2, b + d / 2, a + c / 2};
  } else {
    box = {std::min(a, c), std::min(b, d), std::max(a, c), std::max(b, d)};
  }
  box.area = (box.y2 - box.y1) * (box.x2 - box.x1);
  return box;
}

bool overlap(const Box& a, const Box& b, float threshold) {
  const float width = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
  const float height = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
  if (!(width > 0 && height > 0)) return false;
  const float both = width * height, either = a.area + b.area - both;
  return a.area > 0 && b.area > 0 && either > 0 && both / either > threshold;
}

// The boxes that one class of one image keeps, best first. scores: [S].
std::vector<int64_t> kept_boxes(const std::vector<Box>& boxes, const TensorView& scores,
                                const NmsLimits& limits) {
  std::vector<Candidate> candidates;
  for (int64_t i = 0; i < scores.dims[0]; ++i) {
    const float score = scores.as<const float>()[i * scores.strides[0]];
    if (limits.score ? score > *limits.score : !std::isnan(score)) candidates.push_back({score, i});
  }
  std::make_heap(candidates.begin(), candidates.end());
  std::vector<int64_t> kept;
  std::vector<Box> kept_boxes;
  while (!candidates.empty() && static_cast<int64_t>(kept.size()) < limits.most) {
    std::pop_heap(candidates.begin(), candidates.end());
    const int64_t index = candidates.back().box;
    candidates.pop_back();
    const Box& box = boxes[static_cast<size_t>(index)];
    if (std::any_of(kept_boxes.begin(), kept_boxes.end(),
                    [&](const Box& other) { return overlap(other, box, limits.overlap); }))
      continue;
    kept.push_back(index);
    kept_boxes.push_back(box);
  }
  return kept;
}

struct Selection final : DataDependentDims {
  std::vector<std::vector<int64_t>> boxes;  // by image and class
};

std::unique_ptr<DataDependentDims> find_boxes(const NonMaxSuppression& op,
                                              std::span<const TensorView> inputs,
                                              ThreadTeam& team) {
  const TensorView &boxes = inputs[0], &scores = inputs[1];
  const NmsLimits limits = nms_limits(inputs);
  auto selected = std::make_unique<Selection>();
  selected->dims = {Dims{0, 3}};
  if (count(scores.dims) == 0 || limits.most == 0) return selected;
  const int64_t images = scores.dims[0], classes = scores.dims[1];
  std::vector<std::vector<Box>> by_image(static_cast<size_t>(images));
  for (int64_t image = 0; image < images; ++image)
    for (int64_t i = 0; i < boxes.dims[1]; ++i)
      by_image[static_cast<size_t>(image)].push_back(box_at(boxes, image, i, op.center_point_box));
  selected->boxes.resize(static_cast<size_t>(images * classes));
  team.for_ranges(images * classes, kGrain / boxes.dims[1] + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      selected->boxes[static_cast<size_t>(i)] =
          kept_boxes(by_image[static_cast<size_t>(i / classes)],
                     at(at(scores, 0, i / classes), 0, i % classes), limits);
  });
  for (const auto& kept : selected->boxes)
    selected->dims[0][0] += static_cast<int64_t>(kept.size());
  return selected;
}

void store_boxes(const NonMaxSuppression&, const ReferenceArgs& args) {
  const auto& selected = static_cast<const Selection&>(*args.found);
  const TensorView& y = args.results[0];
  const int64_t classes = args.inputs[1].dims[1];
  auto* row = y.as<int64_t>();
  for (size_t i = 0; i < selected.boxes.size(); ++i) {
    for (const int64_t box : selected.boxes[i]) {
      row[0] = static_cast<int64_t>(i) / classes;
      row[y.strides[1]] = static_cast<int64_t>(i) % classes;
      row[2 * y.strides[1]] = box;
      row += y.strides[0];
    }
  }
}

constexpr KernelEntry kNmsEntries[] = {
    finding_reference<NonMaxSuppression, find_boxes, store_boxes>("cpu.nms.reference"),
};

}  // namespace

std::span<const KernelEntry> reference_nms_entries() { return kNmsEntries; }

}  // namespace anneal::cpu
