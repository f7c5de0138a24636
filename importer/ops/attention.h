// Multi-head attention, for operators that express it in one node.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "anneal/importer/node/node.h"

namespace anneal {

// Which keys a query sees, apart from the mask: those from `left` before it to `right` behind it,
// negative for no limit. Query i is at position i + offset.
struct VisibleKeys {
  int64_t left = -1, right = -1;
  ValueId offset = ValueId::kNone;   // i64[1] or [batch,1,1,1]
  ValueId lengths = ValueId::kNone;  // i64[batch,1,1,1]: keys from there on are padding
  bool limited() const { return left >= 0 || right >= 0; }
};

// q, k, v: [batch, heads, length, width]; k and v may have fewer heads, which groups of q's share.
struct AttentionHeads {
  ValueId q = ValueId::kNone, k = ValueId::kNone, v = ValueId::kNone;
  ValueId mask = ValueId::kNone;  // bool, or numbers to add; broadcasts to the scores
  VisibleKeys visible = {};
  ValueId sink = ValueId::kNone;  // one score more, of a key without a value: [1, heads or 1, 1, 1]
  double scale = 1, softcap = 0;
};

enum class AttentionStage : uint8_t { kProduct, kCapped, kBiased, kSoftmax };
struct AttentionOutputs {
  ValueId result = ValueId::kNone;  // [batch, heads, queries, width of v]
  ValueId stage = ValueId::kNone;   // the scores at the stage that is wanted, as output 3
};
AttentionOutputs attend(Node& node, const AttentionHeads& heads,
                        std::optional<AttentionStage> wanted = std::nullopt);

// The mask, its keys filled up with hidden ones.
ValueId padded_mask(Node& node, ValueId mask, Size keys);
// [batch, length, heads * width] as [batch, heads, length, width], which x may be already.
ValueId split_heads(Node& node, ValueId x, std::optional<int64_t> heads, std::string_view name);
// [batch, heads, length, width] as [batch, length, heads * width]: the node's output 0.
ValueId join_heads(Node& node, ValueId x);
// `own` behind the elements of the input `past` along axis 2, as that output; itself without past.
ValueId after_past(Node& node, ValueId own, int past, std::string_view name, int output);
// Attribute scale, or 1 / sqrt(width of q's heads) where it is absent or 0.
double attention_scale(Node& node, ValueId q);
inline const Shape& shape_of(const Node& node, ValueId value) {
  return node.graph().value(value).type().shape;
}

}  // namespace anneal
