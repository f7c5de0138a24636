// From an ONNX file to an engine file in one call: what an application that builds engines needs of
// libbuilder.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "anneal/core/shape.h"
#include "anneal/optimizer/precision.h"

namespace anneal {

struct OnnxBuildOptions {
  std::vector<std::string> targets = {"cpu"};  // one plan each: "cpu", "cpu:avx2", "sm_90"
  // By name, see `anneal passes`: not to run ("all": none is); if not empty, the only ones to run.
  std::vector<std::string> skip_passes, only_passes;
  std::vector<std::string> skip_kernels;  // kernels not to choose, by name: "cpu.conv.winograd"
  bool exact = false;  // leave out the passes and kernels that may change the last bits of results
  PrecisionOptions precision;  // int8 wants ranges: engine/tune/calibration/onnx_calibration.h
  // Choose between the CPU's kernels by their times on this machine with so many threads (0: one
  // per core), where the cache, a file that need not be there, has none; "": no cache.
  bool time_kernels = false;
  std::string timing_cache = {};
  int time_threads = 0;
  // false: fail with kUnsupported, naming each layer that would run on the CPU though the target is
  // a GPU
  bool allow_fallback = true;
  // By input name, for inputs of unknown size: the least and largest shape to accept, and the one
  // to optimize for.
  struct InputBounds {
    Dims min, opt, max;
  };
  std::map<std::string, InputBounds> input_bounds;
};

// The engine file is whole or untouched. Same model, options and targets: the same bytes, unless
// kernels are timed whose times the cache lacks. Fails with Error: kIo, kInvalidModel, kUnsupported
// (naming everything the model needs and Anneal lacks) or kInvalidArgument. Safe to call from
// several threads.
void build_engine(const std::string& onnx_path, const std::string& engine_path,
                  const OnnxBuildOptions& options = {});

}  // namespace anneal
