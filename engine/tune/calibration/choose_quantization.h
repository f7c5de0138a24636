// The choice of quantization for a layer from its measured errors.
#pragma once
#include <string_view>
#include <vector>

#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/tune/calibration/layer_errors.h"
#include "anneal/optimizer/calibration_table.h"

namespace anneal {

// "on", "off", "auto". Fails with kInvalidArgument, naming the option, on another text.
FitChoice parse_fit_choice(std::string_view option, std::string_view text);

struct QuantizationChoices {
  FitChoice fitted_weights = FitChoice::kAuto, bias = FitChoice::kAuto,
            equalized = FitChoice::kAuto;
};

struct ChosenQuantization {
  LayerQuantization layer;
  std::vector<float> bias;  // empty: none
};

// The mean squared error of the results after the mean error of each channel is subtracted.
// Cross-validated: the mean of one half of the batches is subtracted from the other half. Above the
// plain error if the means are noise; infinite if results were too large to be measured. REQUIRES:
// two batches
double error_without_bias(const ChannelErrors& errors);
double error_of(const ChannelErrors& errors);  // without correction; infinite as above
// The mean over the channels of the share of a channel's own mean square that its error is, 1 at
// most: the same whatever the channels are multiplied by. fitted: with fitted scales.
double error_by_channel(const LayerErrors& errors, bool fitted);

// All is finite: an error that cannot be measured is 1, so that the layer stays f32, and no bias is
// made of it.
ChosenQuantization choose_quantization(const LayerErrors& errors,
                                       const QuantizationChoices& choices);

}  // namespace anneal
