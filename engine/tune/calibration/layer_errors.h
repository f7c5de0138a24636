// The quantization error of each layer by itself, measured on samples.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "anneal/engine/data/dataset.h"
#include "anneal/engine/tune/samples/run_samples.h"
#include "anneal/graph/graph.h"
#include "anneal/optimizer/calibration_table.h"
#include "anneal/optimizer/pass.h"

namespace anneal {

// Of the difference that quantizing makes to each channel of a layer's results, given the same
// data: the mean, over every other batch and over the others, and the mean of its square.
struct ChannelErrors {
  std::array<std::vector<double>, 2> means;
  std::vector<double> squares;
};

struct LayerErrors {
  bool takes_bias = false;        // what is added to its accumulators is added to its results
  bool has_two_batches = false;   // were measured
  double result_square = 0;       // the mean square of the results themselves
  ChannelErrors largest, fitted;  // by the scales of its weights
  std::vector<double> result_squares{};  // of each channel of the results
  std::string data{};                    // the tensor that the layer reads
  std::vector<double> data_squares{};    // the mean square of each of its channels
};

// By the names of the layers that can be quantized and whose data has a range. The graph is one
// that insert_quantize would get. Runs it in f32, and beside each layer two like it that read their
// data and weights in 8 bits. Fails as building and run_samples() do.
std::map<std::string, LayerErrors> measure_layer_errors(
    const Graph& graph, const CalibrationTable& table, bool symmetric, const PassOptions& passes,
    const std::shared_ptr<const Dataset>& samples, const SampleRunOptions& options);

}  // namespace anneal
