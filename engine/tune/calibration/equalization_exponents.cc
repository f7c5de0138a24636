#include "anneal/engine/tune/calibration/equalization_exponents.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <unordered_set>

#include "anneal/engine/tune/calibration/channel_magnitudes.h"
#include "anneal/optimizer/analysis/channel_weights.h"
#include "anneal/optimizer/analysis/cross_layer_equalization.h"
#include "anneal/optimizer/precision/quantizable.h"
#include "anneal/optimizer/precision/quantized_weights.h"

namespace anneal {
namespace {

// The largest part of the readers' errors that may be left if kAuto changes a graph.
constexpr double kMostErrorLeft = 0.5;
// How much of a channel's spread the factors take from the data, the rest from the weights; and how
// far beyond the widest channel they may go, as a power of two.
constexpr double kShares[] = {0.5, 0.75, 1};
constexpr double kBeyond[] = {0, 0.25, 0.5};

// A product that undoes factors, with its inputs and outputs.
struct Reader {
  std::string name;
  ChannelWeights layout;
  Tensor weights;
  int64_t weights_axis = 0;
  ValueId data = ValueId::kNone, result = ValueId::kNone;
};

// For each channel that the weights read: the sum of their squares.
std::vector<double> squares_by_read(const Reader& reader) {
  const auto values = reader.weights.as<float>();
  std::vector<double> squares(static_cast<size_t>(reader.layout.read_count));
  for_each_weight(reader.layout, [&](size_t at, size_t read, size_t) {
    squares[read] += double{values[at]} * values[at];
  });
  return squares;
}

struct Component {
  ValueId tensor = ValueId::kNone;  // that the writer gives, or that is multiplied for the readers
  int64_t channels = 0;
  int axis = 0;
  std::vector<Reader> readers;
};

std::optional<Reader> reader_at(const Graph& graph, LayerId id) {
  const auto layer = quantizable(graph, id);
  auto layout = channel_weights(graph, id);
  if (!layer || !layout) return std::nullopt;
  const Tensor& weights = *graph.constant(layer->weights);
  if (!why_not_quantized(weights, layer->channel_axis).empty()) return std::nullopt;
  return Reader{graph.layer(id).name, std::move(*layout), weights,
                layer->channel_axis,  layer->data,        graph.layer(id).outputs[0]};
}

std::vector<std::string> names_of_readers(const Component& component) {
  std::vector<std::string> names;
  for (const Reader& reader : component.readers) names.push_back(reader.name);
  return names;
}

// Components of writers, then, of the inputs of other products, those that need a layer of their
// own.
class Components {
 public:
  explicit Components(const Graph& graph) : graph_(graph) {
    for (const LayerId id : graph.order())
      if (quantizable(graph, id)) add(scalable_channels(graph, id));
    for (const LayerId id : graph.order()) {
      const auto layer = quantizable(graph, id);
      if (layer && !readers_.contains(id)) add(scalable_reads(graph, layer->data));
    }
  }
  std::vector<Component> take() { return std::move(components_); }

 private:
  void add(const std::optional<ScalableChannels>& channels) {
    if (!channels) return;
    Component component{channels->value, channels->count, channels->axis, {}};
    for (const LayerId reader : channels->readers) {
      readers_.insert(reader);
      if (auto found = reader_at(graph_, reader)) component.readers.push_back(std::move(*found));
    }
    if (!component.readers.empty()) components_.push_back(std::move(component));
  }

  const Graph& graph_;
  std::vector<Component> components_;
  std::unordered_set<LayerId> readers_;
};

// For each channel of a product's result: the weight of an error in it.
using Importance = std::vector<double>;

// The error of one product's results that rounding its data and its weights makes, over their mean
// square, if channel c of the data is multiplied by factors[c].
double pair_error(const Reader& reader, const Magnitudes& data, const Magnitudes& result,
                  const Importance& importance, const std::vector<double>& factors, bool symmetric,
                  bool fits_weights) {
  TensorRange range;
  std::vector<double> inverses, squares;  // of each channel; of its data times the factor
  for (size_t c = 0; c < factors.size(); ++c) {
    range.min = std::min(range.min, static_cast<float>(factors[c] * data.least[c]));
    range.max = std::max(range.max, static_cast<float>(factors[c] * data.most[c]));
    inverses.push_back(1 / factors[c]);
    squares.push_back(factors[c] * factors[c] * data.square[c]);
  }
  const double step = scaling_for(range, symmetric).scales[0];
  const auto weights =
      scaled_weights(reader.weights, reader.layout, inverses, FactorOf::kReadChannel);
  if (!weights) return std::numeric_limits<double>::infinity();
  const QuantizedWeights rounded = quantize_channels(*weights, reader.weights_axis, fits_weights);
  const auto values = weights->as<float>();
  const auto integers = rounded.integers.as<int8_t>();
  std::vector<double> errors(static_cast<size_t>(reader.layout.written_count));
  for_each_weight(reader.layout, [&](size_t at, size_t read, size_t written) {
    if (!(squares[read] > 0)) return;  // a channel that is 0 is so in 8 bits, too
    const double weight = values[at];
    const double lost = weight - integers[at] * double{rounded.scaling.scales[written]};
    errors[written] += step * step / 12 * weight * weight + lost * lost * squares[read];
  });
  double error = 0, square = 0;
  for (size_t i = 0; i < errors.size(); ++i) {
    error += errors[i] * importance[i];
    square += result.square[i] * importance[i];
  }
  return square > 0 ? error / square : 0;
}

class Choice {
 public:
  // importances: of each reader's results.
  Choice(const Component& component, const ChannelMagnitudes& measured,
         std::vector<Importance> importances, const ExponentOptions& options)
      : component_(component),
        measured_(measured),
        importances_(std::move(importances)),
        options_(options) {
    const auto channels = static_cast<size_t>(component.channels);
    largest_.resize(channels);
    weights_.resize(channels);
    for (const Reader& reader : component.readers) take(reader);
  }

  // Empty: none is better by enough. Candidates are compared by weights with scales of their
  // largest magnitudes, which are quick to find; the best then as it will be.
  std::vector<int> best() const {
    std::vector<int> best;
    double least = std::numeric_limits<double>::infinity();
    for (const double share : kShares)
      for (const double beyond : kBeyond) {
        if (only_shares_fully() && share < 1) continue;
        std::vector<int> exponents = shared(share, beyond);
        const double found = error(exponents, false);
        if (!(found < least)) continue;
        least = found;
        best = std::move(exponents);
      }
    if (best.empty()) return best;
    const double now = error(std::vector<int>(best.size()), options_.fits_weights);
    const double enough = options_.use == FitChoice::kAuto ? kMostErrorLeft * now : now;
    if (!(error(best, options_.fits_weights) < enough)) best.clear();
    return best;
  }

 private:
  void take(const Reader& reader) {
    const Magnitudes& data = measured_.of(reader.data, component_.axis);
    for (size_t c = 0; c < largest_.size(); ++c)
      largest_[c] = std::max({largest_[c], -data.least[c], data.most[c]});
    const auto values = reader.weights.as<float>();
    for_each_weight(reader.layout, [&](size_t at, size_t read, size_t) {
      weights_[read] = std::max(weights_[read], double{std::abs(values[at])});
    });
  }

  // Whether each result is of one channel, as depthwise: a scale per result takes any factor.
  bool only_shares_fully() const {
    return std::ranges::all_of(component_.readers, [](const Reader& reader) {
      return reader.layout.j_count == 1 && reader.layout.outer == 1 &&
             reader.layout.read_count == reader.layout.i_count;
    });
  }

  // Channel c by 2^exponents[c]: near (widest data / its data)^share * (its weights / the largest
  // weights)^(1 - share).
  std::vector<int> shared(double share, double beyond) const {
    const double widest = std::ranges::max(largest_), heaviest = std::ranges::max(weights_);
    std::vector<int> exponents(largest_.size());
    if (!std::isfinite(widest)) return exponents;  // calibrating the ranges will report it
    std::map<int, int> counts;
    for (size_t c = 0; c < exponents.size(); ++c) {
      if (largest_[c] == 0 || weights_[c] == 0) continue;
      const double factor =
          share * std::log2(widest / largest_[c]) + (1 - share) * std::log2(weights_[c] / heaviest);
      exponents[c] = static_cast<int>(std::floor(factor + beyond + 1e-6));
      ++counts[exponents[c]];
    }
    // Most channels do not change.
    const auto usual =
        std::ranges::max_element(counts, {}, [](const auto& exponent) { return exponent.second; });
    for (size_t c = 0; c < exponents.size(); ++c)
      if (largest_[c] != 0 && weights_[c] != 0)
        exponents[c] = std::clamp(exponents[c] - usual->first, -CalibrationTable::kMostExponent,
                                  CalibrationTable::kMostExponent);
    return exponents;
  }

  double error(const std::vector<int>& exponents, bool fits_weights) const {
    std::vector<double> factors;
    for (const int exponent : exponents) factors.push_back(std::ldexp(1.0, exponent));
    double sum = 0;
    for (size_t i = 0; i < importances_.size(); ++i) {
      const Reader& reader = component_.readers[i];
      sum += pair_error(reader, measured_.of(reader.data, component_.axis),
                        measured_.of(reader.result, reader.layout.result_axis), importances_[i],
                        factors, options_.symmetric, fits_weights);
    }
    return sum;
  }

  const Component& component_;
  const ChannelMagnitudes& measured_;
  std::vector<Importance> importances_;
  const ExponentOptions& options_;
  std::vector<double> largest_,
      weights_;  // magnitudes of each channel's data, and of the weights that read it
};

// The weight of an error is that of the product that reads it, if all its readers are products,
// after factors of this calibration or of the training are undone.
std::vector<Importance> importances_of(const Component& component,
                                       const std::vector<Component>& all) {
  std::vector<Importance> importances;
  for (const Reader& reader : component.readers) {
    Importance importance(static_cast<size_t>(reader.layout.written_count));
    const auto reads = std::ranges::find_if(all, [&](const Component& other) {
      return other.tensor == reader.result && other.axis == reader.layout.result_axis &&
             other.channels == reader.layout.written_count;
    });
    if (reads == all.end()) std::ranges::fill(importance, 1);
    for (size_t i = 0; reads != all.end() && i < reads->readers.size(); ++i) {
      const std::vector<double> squares = squares_by_read(reads->readers[i]);
      std::ranges::transform(importance, squares, importance.begin(), std::plus<>());
    }
    importances.push_back(std::move(importance));
  }
  return importances;
}

}  // namespace

std::map<std::string, ChosenExponents, std::less<>> choose_exponents(
    const Graph& graph, const ExponentOptions& exponents, const PassOptions& passes,
    const std::shared_ptr<const Dataset>& samples, const SampleRunOptions& options) {
  std::map<std::string, ChosenExponents, std::less<>> chosen;
  if (exponents.use == FitChoice::kOff) return chosen;
  const std::vector<Component> all = Components(graph).take();
  std::vector<const Component*> looked_at;
  for (const Component& component : all)
    if (!exponents.may_equalize || exponents.may_equalize(names_of_readers(component)))
      looked_at.push_back(&component);
  if (looked_at.empty()) return chosen;
  ChannelMagnitudes measured(graph);
  for (const Component* component : looked_at)
    for (const Reader& reader : component->readers) {
      measured.add(reader.data, component->axis);
      measured.add(reader.result, reader.layout.result_axis);
    }
  measured.run(passes, samples, options);
  for (const Component* component : looked_at)
    if (auto found =
            Choice(*component, measured, importances_of(*component, all), exponents).best();
        !found.empty())
      chosen[graph.value(component->tensor).name] = {std::move(found),
                                                     names_of_readers(*component)};
  return chosen;
}

}  // namespace anneal
