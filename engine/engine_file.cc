// Engine files and their files of weights. Layout: docs/plan_format.md.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "anneal/core/bytes.h"
#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/core/hash/sha256.h"
#include "anneal/core/integer.h"
#include "anneal/engine/plan.h"
#include "anneal/engine/plan_bytes.h"
#include "anneal/engine/plan_check.h"
#include "anneal/engine/profiles.h"
#include "anneal/engine/sections.h"

namespace anneal {
namespace {

constexpr size_t kWeightAlignment = 64;

std::vector<std::byte> info_section(const EngineFile& file) {
  ByteWriter to;
  to.text(file.producer);
  to.text(file.model_name);
  return to.take();
}

std::vector<std::byte> weight_index_section(const EngineFile& file) {
  ByteWriter to;
  to.number(static_cast<uint32_t>(file.weights.size()));
  uint64_t offset = 0;
  for (const Tensor& weight : file.weights) {
    to.number(static_cast<uint8_t>(weight.dtype()));
    to.number(static_cast<uint8_t>(weight.dims().rank()));
    for (const int64_t dim : weight.dims()) to.number(dim);
    to.number(offset);
    offset = align_up(offset + weight.bytes().size(), kWeightAlignment);
  }
  return to.take();
}

SectionBytes weights_section(const EngineFile& file) {
  SectionBytes section{SectionKind::kWeights, {}};
  for (const Tensor& weight : file.weights) section.parts.push_back(weight.bytes());
  return section;
}

std::vector<std::byte> packed_index_section(const EngineFile& file) {
  ByteWriter to;
  to.number(static_cast<uint32_t>(file.packed.size()));
  for (const ReadyConstant& each : file.packed) {
    to.blob(std::as_bytes(std::span(each.key)));
    to.number(uint64_t{each.bytes.bytes().size()});
  }
  return to.take();
}

SectionBytes packed_section(const EngineFile& file) {
  SectionBytes section{SectionKind::kPacked, {}};
  for (const ReadyConstant& each : file.packed) section.parts.push_back(each.bytes.bytes());
  return section;
}

std::vector<ReadyConstant> load_packed(ByteReader index, std::span<const std::byte> bytes,
                                       const std::shared_ptr<const void>& owner) {
  const size_t count = index.count(2 * sizeof(uint64_t));
  std::vector<ReadyConstant> packed;
  packed.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const auto key = index.blob();
    std::string text(reinterpret_cast<const char*>(key.data()), key.size());
    if (!packed.empty() && text <= packed.back().key) index.refuse("packed weights out of order");
    const auto size = index.number<uint64_t>();
    if (size > bytes.size()) index.refuse("packed weights outside their section");
    Tensor tensor(DataType::kU8, {static_cast<int64_t>(size)}, owner, bytes.first(size));
    packed.push_back({std::move(text), std::move(tensor)});
    const size_t end = align_up(size, kWeightAlignment);
    if (end > bytes.size()) index.refuse("packed weights outside their section");
    bytes = bytes.subspan(end);
  }
  index.expect_end();
  if (!bytes.empty()) index.refuse("packed weights without an entry in the index");
  return packed;
}

std::vector<Tensor> load_weights(ByteReader index, std::span<const std::byte> bytes,
                                 const std::shared_ptr<const void>& owner) {
  const size_t count = index.count(2 + sizeof(uint64_t));
  std::vector<Tensor> weights;
  weights.reserve(count);
  size_t end = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto dtype = index.number<uint8_t>();
    if (dtype < static_cast<uint8_t>(DataType::kF32) ||
        dtype > static_cast<uint8_t>(DataType::kBool))
      index.refuse("a weight of no known element type");
    const auto rank = index.number<uint8_t>();
    if (rank > kMaxRank) index.refuse("a weight of too many axes");
    const size_t element = size_of(static_cast<DataType>(dtype));
    Dims dims;
    uint64_t size = element;
    for (int axis = 0; axis < rank; ++axis) {
      const auto dim = index.number<int64_t>();
      if (dim < 0 || __builtin_mul_overflow(size, static_cast<uint64_t>(dim), &size))
        index.refuse("a weight of impossible size");
      dims.push_back(dim);
    }
    const auto offset = index.number<uint64_t>();
    if (offset != end || offset > bytes.size() || size > bytes.size() - offset)
      index.refuse("a weight outside its section");
    end = align_up(offset + size, kWeightAlignment);
    weights.emplace_back(static_cast<DataType>(dtype), dims, owner, bytes.subspan(offset, size));
  }
  index.expect_end();
  if (end != bytes.size()) index.refuse("weights without an entry in the index");
  return weights;
}

void bind_steps(Plan& plan, const CustomOperators& operators) {
  for (Step& step : plan.steps)
    if (auto* op = std::get_if<Custom>(&step.op))
      with_context([&] { return fmt::format("step \"{}\"", step.name); },
                   [&] { bind_operator(*op, operators); });
  for (Plan& body : plan.bodies) bind_steps(body, operators);
}

std::vector<SectionBytes> weight_sections(const EngineFile& file) {
  std::vector<SectionBytes> sections;
  sections.push_back(weights_section(file));
  if (!file.packed.empty()) {
    sections.push_back({SectionKind::kPackedIndex, packed_index_section(file)});
    sections.push_back(packed_section(file));
  }
  return sections;
}

std::vector<std::byte> plan_section(const Plan& plan) {
  ByteWriter to;
  to.number(plan.profile);
  save(to, plan);
  return to.take();
}

std::vector<std::byte> bytes_of_text(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> bytes_of_digest(const Digest& digest) {
  return {digest.begin(), digest.end()};
}

Digest digest_in(std::span<const std::byte> content) {
  ByteReader from(content, "section digest of the plans");
  Digest digest;
  std::ranges::copy(from.raw(digest.size()), digest.begin());
  from.expect_end();
  return digest;
}

// What the sections of an engine file and of its file of weights hold.
struct Contents {
  std::shared_ptr<const void> owner;  // of the bytes
  std::span<const std::byte> index = {}, weights = {}, packed_index = {}, packed = {};
  std::optional<Digest> digest = {};
  bool has_info = false, has_weights = false;
};

void load_section(const SectionView& section, const CustomOperators& operators, EngineFile& file,
                  Contents& contents) {
  switch (section.kind) {
    case SectionKind::kInfo: {
      ByteReader from(section.bytes, "section info");
      file.producer = from.text();
      file.model_name = from.text();
      from.expect_end();
      contents.has_info = true;
      break;
    }
    case SectionKind::kPlan: {
      ByteReader from(section.bytes, "section plan");
      const auto profile = from.number<uint32_t>();
      file.plans.push_back(load_plan(from));
      file.plans.back().profile = profile;
      from.expect_end();
      bind_steps(file.plans.back(), operators);
      break;
    }
    case SectionKind::kRecipe:
      file.recipe.assign(reinterpret_cast<const char*>(section.bytes.data()), section.bytes.size());
      break;
    case SectionKind::kPlanDigest:
      contents.digest = digest_in(section.bytes);
      break;
    case SectionKind::kWeightIndex:
      contents.index = section.bytes;
      break;
    case SectionKind::kWeights:
      contents.weights = section.bytes;
      contents.has_weights = true;
      break;
    case SectionKind::kPackedIndex:
      contents.packed_index = section.bytes;
      // The original of a packed weight is not read again.
      give_pages_back({contents.weights, contents.owner});
      break;
    case SectionKind::kPacked:
      contents.packed = section.bytes;
      break;
    default:
      fail(ErrorCode::kIncompatiblePlan,
           fmt::format("the engine file has a section of unknown kind {}",
                       static_cast<uint32_t>(section.kind)));
  }
}

// The second file of an engine. Its sections follow those of the engine.
void load_apart(const WeightsSource& source, ThreadTeam* team, EngineFile& file,
                Contents& contents) {
  Contents apart{.owner = source.file.owner};
  for (const SectionView& section : load_sections(kWeightsFile, source.file.bytes)) {
    check_section(kWeightsFile, section, team);
    if (section.kind == SectionKind::kInfo || section.kind == SectionKind::kPlan ||
        section.kind == SectionKind::kRecipe || section.kind == SectionKind::kWeightIndex)
      fail(ErrorCode::kIncompatiblePlan,
           fmt::format("the file of weights has a section of kind {}, which engine files have",
                       static_cast<uint32_t>(section.kind)));
    load_section(section, {}, file, apart);
  }
  if (!apart.digest || !apart.has_weights)
    fail(ErrorCode::kIncompatiblePlan, "the file of weights lacks a section");
  if (apart.digest != contents.digest)
    fail(ErrorCode::kIncompatiblePlan,
         fmt::format("the weights belong to another engine: the digest of its plans begins with "
                     "{}, that of this engine with {}",
                     hex(*apart.digest).substr(0, 8), hex(*contents.digest).substr(0, 8)));
  contents.owner = apart.owner;
  contents.weights = apart.weights;
  contents.packed_index = apart.packed_index;
  contents.packed = apart.packed;
}

}  // namespace

Digest plan_digest(const EngineFile& file) {
  ByteWriter to;
  for (const Plan& plan : file.plans) to.blob(plan_section(plan));
  to.blob(weight_index_section(file));
  return sha256(to.take());
}

namespace {

std::vector<SectionBytes> engine_sections(const EngineFile& file) {
  std::vector<SectionBytes> sections;
  sections.push_back({SectionKind::kInfo, info_section(file)});
  for (const Plan& plan : file.plans) sections.push_back({SectionKind::kPlan, plan_section(plan)});
  if (!file.recipe.empty()) sections.push_back({SectionKind::kRecipe, bytes_of_text(file.recipe)});
  sections.push_back({SectionKind::kWeightIndex, weight_index_section(file)});
  if (file.weights_apart)
    sections.push_back({SectionKind::kPlanDigest, bytes_of_digest(plan_digest(file))});
  else
    std::ranges::move(weight_sections(file), std::back_inserter(sections));
  return sections;
}

std::vector<SectionBytes> weights_file_sections(const EngineFile& file) {
  std::vector<SectionBytes> sections;
  sections.push_back({SectionKind::kPlanDigest, bytes_of_digest(plan_digest(file))});
  std::ranges::move(weight_sections(file), std::back_inserter(sections));
  return sections;
}

}  // namespace

std::vector<std::byte> save(const EngineFile& file) {
  return save_sections(kEngineFile, engine_sections(file));
}
std::vector<std::byte> save_weights(const EngineFile& file) {
  return save_sections(kWeightsFile, weights_file_sections(file));
}

EngineFile load_engine_file(std::span<const std::byte> bytes,
                            const std::shared_ptr<const void>& owner, ThreadTeam* team,
                            const CustomOperators& operators, const WeightsSource& apart) {
  EngineFile file;
  Contents contents{.owner = owner};
  for (const SectionView& section : load_sections(kEngineFile, bytes)) {
    check_section(kEngineFile, section, team);
    load_section(section, operators, file, contents);
  }
  if (!contents.has_info || file.plans.empty() || contents.index.empty() ||
      contents.has_weights == contents.digest.has_value())
    fail(ErrorCode::kIncompatiblePlan, "the engine file lacks a section");
  check_profiles(file);
  file.weights_apart = contents.digest.has_value();
  file.digest = contents.digest.value_or(Digest{});
  if (file.weights_apart && apart.use == WeightsSource::kNone) return file;
  if (file.weights_apart && apart.use == WeightsSource::kInEngine)
    fail(ErrorCode::kInvalidArgument,
         "the weights of this engine are in a file of their own: name it with --weights FILE, or "
         "EngineOptions::weights");
  if (!file.weights_apart && apart.use == WeightsSource::kApart)
    fail(ErrorCode::kInvalidArgument,
         "this engine has its weights: leave out the file of weights, or refit the engine");
  if (file.weights_apart)
    with_context([] { return "while reading its weights"; },
                 [&] { load_apart(apart, team, file, contents); });
  file.weights = load_weights(ByteReader(contents.index, "section weight index"), contents.weights,
                              contents.owner);
  if (!contents.packed_index.empty())
    file.packed = load_packed(ByteReader(contents.packed_index, "section packed index"),
                              contents.packed, contents.owner);
  for (const Plan& plan : file.plans) {
    try {
      check_plan(plan, file.weights);
    } catch (LibraryError& error) {
      add_context(error, fmt::format("the plan for {} is not loaded", plan.target));
      throw;
    } catch (Error& error) {
      add_context(error, fmt::format("the plan for {} is damaged", plan.target));
      throw;
    }
  }
  return file;
}

size_t write_engine_file(const std::string& path, const EngineFile& file,
                         const WriteProgress& progress) {
  return write_sections(path, kEngineFile, engine_sections(file), progress);
}
size_t write_weights_file(const std::string& path, const EngineFile& file,
                          const WriteProgress& progress) {
  return write_sections(path, kWeightsFile, weights_file_sections(file), progress);
}

EngineFile read_engine_file(const std::string& path, const ReadOptions& options) {
  return with_context([&] { return fmt::format("while loading engine {}", path); },
                      [&] {
                        const auto read = [&](const std::string& from) {
                          return options.map ? map_file(from) : read_file(from);
                        };
                        const FileBytes bytes = read(path);
                        WeightsSource weights;
                        if (!options.weights.empty())
                          weights = {WeightsSource::kApart, read(options.weights)};
                        return load_engine_file(bytes.bytes, bytes.owner, options.team,
                                                options.operators, weights);
                      });
}

}  // namespace anneal
