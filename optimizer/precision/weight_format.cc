#include "anneal/optimizer/precision/weight_format.h"

#include <fmt/format.h>

#include <charconv>

#include "anneal/core/fail.h"
#include "anneal/optimizer/analysis/scaling.h"

namespace anneal {
namespace {

constexpr int64_t kBlockOf4Bits = 32, kMostBlock = 1 << 24;

}  // namespace

WeightFormat parse_weight_format(const std::string& text) {
  if (text.empty()) return {};
  const size_t colon = text.find(':');
  const std::string type = text.substr(0, colon);
  WeightFormat format{.bits = type == "int8" ? 8 : type == "int4" ? 4 : 0};
  if (format.bits == 0)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("weight format \"{}\": give int8, int4, or one with the length of its blocks, "
                     "as int4:64",
                     text));
  if (colon == std::string::npos) {
    if (format.bits == 4) format.block = kBlockOf4Bits;
    return format;
  }
  const char *begin = text.data() + colon + 1, *end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, format.block);
  if (error != std::errc() || stop != end || format.block < kLeastWeightBlock ||
      format.block > kMostBlock || format.block % 2 != 0)
    fail(ErrorCode::kInvalidArgument,
         fmt::format("weight format \"{}\": a block has an even number of weights, {} or more",
                     text, kLeastWeightBlock));
  return format;
}

}  // namespace anneal
