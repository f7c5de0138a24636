// `anneal eval`: accuracy of a classifier over a labelled set of grey pictures.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "anneal/cli/at_least.h"
#include "anneal/cli/commands.h"
#include "anneal/cli/exit_status.h"
#include "anneal/cli/open_engine.h"
#include "anneal/cli/picture.h"
#include "anneal/cli/print.h"
#include "anneal/cli/progress.h"
#include "anneal/cli/scores.h"
#include "anneal/core/file.h"
#include "anneal/engine/data/elements.h"
#include "anneal/engine/data/idx.h"

namespace anneal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPicturesBeside = 3;  // of 32 characters each

struct EvalFlags {
  EngineOptions engine_options;
  std::string engine, images, labels, classes;
  int64_t batch = 0;
  int threads = 0, show = 0;
  bool verbose = false;
};

struct LabelledSet {
  Tensor images;  // u8 [count, rows, columns]
  std::vector<int64_t> labels;
  int64_t count() const { return images.dims()[0]; }
  int64_t rows() const { return images.dims()[1]; }
  int64_t columns() const { return images.dims()[2]; }
  std::span<const uint8_t> picture(int64_t i) const {
    const auto size = static_cast<size_t>(rows() * columns());
    return images.as<uint8_t>().subspan(static_cast<size_t>(i) * size, size);
  }
};

Tensor read_idx_file(const std::string& path, int rank) {
  const FileBytes file = read_file(path);
  return with_context(
      [&] { return fmt::format("while reading {}", path); },
      [&] {
        Tensor tensor = read_idx(file.bytes);
        if (tensor.dtype() != DataType::kU8 || tensor.dims().rank() != rank || tensor.count() == 0)
          fail(Code::kInvalidArgument,
               fmt::format("it holds {}{}, wanted are u8 with {} axes", name(tensor.dtype()),
                           to_text(tensor.dims()), rank));
        return tensor;
      });
}

LabelledSet read_set(const EvalFlags& flags) {
  LabelledSet set{read_idx_file(flags.images, 3), {}};
  const Tensor labels = read_idx_file(flags.labels, 1);
  if (labels.count() != set.count())
    fail(Code::kInvalidArgument, fmt::format("{} has {} pictures, {} has {} labels", flags.images,
                                             set.count(), flags.labels, labels.count()));
  const auto values = labels.as<uint8_t>();
  set.labels.assign(values.begin(), values.end());
  return set;
}

// Batch size and input shape that fit both the engine and the pictures.
Dims batch_dims(const Port& port, const LabelledSet& set, int64_t wanted) {
  const auto refuse = [&](const std::string& why) {
    fail(Code::kInvalidArgument,
         fmt::format("the engine's input {} does not take grey pictures of {} x {}: {}",
                     port_text(port), set.rows(), set.columns(), why));
  };
  if (!is_float(port.dtype)) refuse("its type is no float");
  if (port.dims.rank() < 2) refuse("it has no axis for the batch");
  Dims dims = port.dims;
  Dims picture;
  for (int axis = 1; axis < dims.rank(); ++axis) {
    // An open size is a side of the picture: the last two axes, or the two before a channel.
    if (dims[axis] == -1) {
      const bool last = axis == dims.rank() - 1;
      dims[axis] = last || port.dims[axis + 1] == 1 ? set.columns() : set.rows();
    }
    picture.push_back(dims[axis]);
  }
  if (count(picture) != set.rows() * set.columns()) refuse("the number of pixels differs");
  if (dims[0] == -1) {
    const int64_t least = std::max<int64_t>(port.min_dims[0], 1);
    const int64_t most = std::max(std::min(port.max_dims[0], set.count()), least);
    dims[0] = std::clamp(wanted > 0 ? wanted : 1, least, most);
  } else if (wanted > 0 && wanted != dims[0]) {
    fail(Code::kInvalidArgument,
         fmt::format("--batch {}: the engine was built for batches of {}", wanted, dims[0]));
  }
  if (dims[0] < 1) refuse("its batch is empty");
  return dims;
}

struct Evaluation {
  std::vector<std::vector<Ranked>> best;  // five per picture
  std::vector<double> batch_milliseconds;
  double total_milliseconds = 0;
  int64_t batch = 1;
};

Evaluation evaluate(const Engine& engine, ExecutionContext& context, const LabelledSet& set,
                    int64_t wanted_batch, Progress& progress) {
  if (engine.inputs().size() != 1)
    fail(Code::kInvalidArgument, fmt::format("eval wants an engine with one input, this one has {}",
                                             engine.inputs().size()));
  const Port& port = engine.inputs()[0];
  const Dims dims = batch_dims(port, set, wanted_batch);
  auto batch = Tensor::allocate(port.dtype, dims);
  context.set_input(port.name, batch.tensor.view());
  const auto pixels = static_cast<size_t>(set.rows() * set.columns());
  const size_t element = size_of(port.dtype);

  Evaluation result;
  result.batch = dims[0];
  for (int64_t first = 0; first < set.count(); first += dims[0]) {
    // The rest of a last, smaller batch is zero.
    std::fill(batch.data.begin(), batch.data.end(), std::byte{0});
    const int64_t here = std::min(dims[0], set.count() - first);
    for (int64_t i = 0; i < here; ++i) {
      std::byte* to = batch.data.data() + static_cast<size_t>(i) * pixels * element;
      for (const uint8_t pixel : set.picture(first + i)) {
        write_element(port.dtype, to, static_cast<double>(static_cast<float>(pixel) / 255.0F));
        to += element;
      }
    }
    // The first run of a context places its memory; it is not what a batch takes.
    if (first == 0) context.run();
    const auto start = Clock::now();
    context.run();
    const double took = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    result.batch_milliseconds.push_back(took);
    result.total_milliseconds += took;

    const Tensor scores = dense_copy(context.output(engine.outputs()[0].name));
    const auto layout = score_layout(scores.dtype(), scores.dims());
    if (!layout || layout->samples != dims[0])
      fail(Code::kInvalidArgument,
           fmt::format("the first output is {}{}, which are no scores of {} pictures",
                       name(scores.dtype()), to_text(scores.dims()), dims[0]));
    for (int64_t i = 0; i < here; ++i) result.best.push_back(best_classes(scores, *layout, i, 5));
    progress.say(fmt::format("{} of {} pictures", first + here, set.count()));
  }
  return result;
}

std::string class_name(const std::vector<std::string>& classes, int64_t index) {
  if (classes.empty()) return fmt::format("{}", index);
  if (index >= static_cast<int64_t>(classes.size()))
    fail(Code::kInvalidArgument,
         fmt::format("--classes has {} lines, but class {} occurs", classes.size(), index));
  return classes[static_cast<size_t>(index)];
}

void print_pictures(const LabelledSet& set, const Evaluation& evaluation,
                    const std::vector<std::string>& classes, int64_t show) {
  // Spread over the set, since sets are often sorted by class.
  const int64_t shown = std::min(show, set.count());
  std::vector<std::vector<std::string>> pictures;
  std::vector<std::string> captions;
  for (int64_t i = 0; i < shown; ++i) {
    const int64_t at = (2 * i + 1) * set.count() / (2 * shown);
    const int64_t label = set.labels[static_cast<size_t>(at)];
    const Ranked& best = evaluation.best[static_cast<size_t>(at)][0];
    pictures.push_back(picture_text(set.picture(at), set.rows(), set.columns()));
    captions.push_back(best.index == label
                           ? fmt::format("{}, right", class_name(classes, best.index))
                           : fmt::format("{}, but it is {}", class_name(classes, best.index),
                                         class_name(classes, label)));
    if (pictures.size() == kPicturesBeside || i + 1 == shown) {
      fmt::print("{}\n", picture_row(pictures, captions));
      pictures.clear();
      captions.clear();
    }
  }
}

int evaluate_engine(const EvalFlags& flags) {
  const LabelledSet set = read_set(flags);
  const auto classes =
      flags.classes.empty() ? std::vector<std::string>() : read_labels(flags.classes);
  const auto engine = open_engine(flags.engine, flags.engine_options);
  ContextOptions options;
  options.threads = flags.threads;
  ExecutionContext context(engine, options);
  Progress progress(flags.verbose);
  const Evaluation evaluation = evaluate(*engine, context, set, flags.batch, progress);
  progress.clear();

  int64_t first = 0, among_five = 0;
  for (size_t i = 0; i < set.labels.size(); ++i) {
    const auto& best = evaluation.best[i];
    const auto is_label = [&](const Ranked& ranked) { return ranked.index == set.labels[i]; };
    first += is_label(best[0]) ? 1 : 0;
    among_five += std::any_of(best.begin(), best.end(), is_label) ? 1 : 0;
  }
  print_pictures(set, evaluation, classes, flags.show);
  const auto percent = [&](int64_t part) {
    return 100 * static_cast<double>(part) / static_cast<double>(set.count());
  };
  const double images_per_second =
      static_cast<double>(set.count()) / evaluation.total_milliseconds * 1000;
  fmt::print("pictures {}\n", set.count());
  fmt::print("top-1    {:.2f} % ({} right)\n", percent(first), first);
  fmt::print("top-5    {:.2f} %\n", percent(among_five));
  fmt::print("latency  {} per batch of {} (median), {:.0f} pictures/s\n",
             milliseconds_text(median(evaluation.batch_milliseconds)), evaluation.batch,
             images_per_second);
  return kSuccess;
}

constexpr const char* kFooter = R"(Examples:
  anneal eval digits.engine --images t10k.idx3-ubyte --labels t10k.idx1-ubyte --show 6
  anneal eval digits.engine --images t10k.idx3-ubyte --labels t10k.idx1-ubyte \
              --classes names.txt --batch 32 --threads 1

Pixels are fed as value / 255. The first output is taken for the scores of the classes.
Exit status: 0 evaluated; 2 wrong arguments, or files that are damaged or do not fit.)";

}  // namespace

void add_eval_command(CLI::App& application, Action& action) {
  CLI::App* command =
      application.add_subcommand("eval", "Measure a classifier on labelled grey pictures");
  auto flags = std::make_shared<EvalFlags>();
  command->add_option("engine", flags->engine, "The engine file")
      ->type_name("MODEL.engine")
      ->required();
  command->add_option("--images", flags->images, "The pictures, in idx format")
      ->type_name("FILE.idx3-ubyte")
      ->required();
  command->add_option("--labels", flags->labels, "Their classes, in idx format")
      ->type_name("FILE.idx1-ubyte")
      ->required();
  command->add_option("--classes", flags->classes, "Names of the classes, one per line")
      ->type_name("FILE");
  command
      ->add_option("--batch", flags->batch,
                   "Pictures per run (default: 1, or what the engine was built for)")
      ->check(at_least(1));
  command->add_option("--show", flags->show, "Pictures to show as text")
      ->capture_default_str()
      ->check(at_least(0));
  add_device_flags(*command, flags->engine_options);
  command->add_option("--threads", flags->threads, "Most threads to use; 0: one per core")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_flag("-v,--verbose", flags->verbose, "Say on stderr what is being done");
  command->footer(kFooter);
  command->callback([&action, flags] { action = [flags] { return evaluate_engine(*flags); }; });
}

}  // namespace anneal
