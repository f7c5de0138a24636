// `anneal eval`: accuracy of a classifier over labelled samples, and its loss against another.
#include <fmt/format.h>

#include <algorithm>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/data_flags.h"
#include "anneal/cli/flags/help.h"
#include "anneal/cli/flags/precision_flags.h"
#include "anneal/cli/flags/weights_flag.h"
#include "anneal/cli/model/classes.h"
#include "anneal/cli/model/model_flags.h"
#include "anneal/cli/model/open_engine.h"
#include "anneal/cli/model/open_or_build.h"
#include "anneal/cli/model/sample_hints.h"
#include "anneal/cli/output/errors.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/json_file.h"
#include "anneal/cli/output/output_path.h"
#include "anneal/cli/output/picture.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/cli/output/progress.h"
#include "anneal/cli/output/tensor_summary.h"
#include "anneal/cli/output/text_file.h"

namespace anneal {
namespace {

constexpr size_t kPicturesBeside = 3;  // of 32 characters each

struct EvalFlags {
  EngineOptions engine_options;
  ShapeFlags shapes;
  PrecisionFlags precision;
  DataFlags data;
  ClassifyOptions classify;
  std::string engine, against, classes, json, overlap = "read-ahead";
  int show = 0;
  bool verbose = false;
};

std::string class_name(const std::vector<std::string>& classes, int64_t index) {
  if (classes.empty()) return fmt::format("{}", index);
  if (index >= static_cast<int64_t>(classes.size()))
    refuse_argument(
        fmt::format("--classes has {} lines, but class {} occurs", classes.size(), index));
  return classes[static_cast<size_t>(index)];
}

// The network's input: the mean of its channels, from the darkest to the brightest.
std::vector<std::string> picture_lines(const Tensor& tensor) {
  const Dims& dims = tensor.dims();
  const int rank = dims.rank();
  const bool last = rank == 4 && dims[1] != 1 && dims[1] != 3 && (dims[3] == 1 || dims[3] == 3);
  const int channel_axis = last ? 3 : 1;
  if ((rank != 3 && rank != 4) || dims[0] != 1 || count(dims) == 0)
    refuse_argument(fmt::format("--show: {} is not an image", to_string(dims)));
  const int64_t rows = dims[last ? 1 : rank - 2], columns = dims[last ? 2 : rank - 1];
  const int64_t channels = rank == 4 ? dims[channel_axis] : 1;
  std::vector<double> sums(static_cast<size_t>(rows * columns));
  const size_t element = size_of(tensor.dtype());
  for (int64_t i = 0; i < count(dims); ++i)
    sums[static_cast<size_t>(last ? i / channels : i % (rows * columns))] +=
        read_element(tensor.dtype(), tensor.bytes().data() + static_cast<size_t>(i) * element);
  const auto [least, most] = std::minmax_element(sums.begin(), sums.end());
  const double from = *least, range = *most > *least ? *most - *least : 1;
  std::vector<uint8_t> pixels;
  for (const double sum : sums) pixels.push_back(static_cast<uint8_t>(255 * (sum - from) / range));
  return picture_text(pixels, rows, columns);
}

void print_pictures(const Dataset& samples, const ClassificationRun& result,
                    const std::vector<std::string>& classes, int64_t show) {
  // Spread over the set, since sets are often sorted by class.
  const int64_t shown = std::min(show, samples.size());
  std::vector<std::vector<std::string>> pictures;
  std::vector<std::string> captions;
  for (int64_t i = 0; i < shown; ++i) {
    const int64_t at = (2 * i + 1) * samples.size() / (2 * shown);
    const Prediction& one = result.predictions[static_cast<size_t>(at)];
    pictures.push_back(picture_lines(samples.read(at)[0].tensor));
    std::string caption = class_name(classes, one.best[0].index);
    if (one.label)
      caption += one.right() ? ", right" : ", but it is " + class_name(classes, *one.label);
    captions.push_back(std::move(caption));
    if (pictures.size() == kPicturesBeside || i + 1 == shown) {
      fmt::print("{}\n", picture_row(pictures, captions));
      pictures.clear();
      captions.clear();
    }
  }
}

// precision: of a model, which is built.
ClassificationRun run(const std::string& path, const EvalFlags& flags,
                      const PrecisionFlags& precision, ProgressLine& progress,
                      std::shared_ptr<const Dataset>& samples) {
  progress.say(fmt::format("preparing {}", path));
  const std::string& device = flags.engine_options.device;
  BuildOptions build;
  const std::string target = device == "auto" ? "cpu" : device;
  build.precision = precision_options(precision);
  set_self_check(precision, build);
  EngineOptions engine_options = flags.engine_options;
  engine_options.threads = flags.classify.context.threads;
  engine_options.libraries = flags.shapes.libraries;
  if (path != flags.engine) engine_options.weights.clear();  // the one of --against has its own
  const auto engine = is_engine(path) ? open_engine(path, engine_options)
                                      : open_or_build({.path = path,
                                                       .target = target,
                                                       .build = build,
                                                       .shapes = flags.shapes,
                                                       .threads = engine_options.threads});
  samples = open_data(flags.data, data_inputs(*engine));
  ClassifyOptions options = flags.classify;
  options.progress = [&](int64_t done) {
    progress.say(fmt::format("{} of {} samples", done, samples->size()));
  };
  return with_context([&] { return path; }, [&] { return classify(engine, samples, options); });
}

// Predictions as --json wrote them.
ClassificationRun read_predictions(const std::string& path) {
  ClassificationRun result;
  try {
    const auto json = Json::parse(read_text(path));
    for (const Json& one : json.at("predictions")) {
      Prediction prediction{one.at("sample").get<std::string>(), std::nullopt, {}};
      if (one.contains("label")) prediction.label = one.at("label").get<int64_t>();
      for (const Json& index : one.at("classes"))
        prediction.best.push_back({index.get<int64_t>(), 0});
      if (prediction.best.empty())
        refuse_argument(fmt::format("{}: a sample without classes", path));
      result.predictions.push_back(std::move(prediction));
    }
  } catch (const Json::exception& error) {
    refuse_argument(fmt::format("{} is not what eval --json writes: {}", path, error.what()));
  }
  return result;
}

Json accuracy_json(const Accuracy& accuracy) {
  return {{"samples", accuracy.labelled},
          {"top1", accuracy.top1()},
          {"top1_right", accuracy.right},
          {"top1_interval", {accuracy.interval.low, accuracy.interval.high}},
          {"top5", accuracy.top5()},
          {"top5_right", accuracy.among_five}};
}

void print_accuracy(const Accuracy& accuracy) {
  fmt::print("top-1    {:.2f} % ({} right), 95 % interval {:.2f} to {:.2f} %\n",
             100 * accuracy.top1(), accuracy.right, 100 * accuracy.interval.low,
             100 * accuracy.interval.high);
  fmt::print("top-5    {:.2f} % ({})\n", 100 * accuracy.top5(), accuracy.among_five);
}

Json compare_against(const ClassificationRun& result, const EvalFlags& flags,
                     ProgressLine& progress) {
  std::shared_ptr<const Dataset> samples;
  const ClassificationRun other = flags.against.ends_with(".json")
                                      ? read_predictions(flags.against)
                                      : run(flags.against, flags, {}, progress, samples);
  progress.clear();
  const LossAgainst against =
      with_context([&] { return flags.against; },
                   [&] { return loss_against(result.predictions, other.predictions); });
  const Accuracy& reference = against.reference;
  fmt::print("against  {}\n", printable(flags.against));
  Json json = {{"file", flags.against}, {"agree", against.agree}};
  if (reference.labelled > 0) {
    print_accuracy(reference);
    const NetLoss& loss = against.loss;
    fmt::print("net loss {} of {} samples (lost {}, gained {}), 95 % interval {} to {}\n",
               loss.net(), reference.labelled, loss.lost, loss.gained, loss.net_interval.low,
               loss.net_interval.high);
    json.update(accuracy_json(reference));
    json["lost"] = loss.lost;
    json["gained"] = loss.gained;
    json["net_loss"] = loss.net();
    json["net_loss_interval"] = {loss.net_interval.low, loss.net_interval.high};
  }
  fmt::print("agree    {:.2f} % ({} of {} have the same best class)\n",
             100 * static_cast<double>(against.agree) / static_cast<double>(reference.samples),
             against.agree, reference.samples);
  return json;
}

Json predictions_json(const std::vector<Prediction>& predictions) {
  Json list = Json::array();
  for (const Prediction& one : predictions) {
    Json entry = {{"sample", one.sample}};
    if (one.label) entry["label"] = *one.label;
    for (const RankedClass& ranked : one.best) {
      entry["classes"].push_back(ranked.index);
      entry["scores"].push_back(ranked.score);  // NaN becomes null
    }
    list.push_back(std::move(entry));
  }
  return list;
}

// The median is of runs; what samples and runs took of the whole says where the time goes.
void print_times(const ClassificationRun& result, int64_t samples, const EvalFlags& flags) {
  const auto per_second = [&](double milliseconds) {
    return static_cast<double>(samples) / milliseconds * 1000;
  };
  const std::string latency = milliseconds_text(median(result.batch_milliseconds));
  if (flags.classify.overlap == Overlap::kContexts)
    fmt::print("latency  {} per batch of {} (median), until its scores were taken\n", latency,
               result.batch);
  else
    fmt::print("latency  {} per batch of {} (median), {:.0f} samples/s\n", latency, result.batch,
               per_second(result.running_milliseconds));
  const bool has_threads = flags.classify.overlap != Overlap::kNone,
             has_streams = flags.classify.overlap == Overlap::kContexts;
  const auto share = [&](double milliseconds, std::string_view what) {
    return std::pair(100 * milliseconds / result.total_milliseconds, what);
  };
  auto most = share(result.running_milliseconds, has_streams ? "waiting for runs" : "runs");
  auto other =
      share(result.reading_milliseconds, has_threads ? "waiting for samples" : "reading samples");
  const bool is_reading = result.reading_milliseconds > result.running_milliseconds;
  fmt::print("overall  {:.0f} samples/s from files to classes, overlap {}\n",
             per_second(result.total_milliseconds), flags.overlap);
  if (is_reading) std::swap(most, other);
  fmt::print("         The bottleneck is {}: {:.0f} % of the time went to {}, {:.0f} % to {}.\n",
             is_reading ? "reading and decoding" : "computing", most.first, most.second,
             other.first, other.second);
}

Json times_json(const ClassificationRun& result, const EvalFlags& flags) {
  return {{"overlap", flags.overlap},
          {"total_milliseconds", result.total_milliseconds},
          {"reading_milliseconds", result.reading_milliseconds},
          {"running_milliseconds", result.running_milliseconds},
          {"median_batch_milliseconds", median(result.batch_milliseconds)}};
}

int evaluate(const EvalFlags& flags) {
  check_output_file(flags.json);
  const auto classes =
      flags.classes.empty() ? std::vector<std::string>() : read_class_names(flags.classes);
  ProgressLine progress(flags.verbose);
  std::shared_ptr<const Dataset> samples;
  const ClassificationRun result = run(flags.engine, flags, flags.precision, progress, samples);
  progress.clear();
  const Accuracy accuracy = accuracy_of(result.predictions);
  if (accuracy.labelled == 0 && flags.against.empty() && flags.json.empty() && flags.show == 0)
    refuse_argument(
        fmt::format("the samples of {} have no labels: give a file of labels with --labels, "
                    "or write the predicted classes with --json",
                    flags.data.data));

  print_pictures(*samples, result, classes, flags.show);
  fmt::print("samples  {}\n", accuracy.samples);
  Json json = {{"model", flags.engine}, {"data", flags.data.data}, {"all", accuracy.samples}};
  if (accuracy.labelled > 0) {
    print_accuracy(accuracy);
    json.update(accuracy_json(accuracy));
  }
  print_times(result, accuracy.samples, flags);
  json["times"] = times_json(result, flags);
  std::vector<std::string> hints = scale_hints(*samples);
  std::ranges::move(label_hints(result, data_format(flags.data).label_offset),
                    std::back_inserter(hints));
  // A network whose answers are right needs no hint about its inputs.
  if (accuracy.labelled == 0 || 2 * accuracy.right < accuracy.labelled) print_hints(hints);
  if (!flags.against.empty()) json["against"] = compare_against(result, flags, progress);
  json["predictions"] = predictions_json(result.predictions);
  if (!flags.json.empty()) write_json(flags.json, json);
  return kSuccess;
}

constexpr const char* kEvalFooter = R"(Examples:
  anneal eval net.engine --data photos --resize 256 --crop 224 --scale 1/255 \
              --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225
  anneal eval digits.onnx --data t10k-images.idx3-ubyte --labels t10k-labels.idx1-ubyte --show 6
  anneal eval int8.engine --data photos --samples holdout:100 --against net.onnx

A pixel becomes (value * scale - mean) / std + offset. A dataset.json beside the data sets these
flags. Intervals: Wilson's for an accuracy, a paired bootstrap for a loss.
Exit status: 0 evaluated; 2 wrong arguments or files; 3 the model is not supported; 4 the device is
missing or failed.)";

}  // namespace

void add_eval_command(CLI::App& application, Action& action) {
  CLI::App* command =
      application.add_subcommand("eval", "Measure a classifier on labelled samples");
  auto flags = std::make_shared<EvalFlags>();
  command->add_option("model", flags->engine, "Engine file, or ONNX model to build in memory")
      ->required()
      ->group(often(help::kFiles));
  command
      ->add_option("--against", flags->against,
                   "Engine, model or --json result to compare with; prints the loss")
      ->type_name("FILE")
      ->group(often(help::kFiles));
  command->add_option("--classes", flags->classes, "Names of the classes, one per line")
      ->type_name("FILE")
      ->group(often(help::kFiles));
  command->add_option("--show", flags->show, "Images to print as text")
      ->capture_default_str()
      ->check(at_least(0))
      ->group(often(help::kFiles));
  command->add_option("--json", flags->json, "Write the results and the classes of each sample")
      ->type_name("FILE")
      ->group(often(help::kFiles));
  command->add_flag("-v,--verbose", flags->verbose, "Print progress to stderr")
      ->group(often(help::kFiles));
  constexpr std::string_view kLabels[] = {"labels"};
  add_data_flags(*command, flags->data, "--data", kLabels);
  command
      ->add_option("--output", flags->classify.output,
                   "Output with the scores (default: the first)")
      ->type_name("NAME")
      ->group(often(help::kRun));
  command
      ->add_option("--batch", flags->classify.batch,
                   "Samples per run (default: 1, or the batch of the engine)")
      ->check(at_least(1))
      ->group(often(help::kRun));
  command
      ->add_option("--overlap", flags->overlap, "none, read-ahead or contexts (two runs at once)")
      ->capture_default_str()
      ->check(CLI::IsMember({"none", "read-ahead", "contexts"}).description(""))
      ->type_name("MODE")
      ->group(often(help::kRun));
  add_device_flags(*command, flags->engine_options);
  add_weights_flag(*command, flags->engine_options.weights);
  flags->classify.context.threads = 0;
  command
      ->add_option("--threads", flags->classify.context.threads,
                   "Maximum number of threads (default: one per core)")
      ->check(at_least(0))
      ->type_name("N")
      ->group(often(help::kRun));
  add_shape_flags(*command, flags->shapes);
  add_precision_flags(*command, flags->precision);
  command->footer(kEvalFooter);
  command->callback([&action, flags, command] {
    action = [flags, command] {
      refuse_model_flags(*command, {flags->engine});
      ClassifyOptions& options = flags->classify;
      options.data_threads = flags->data.threads;
      options.overlap = flags->overlap == "none"       ? Overlap::kNone
                        : flags->overlap == "contexts" ? Overlap::kContexts
                                                       : Overlap::kReadAhead;
      return evaluate(*flags);
    };
  });
}

}  // namespace anneal
