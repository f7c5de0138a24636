// The public interface of Anneal in one header. Applications that only run engines link
// anneal::engine; those that build, calibrate or tune them link anneal::builder as well.
//
//   auto engine = anneal::Engine::load("model.engine");
//   anneal::ExecutionContext context(engine);
//   context.set_input("image", anneal::view(pixels, {1, 3, 224, 224}));
//   context.run();
//   for (float score : context.output("scores").span<float>()) std::cout << score << "\n";
//
// Every function that fails throws anneal::Error (core/error.h) and leaves its arguments unchanged.
#pragma once
#include "anneal/core/error.h"
#include "anneal/core/tensor.h"
#include "anneal/core/tensor_view.h"
#include "anneal/core/version.h"
#include "anneal/engine/builder/build_options.h"
#include "anneal/engine/builder/build_report.h"
#include "anneal/engine/data/data_format.h"
#include "anneal/engine/data/dataset.h"
#include "anneal/engine/onnx/onnx_builder.h"
#include "anneal/engine/run/engine.h"
#include "anneal/engine/run/stream.h"
#include "anneal/engine/tune/frontier/frontier.h"
#include "anneal/engine/tune/metric/metric.h"
