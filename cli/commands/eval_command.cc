// `anneal eval`: accuracy of a classifier over labelled samples, and what it loses against another.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/compare/engine_source.h"
#include "anneal/cli/flags/at_least.h"
#include "anneal/cli/flags/data_flags.h"
#include "anneal/cli/flags/precision_flags.h"
#include "anneal/cli/model/classify.h"
#include "anneal/cli/model/model_flags.h"
#include "anneal/cli/model/open_engine.h"
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
#include "anneal/engine/tune/metric/accuracy.h"

namespace anneal {
namespace {

constexpr size_t kPicturesBeside = 3;  // of 32 characters each

struct EvalFlags {
  EngineOptions engine_options;
  ShapeFlags shapes;
  PrecisionFlags precision;
  DataFlags data;
  ClassifyOptions classify;
  std::string engine, against, classes, json;
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

// What the network is fed, its channels' mean, from the darkest to the brightest.
std::vector<std::string> picture_lines(const Tensor& tensor) {
  const Dims& dims = tensor.dims();
  const int rank = dims.rank();
  const bool last = rank == 4 && dims[1] != 1 && dims[1] != 3 && (dims[3] == 1 || dims[3] == 3);
  const int channel_axis = last ? 3 : 1;
  if ((rank != 3 && rank != 4) || dims[0] != 1 || count(dims) == 0)
    refuse_argument(fmt::format("--show: {} is no picture", to_string(dims)));
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
  build.precision = precision_options(precision, std::span(&target, 1));
  set_self_check(precision, build);
  EngineOptions engine_options = flags.engine_options;
  engine_options.threads = flags.classify.context.threads;
  const auto engine = is_engine(path) ? open_engine(path, engine_options)
                                      : engine_from({.path = path,
                                                     .target = target,
                                                     .build = build,
                                                     .shapes = flags.shapes,
                                                     .threads = engine_options.threads});
  samples = open_data(flags.data, data_inputs(*engine));
  return with_context([&] { return path; },
                      [&] { return classify(engine, samples, flags.classify, progress); });
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

// The reference's predictions for the same samples, in their order.
std::vector<Prediction> paired(const ClassificationRun& result, const ClassificationRun& reference,
                               const std::string& path) {
  std::map<std::string_view, const Prediction*> by_name;
  for (const Prediction& one : reference.predictions) by_name[one.sample] = &one;
  std::vector<Prediction> same;
  for (const Prediction& one : result.predictions) {
    const auto found = by_name.find(one.sample);
    if (found == by_name.end())
      refuse_argument(fmt::format("{} has no prediction for sample \"{}\"", path, one.sample));
    same.push_back(*found->second);
    same.back().label = one.label;
  }
  return same;
}

struct Counts {
  int64_t all = 0, labelled = 0, right = 0, among_five = 0;
};
Counts counts_of(const std::vector<Prediction>& predictions) {
  Counts counts;
  for (const Prediction& one : predictions) {
    ++counts.all;
    counts.labelled += one.label ? 1 : 0;
    counts.right += one.right() ? 1 : 0;
    counts.among_five += one.among_five() ? 1 : 0;
  }
  return counts;
}

double share(int64_t part, int64_t all) {
  return static_cast<double>(part) / static_cast<double>(all);
}

Json accuracy_json(const Counts& counts) {
  const Interval interval = wilson_interval(counts.right, counts.labelled);
  return {{"samples", counts.labelled},
          {"top1", share(counts.right, counts.labelled)},
          {"top1_right", counts.right},
          {"top1_interval", {interval.low, interval.high}},
          {"top5", share(counts.among_five, counts.labelled)},
          {"top5_right", counts.among_five}};
}

void print_accuracy(const Counts& counts) {
  const Interval interval = wilson_interval(counts.right, counts.labelled);
  fmt::print("top-1    {:.2f} % ({} right), 95 % interval {:.2f} to {:.2f} %\n",
             100 * share(counts.right, counts.labelled), counts.right, 100 * interval.low,
             100 * interval.high);
  fmt::print("top-5    {:.2f} % ({})\n", 100 * share(counts.among_five, counts.labelled),
             counts.among_five);
}

Json compare_against(const ClassificationRun& result, const EvalFlags& flags,
                     ProgressLine& progress) {
  std::shared_ptr<const Dataset> samples;
  const ClassificationRun other = flags.against.ends_with(".json")
                                      ? read_predictions(flags.against)
                                      : run(flags.against, flags, {}, progress, samples);
  progress.clear();
  const auto reference = paired(result, other, flags.against);
  std::vector<bool> right, reference_right;
  int64_t agree = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const Prediction& one = result.predictions[i];
    agree += one.best[0].index == reference[i].best[0].index ? 1 : 0;
    if (!one.label) continue;
    right.push_back(one.right());
    reference_right.push_back(reference[i].right());
  }
  const auto all = static_cast<int64_t>(reference.size());
  fmt::print("against  {}\n", printable(flags.against));
  Json json = {{"file", flags.against}, {"agree", agree}};
  if (!right.empty()) {
    const Counts counts = counts_of(reference);
    print_accuracy(counts);
    const NetLoss loss = net_loss(right, reference_right);
    fmt::print("net loss {} of {} samples (lost {}, gained {}), 95 % interval {} to {}\n",
               loss.net(), right.size(), loss.lost, loss.gained, loss.net_interval.low,
               loss.net_interval.high);
    json.update(accuracy_json(counts));
    json["lost"] = loss.lost;
    json["gained"] = loss.gained;
    json["net_loss"] = loss.net();
    json["net_loss_interval"] = {loss.net_interval.low, loss.net_interval.high};
  }
  fmt::print("agree    {:.2f} % ({} of {} have the same best class)\n", 100 * share(agree, all),
             agree, all);
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

int evaluate(const EvalFlags& flags) {
  check_output_file(flags.json);
  const auto classes =
      flags.classes.empty() ? std::vector<std::string>() : read_labels(flags.classes);
  ProgressLine progress(flags.verbose);
  std::shared_ptr<const Dataset> samples;
  const ClassificationRun result = run(flags.engine, flags, flags.precision, progress, samples);
  progress.clear();
  const Counts counts = counts_of(result.predictions);
  if (counts.labelled == 0 && flags.against.empty() && flags.json.empty() && flags.show == 0)
    refuse_argument(
        fmt::format("the samples of {} have no labels to judge by; name a file of them with "
                    "--labels, or write the classes found with --json",
                    flags.data.data));

  print_pictures(*samples, result, classes, flags.show);
  fmt::print("samples  {}\n", counts.all);
  Json json = {{"model", flags.engine}, {"data", flags.data.data}, {"all", counts.all}};
  if (counts.labelled > 0) {
    print_accuracy(counts);
    json.update(accuracy_json(counts));
  }
  fmt::print("latency  {} per batch of {} (median), {:.0f} samples/s\n",
             milliseconds_text(median(result.batch_milliseconds)), result.batch,
             static_cast<double>(counts.all) / result.total_milliseconds * 1000);
  std::vector<std::string> hints = scale_hints(*samples);
  std::ranges::move(label_hints(result, data_format(flags.data).label_offset),
                    std::back_inserter(hints));
  // A network that gets right what it is asked needs no hint about its inputs.
  if (counts.labelled == 0 || 2 * counts.right < counts.labelled) print_hints(hints);
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

A value becomes (value * scale - mean) / std + offset. With a dataset.json beside the data no flags
are needed. Intervals: Wilson's for a share, a paired bootstrap for a loss.
Exit status: 0 evaluated; 2 wrong arguments, or files that are damaged or do not fit.)";

}  // namespace

void add_eval_command(CLI::App& application, Action& action) {
  CLI::App* command =
      application.add_subcommand("eval", "Measure a classifier on labelled samples");
  auto flags = std::make_shared<EvalFlags>();
  command->add_option("model", flags->engine, "The engine, or an ONNX model to build in memory")
      ->type_name("ENGINE|MODEL.onnx")
      ->required();
  add_precision_flags(*command, flags->precision);
  add_data_flags(*command, flags->data);
  command
      ->add_option("--against", flags->against,
                   "Another engine or model, or what --json wrote for it: what is lost against it")
      ->type_name("FILE");
  command->add_option("--classes", flags->classes, "Names of the classes, one per line")
      ->type_name("FILE");
  command->add_option("--output", flags->classify.output, "With the scores (default: the first)")
      ->type_name("NAME");
  command
      ->add_option("--batch", flags->classify.batch,
                   "Samples per run (default: 1, or what the engine was built for)")
      ->check(at_least(1));
  command->add_option("--show", flags->show, "Pictures to show as text")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_option("--json", flags->json, "Write the figures and each sample's classes here")
      ->type_name("FILE");
  add_shape_flags(*command, flags->shapes);
  add_device_flags(*command, flags->engine_options);
  flags->classify.context.threads = 0;
  command
      ->add_option("--threads", flags->classify.context.threads,
                   "Most threads to use; 0: one per core")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_flag("-v,--verbose", flags->verbose, "Say on stderr what is being done");
  command->footer(kEvalFooter);
  command->callback([&action, flags, command] {
    action = [flags, command] {
      refuse_model_flags(*command, {flags->engine});
      ClassifyOptions& options = flags->classify;
      options.data_threads = flags->data.threads;
      return evaluate(*flags);
    };
  });
}

}  // namespace anneal
