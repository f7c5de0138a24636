#include "anneal/engine/tune/search/tune_subject.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "anneal/core/bytes.h"
#include "anneal/core/version.h"
#include "anneal/engine/data/subset.h"
#include "anneal/graph/text/text.h"
#include "anneal/optimizer/precision/fingerprint.h"

namespace anneal {

using Json = nlohmann::ordered_json;

std::string key_of(std::span<const Precision> precisions) {
  std::string key;
  for (const Precision precision : precisions) key += "fhbi"[static_cast<size_t>(precision)];
  return key;
}

std::string tuning_subject(const Graph& model, const TuneSamples& samples, const Metric& metric,
                           const BuildOptions& options, std::span<const Precision> precisions,
                           bool is_timed) {
  Json subject = {{"anneal", version()},
                  {"model", fmt::format("{:016x}", fingerprint(model, options.threads))},
                  {"metric", metric.name()},
                  {"also", options.tuning.journal_key},
                  {"target", options.targets[0]},
                  {"threads", options.threads},
                  {"timed", is_timed},
                  {"symmetric", options.precision.symmetric},
                  {"exact", options.exact},
                  {"skip", options.skip_passes},
                  {"only", options.only_passes},
                  {"skip_kernels", options.skip_kernels},
                  {"groups", options.tuning.most_groups},
                  {"precisions", key_of(precisions)}};
  for (const ValueId input : model.inputs()) {
    const Value& value = model.value(input);
    subject["inputs"].push_back(value.name + " " + to_string(value.type(), model.sizes()));
  }
  if (options.precision.ranges) subject["ranges"] = to_string(*options.precision.ranges);
  for (const auto& [name, set] :
       {std::pair("calibrate", samples.calibrate), std::pair("search", samples.search),
        std::pair("confirm", samples.confirm)}) {
    uint64_t hash = 0;
    for (int64_t i = 0; set && i < set->size(); ++i)
      hash = (hash * 31 + sample_hash(set->name(i))) * 31 +
             static_cast<uint64_t>(set->label(i).value_or(-1));
    const bool is_judged = set != samples.calibrate && metric.wants_masks();
    for (int64_t i = 0; set && is_judged && i < set->size(); ++i)
      if (const auto mask = set->mask(i)) hash = hash_bytes(mask->bytes(), hash);
    // The contents under the same names may change.
    if (set && set->size() > 0)
      for (const int64_t i : {int64_t{0}, set->size() / 2, set->size() - 1})
        for (const SampleTensor& each : set->read(i))
          hash = hash * 31 + hash_bytes(each.tensor.bytes());
    subject[name] = fmt::format("{:016x}", hash);
  }
  return subject.dump();
}

}  // namespace anneal
