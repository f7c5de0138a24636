#include "anneal/engine/tune/metric/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/core/new_tensor.h"
#include "anneal/engine/data/batch_reader.h"
#include "anneal/engine/data/elements.h"
#include "anneal/engine/tune/metric/scores.h"
#include "anneal/engine/tune/samples/batches.h"

namespace anneal {
namespace {

double mean_value(std::span<const double> values) {
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

double element(const Tensor& tensor, size_t i) {
  return read_element(tensor.dtype(), tensor.bytes().data() + i * size_of(tensor.dtype()));
}

double damage_of(const Tensor& output, const Tensor& reference) {
  if (output.dims() != reference.dims()) return 1;  // sizes that depend on values
  if (!is_float(output.dtype())) {
    const size_t size = size_of(output.dtype());
    const auto a = output.bytes(), b = reference.bytes();
    if (size == 0 || a.empty()) return 0;
    size_t different = 0;
    for (size_t at = 0; at < a.size(); at += size)
      different += std::memcmp(a.data() + at, b.data() + at, size) != 0 ? 1 : 0;
    return static_cast<double>(different * size) / static_cast<double>(a.size());
  }
  double noise = 0, signal = 0;
  const auto elements = static_cast<size_t>(count(output.dims()));
  for (size_t i = 0; i < elements; ++i) {
    const double is = element(output, i), should_be = element(reference, i);
    if (!std::isfinite(should_be)) continue;
    noise += (is - should_be) * (is - should_be);
    signal += should_be * should_be;
  }
  if (noise == 0) return 0;
  return std::isfinite(noise) && noise < signal ? noise / signal : 1;
}

double margin_of(std::span<const Tensor> outputs) {
  for (const Tensor& output : outputs) {
    const auto layout = score_layout(output.dtype(), output.dims(), 2);
    if (!layout || layout->samples != 1) continue;
    const auto best = best_classes(output, *layout, 0, 2);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < layout->classes; ++i) {
      const double score = element(output, static_cast<size_t>(i));
      sum += score, squares += score * score;
    }
    const auto classes = static_cast<double>(layout->classes);
    const double variance = squares / classes - sum / classes * (sum / classes);
    return variance > 0 ? (best[0].score - best[1].score) / std::sqrt(variance) : 0;
  }
  return 0;
}

// The part of sample `i` of a batch.
Tensor part_of_batch(const Tensor& output, int64_t i, int64_t batch, const std::string& name) {
  if (batch == 1) return output;
  Dims dims = output.dims();
  if (dims.rank() == 0 || dims[0] % batch != 0)
    fail(ErrorCode::kInvalidArgument,
         fmt::format(
             "the output \"{}\" is {}{}, which has no part for each of {} samples of a batch", name,
             anneal::to_string(output.dtype()), to_string(dims), batch));
  dims[0] /= batch;
  auto part = allocate_tensor(output.dtype(), dims);
  const size_t bytes = part.data.size();
  if (bytes > 0)
    std::memcpy(part.data.data(), output.bytes().data() + static_cast<size_t>(i) * bytes, bytes);
  return part.tensor;
}

size_t bytes_of(std::span<const Tensor> tensors) {
  size_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor.bytes().size();
  return bytes;
}

// A context that is fed batches.
class Runner {
 public:
  Runner(const std::shared_ptr<const Engine>& engine, int threads)
      : engine_(engine), context_(engine, {.threads = threads}) {}

  std::vector<Tensor> run(const Batch& batch, int64_t size) {
    const auto inputs = fed(*engine_, batch, size);
    for (const SampleTensor& input : inputs) context_.set_input(input.input, input.tensor.view());
    context_.run();
    std::vector<Tensor> outputs;
    for (const TensorInfo& port : engine_->outputs())
      outputs.push_back(dense_copy(context_.output(port.name)));
    return outputs;
  }

 private:
  const std::shared_ptr<const Engine> engine_;
  ExecutionContext context_;
};

}  // namespace

double Judgement::output_error() const { return mean_value(damages); }

std::string to_string(const Judgement& judgement) {
  return nlohmann::ordered_json{{"scores", judgement.scores}, {"damages", judgement.damages}}
      .dump();
}

std::optional<Judgement> parse_judgement(const std::string& text, size_t samples) {
  Judgement judgement;
  try {
    const auto json = nlohmann::ordered_json::parse(text);
    json.at("scores").get_to(judgement.scores);
    json.at("damages").get_to(judgement.damages);
  } catch (const nlohmann::ordered_json::exception&) {
    return std::nullopt;
  }
  if (judgement.scores.size() != samples || judgement.damages.size() != samples ||
      std::ranges::any_of(judgement.scores, &SampleScore::empty))
    return std::nullopt;
  return judgement;
}

// Calls take(sample, outputs, reference's outputs).
template <class Take>
void Judge::for_each_answer(const std::shared_ptr<const Engine>& engine, const Take& take) const {
  const int64_t size = batch_size(*engine, samples_->read(0), 0);
  Runner runner(engine, options_.threads);
  std::optional<Runner> reference_runner;
  BatchReader reader(
      samples_,
      {.batch = size, .threads = options_.data_threads, .ahead = std::max<int64_t>(4 / size, 1)});
  while (const auto batch = reader.next()) {
    const Outputs outputs = runner.run(*batch, size);
    Outputs reference;
    const bool is_kept = batch->first + batch->count <= static_cast<int64_t>(kept_.size());
    if (!is_kept && engine != reference_) {
      if (!reference_runner) reference_runner.emplace(reference_, options_.threads);
      reference = reference_runner->run(*batch, size);
    }
    for (int64_t i = 0; i < batch->count; ++i) {
      const auto part = [&](const Outputs& of) {
        Outputs parts;
        for (size_t k = 0; k < of.size(); ++k)
          parts.push_back(part_of_batch(of[k], i, size, names_[k]));
        return parts;
      };
      const Outputs answer = part(outputs);
      const int64_t sample = batch->first + i;
      if (engine == reference_) {
        take(sample, answer, answer);
      } else if (is_kept) {
        take(sample, answer, kept_[static_cast<size_t>(sample)]);
      } else {
        take(sample, answer, part(reference));
      }
    }
  }
}

SampleScore Judge::score_of(int64_t sample, const Outputs& outputs,
                            const Outputs& reference) const {
  const std::string name = samples_->name(sample);
  Answer answer{name, samples_->label(sample), names_, outputs, reference};
  if (metric_->wants_masks()) answer.mask = samples_->mask(sample);
  return metric_->judge(answer);
}

Judge::Judge(std::shared_ptr<const Metric> metric, std::shared_ptr<const Engine> reference,
             std::shared_ptr<const Dataset> samples, const JudgeOptions& options)
    : metric_(std::move(metric)),
      reference_(std::move(reference)),
      samples_(std::move(samples)),
      options_(options) {
  for (const TensorInfo& port : reference_->outputs()) names_.push_back(port.name);
  size_t left = options_.kept_bytes;
  std::vector<Outputs> kept;
  for_each_answer(reference_, [&](int64_t sample, const Outputs& outputs, const Outputs&) {
    of_reference_.scores.push_back(score_of(sample, outputs, outputs));
    if (std::ranges::count(of_reference_.scores.back(), std::numeric_limits<double>::lowest()) != 0)
      fail(
          ErrorCode::kInvalidArgument,
          fmt::format("the metric {} gives no number for the sample \"{}\" of the model in f32, so "
                      "that there is nothing to compare with",
                      metric_->name(), samples_->name(sample)));
    of_reference_.damages.push_back(0);
    margins_.push_back(margin_of(outputs));
    if (const size_t bytes = bytes_of(outputs);
        kept.size() + 1 == margins_.size() && bytes <= left) {
      left -= bytes;
      kept.push_back(outputs);
    }
  });
  kept_ = std::move(kept);
}

Judgement Judge::judge(const std::shared_ptr<const Engine>& engine) const {
  Judgement found;
  for_each_answer(engine, [&](int64_t sample, const Outputs& outputs, const Outputs& reference) {
    found.scores.push_back(score_of(sample, outputs, reference));
    double output_error = 0;
    for (size_t i = 0; i < outputs.size(); ++i) output_error += damage_of(outputs[i], reference[i]);
    found.damages.push_back(outputs.empty() ? 0
                                            : output_error / static_cast<double>(outputs.size()));
  });
  return found;
}

}  // namespace anneal
