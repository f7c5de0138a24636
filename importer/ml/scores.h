// What the classifiers and regressors of ai.onnx.ml share: rows of features, labels of classes, and
// the function that attribute post_transform names.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "anneal/importer/node/node.h"

namespace anneal {

// The features of input 0 as [rows, features], f64 where they are f64 and else f32. One axis is one
// row.
ValueId feature_rows(Node& node);
// The number of features; nullopt if only a run knows it.
std::optional<int64_t> feature_count(const Node& node, ValueId rows);
// The rows for a model with `count` features. A run with another number of features fails where
// only a run knows it.
ValueId with_features(Node& node, ValueId rows, int64_t count);

enum class PostTransform : uint8_t { kNone, kSoftmax, kLogistic, kSoftmaxZero, kProbit };
PostTransform read_post_transform(Node& node);
// f(scores[rows, classes]), of the type of scores.
ValueId transformed(Node& node, ValueId scores, PostTransform transform);

// Of a regressor. ONNX Runtime, by whose results converters are tested, transforms a single target
// by PROBIT alone.
ValueId transformed_targets(Node& node, ValueId scores, int64_t targets, PostTransform transform);

// The score of a classifier that has one score for two classes, and its rule for the label.
struct TwoClasses {
  ValueId score = ValueId::kNone;  // [rows, 1], of the second class
  double threshold = 0;            // the label is that of the second class above it
  bool are_probabilities = false;  // the first score is 1 - score, else -score
};

// Output 0 of a classifier, the labels, and output 1, the scores.
class ClassifierOutputs {
 public:
  // ints: the attribute of labels that are integers.
  ClassifierOutputs(Node& node, std::string_view ints);
  int64_t count() const { return count_; }
  // scores: [rows, count()]. The label is that of the largest score.
  Outputs of_scores(ValueId scores, PostTransform transform);
  // indices: i64[rows], the class of each row, whatever its scores are.
  Outputs of_scores(ValueId scores, ValueId indices, PostTransform transform);
  // indices: as above; kNone: the threshold decides the class.
  Outputs of_two(const TwoClasses& classes, PostTransform transform,
                 ValueId indices = ValueId::kNone);
  // [rows]: 1 where the score is above the threshold, else 0.
  ValueId index_of_two(const TwoClasses& classes);

 private:
  ValueId labels_of(ValueId indices);
  Outputs outputs(ValueId indices, ValueId scores);

  Node& node_;
  std::vector<int64_t> labels_;
  int64_t count_ = 0;
  bool has_texts_ = false;
};

}  // namespace anneal
