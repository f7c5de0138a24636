// Pictures from files to the answers of a network, in three ways: one stage after the other, with
// threads that decode ahead, and with these and two contexts. Which stage is the bottleneck?
//
//   pipeline [--model FILE] [--data FOLDER] [--device DEVICE] [--batch N] [--pictures N]
//            [--threads N] [--out FILE]
//
// The times of all stages go to FILE as JSON, which draw.py draws.
#include <anneal/anneal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "modes.h"
#include "pictures.h"
#include "results.h"

namespace {

constexpr int kMadeWidth = 640, kMadeHeight = 480;

constexpr char kUsage[] =
    "usage: pipeline [OPTIONS]\n"
    "  --model FILE     model or engine of one input of pictures, f32\n"
    "                   (default: samples/glyphs/glyphs.onnx)\n"
    "  --data FOLDER    pictures; their dataset.json says how they are scaled\n"
    "                   (default: JPEG files of 640x480 that the program makes)\n"
    "  --scale 1|1/255  of pixels, without a dataset.json (default: 1/255)\n"
    "  --device DEVICE  cpu, cuda, cuda:N or emulated (default: cpu)\n"
    "  --target TARGET  what a model is built for (default: that of the device; sm_90 of cuda)\n"
    "  --batch N        pictures of a run, if the model leaves that open (default: 8)\n"
    "  --pictures N     in all (default: 192)\n"
    "  --threads N      that decode ahead (default: one for each core)\n"
    "  --out FILE       the results (default: pipeline.json)\n";

struct Arguments {
  std::string model = "samples/glyphs/glyphs.onnx", data, device = "cpu", target;
  std::string scale = "1/255", batch = "8", pictures = "192", threads = "0", out = "pipeline.json";
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  const struct {
    std::string_view flag;
    std::string* value;
  } flags[] = {{"--model", &arguments.model},
               {"--data", &arguments.data},
               {"--device", &arguments.device},
               {"--target", &arguments.target},
               {"--scale", &arguments.scale},
               {"--batch", &arguments.batch},
               {"--pictures", &arguments.pictures},
               {"--threads", &arguments.threads},
               {"--out", &arguments.out}};
  for (int i = 1; i < argc; i += 2) {
    const auto found = std::find_if(std::begin(flags), std::end(flags),
                                    [&](const auto& each) { return each.flag == argv[i]; });
    if (found == std::end(flags) || i + 1 == argc)
      throw std::invalid_argument("\"" + std::string(argv[i]) +
                                  "\" is unknown, or its value is missing\n" + kUsage);
    *found->value = argv[i + 1];
  }
  return arguments;
}

int number(const std::string& text, const char* flag, int least) {
  constexpr int kMost = 1'000'000;
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < least || value > kMost)
    throw std::invalid_argument(std::string(flag) + " " + text + ": a number from " +
                                std::to_string(least) + " to 1000000 is expected");
  return static_cast<int>(value);
}

std::shared_ptr<const anneal::Engine> open_engine(const Arguments& arguments) {
  if (!arguments.model.ends_with(".onnx"))
    return anneal::Engine::load(arguments.model, {.device = arguments.device});
  anneal::BuildOptions options;
  options.targets = {!arguments.target.empty()              ? arguments.target
                     : arguments.device.starts_with("cuda") ? "sm_90"
                                                            : arguments.device};
  anneal::BuiltEngine built = anneal::build_engine(arguments.model, options);
  const auto bytes = std::make_shared<std::vector<std::byte>>(std::move(built.bytes));
  return anneal::Engine::load(*bytes, bytes, {.device = arguments.device});
}

// The only input, of pictures: [N,C,H,W] or [N,H,W,C] of f32.
const anneal::TensorInfo& picture_input(const anneal::Engine& engine, const std::string& model) {
  const anneal::TensorInfo& input = engine.inputs()[0];
  if (engine.inputs().size() != 1 || input.dtype != anneal::DataType::kF32 ||
      input.dims.rank() != 4)
    throw std::invalid_argument(model +
                                ": a model of one input of pictures is expected, f32 of 4 axes");
  if (engine.outputs()[0].dtype != anneal::DataType::kF32)
    throw std::invalid_argument(model + ": its first output must be f32");
  return input;
}

std::shared_ptr<const anneal::Dataset> open_pictures(const std::string& folder,
                                                     const anneal::TensorInfo& input,
                                                     const std::string& scale) {
  anneal::DataFormat format = anneal::find_data_format(folder);
  format.kind = anneal::DataKind::kImages;
  format.labels = "none";
  if (format.scale.empty() && scale == "1/255") format.scale = {1.0 / 255};
  if (!format.resize_exact && !format.resize_shorter && !format.crop) {
    const bool is_last = input.dims[3] == 1 || input.dims[3] == 3;
    const int64_t height = input.dims[is_last ? 1 : 2], width = input.dims[is_last ? 2 : 3];
    if (height > 0 && width > 0) format.resize_exact = anneal::Dims{height, width};
  }
  const anneal::DataInput wanted{input.name, input.dtype, input.dims};
  return anneal::open_dataset(folder, format, {&wanted, 1});
}

std::string counted(int64_t number, const char* one, const char* several) {
  return std::to_string(number) + " " + (number == 1 ? one : several);
}

// Before the work, not after it.
void check_output(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder))
    throw std::invalid_argument("--out " + path + ": there is no folder " + folder.string());
}

void print(const ModeResult& result, const Work& work) {
  const auto percent = [&](Stage stage) { return 100 * busy_share(result, stage, work.threads); };
  const double rate = static_cast<double>(work.batch * work.batches) / result.seconds;
  std::printf("%-20s %9.*f %8.0f %% %6.0f %% %8.0f %% %10.0f %%\n",
              kModeNames[static_cast<int>(result.mode)], rate < 10 ? 2 : 0, rate,
              percent(Stage::kDecode), percent(Stage::kCopy), percent(Stage::kCompute),
              100 * result.mean_cores_busy);
}

int run(const Arguments& arguments) {
  if (arguments.scale != "1" && arguments.scale != "1/255")
    throw std::invalid_argument("--scale " + arguments.scale + ": 1 or 1/255 is expected");
  check_output(arguments.out);
  const int pictures = number(arguments.pictures, "--pictures", 1);
  Work work{.engine = open_engine(arguments)};
  const anneal::TensorInfo& input = picture_input(*work.engine, arguments.model);
  work.batch = input.dims[0] > 0 ? input.dims[0] : number(arguments.batch, "--batch", 1);
  work.batches = std::max<int64_t>(1, pictures / work.batch);
  work.threads = number(arguments.threads, "--threads", 0);
  if (work.threads == 0)
    work.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::optional<MadePictures> made;
  if (arguments.data.empty())
    made.emplace(static_cast<int>(work.batch * work.batches), kMadeWidth, kMadeHeight);
  work.pictures =
      open_pictures(made ? made->folder().string() : arguments.data, input, arguments.scale);

  Results results{.model = arguments.model,
                  .data = made ? "JPEG files of 640x480" : arguments.data,
                  .device = work.engine->device(),
                  .batch = work.batch,
                  .batches = work.batches,
                  .threads = work.threads};
  std::printf("%s on %s, %s of %s, %s\n", arguments.model.c_str(), results.device.c_str(),
              counted(work.batches, "batch", "batches").c_str(),
              counted(work.batch, "picture", "pictures").c_str(),
              counted(work.threads, "decoder", "decoders").c_str());
  std::printf("%-20s %9s %10s %8s %10s %12s\n", "", "pictures/s", "decoding", "copying",
              "computing", "cores busy");
  for (const Mode mode : kModes) {
    results.modes.push_back(run_mode(mode, work));
    print(results.modes.back(), work);
    if (results.modes.back().outputs != results.modes[0].outputs)
      throw std::runtime_error(std::string("the outputs of \"") +
                               kModeNames[static_cast<int>(mode)] + "\" differ from the others'");
  }
  for (const ModeResult& result : results.modes)
    std::printf("%s: %s\n", kModeNames[static_cast<int>(result.mode)],
                bottleneck_text(result, work.threads).c_str());
  write_json(results, arguments.out);
  if (arguments.device.starts_with("emulated"))
    std::printf("the emulated device's times say nothing of a GPU's\n");
  std::printf("all outputs are equal; %s has the times\n", arguments.out.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 2 && std::string_view(argv[1]) == "--help") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  return run(parse(argc, argv));
} catch (const std::exception& error) {
  std::fprintf(stderr, "pipeline: %s\n", error.what());
  return 1;
}
