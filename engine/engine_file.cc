// Engine files: sections with checksums. Layout: docs/plan_format.md.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "anneal/core/bytes.h"
#include "anneal/core/fail.h"
#include "anneal/core/file.h"
#include "anneal/core/integer.h"
#include "anneal/engine/plan.h"
#include "anneal/engine/plan_bytes.h"
#include "anneal/engine/plan_check.h"

namespace anneal {
namespace {

constexpr std::string_view kMagic =
    "\x89"
    "ANNEAL\n";
constexpr uint32_t kVersion = 6;
constexpr size_t kSectionAlignment = 64;
constexpr size_t kWeightsAlignment = 4096;
constexpr size_t kWeightAlignment = 64;
constexpr uint32_t kMaxSections = 1024;

enum class SectionKind : uint32_t {
  kInfo = 1,
  kPlan = 2,
  kWeightIndex = 3,
  kWeights = 4,
  kPackedIndex = 5,
  kPacked = 6
};

struct Section {
  SectionKind kind;
  uint32_t crc;
  uint64_t offset, size;
};
constexpr size_t kSectionEntryBytes = 24;
constexpr size_t kHeaderBytes =
    8 + 3 * sizeof(uint32_t);  // magic, version, sections, table checksum

// The alignment of the beginning of a section: data that kernels read is mapped by separate pages.
size_t section_alignment(SectionKind kind) {
  const bool pages = kind == SectionKind::kWeights || kind == SectionKind::kPacked;
  return pages ? kWeightsAlignment : kSectionAlignment;
}

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

std::vector<std::byte> weights_section(const EngineFile& file) {
  ByteWriter to;
  for (const Tensor& weight : file.weights) {
    to.raw(weight.bytes());
    to.align(kWeightAlignment);
  }
  return to.take();
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

std::vector<std::byte> packed_section(const EngineFile& file) {
  ByteWriter to;
  for (const ReadyConstant& each : file.packed) {
    to.raw(each.bytes.bytes());
    to.align(kWeightAlignment);
  }
  return to.take();
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

std::vector<Section> load_table(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    fail(ErrorCode::kIncompatiblePlan, "this is not an engine file (its first bytes differ)");
  ByteReader header(bytes.subspan(kMagic.size()), "header");
  const auto version = header.number<uint32_t>();
  if (version != kVersion)
    fail(ErrorCode::kIncompatiblePlan,
         fmt::format("the engine file has format version {}, this library reads version {}: build "
                     "the engine again from its ONNX file",
                     version, kVersion));
  const auto count = header.number<uint32_t>();
  const auto crc = header.number<uint32_t>();
  if (count > kMaxSections || count * kSectionEntryBytes > header.left())
    header.refuse("its table of sections is cut off");
  const auto table = bytes.subspan(kHeaderBytes, count * kSectionEntryBytes);
  if (crc32c(table, count) != crc) header.refuse("the checksum of its table of sections differs");

  std::vector<Section> sections(count);
  uint64_t end = kHeaderBytes + table.size();
  for (Section& section : sections) {
    section.kind = static_cast<SectionKind>(header.number<uint32_t>());
    section.crc = header.number<uint32_t>();
    section.offset = header.number<uint64_t>();
    section.size = header.number<uint64_t>();
    const size_t alignment = section_alignment(section.kind);
    if (section.offset != align_up(end, alignment) || section.offset > bytes.size() ||
        section.size > bytes.size() - section.offset)
      header.refuse("the file is cut off, or a section lies outside it");
    for (uint64_t at = end; at < section.offset; ++at)
      if (bytes[at] != std::byte{0}) header.refuse("padding between sections is not zero");
    end = section.offset + section.size;
  }
  if (end != bytes.size()) header.refuse("bytes follow the last section");
  return sections;
}

}  // namespace

std::vector<std::byte> save(const EngineFile& file) {
  std::vector<std::pair<SectionKind, std::vector<std::byte>>> contents;
  contents.emplace_back(SectionKind::kInfo, info_section(file));
  for (const Plan& plan : file.plans) {
    ByteWriter to;
    save(to, plan);
    contents.emplace_back(SectionKind::kPlan, to.take());
  }
  contents.emplace_back(SectionKind::kWeightIndex, weight_index_section(file));
  contents.emplace_back(SectionKind::kWeights, weights_section(file));
  if (!file.packed.empty()) {
    contents.emplace_back(SectionKind::kPackedIndex, packed_index_section(file));
    contents.emplace_back(SectionKind::kPacked, packed_section(file));
  }

  ByteWriter table, body;
  const size_t body_at = kHeaderBytes + contents.size() * kSectionEntryBytes;
  for (const auto& [kind, bytes] : contents) {
    const size_t alignment = section_alignment(kind);
    const size_t offset = align_up(body_at + body.size(), alignment);
    while (body_at + body.size() < offset) body.number<uint8_t>(0);
    table.number(static_cast<uint32_t>(kind));
    table.number(crc32c(bytes));
    table.number(uint64_t{offset});
    table.number(uint64_t{bytes.size()});
    body.raw(bytes);
  }
  const auto table_bytes = table.take();
  const auto count = static_cast<uint32_t>(contents.size());
  ByteWriter file_bytes;
  file_bytes.raw(std::as_bytes(std::span(kMagic)));
  file_bytes.number(kVersion);
  file_bytes.number(count);
  file_bytes.number(crc32c(table_bytes, count));
  file_bytes.raw(table_bytes);
  file_bytes.raw(body.take());
  return file_bytes.take();
}

EngineFile load_engine_file(std::span<const std::byte> bytes,
                            const std::shared_ptr<const void>& owner, bool mapped,
                            ThreadTeam* team) {
  EngineFile file;
  file.mapped = mapped;
  std::span<const std::byte> index, weights, packed_index, packed;
  bool has_info = false;
  for (const Section& section : load_table(bytes)) {
    const auto content = bytes.subspan(section.offset, section.size);
    const auto kind = static_cast<uint32_t>(section.kind);
    if ((team ? crc32c(content, *team) : crc32c(content)) != section.crc)
      fail(ErrorCode::kIncompatiblePlan,
           fmt::format("the engine file is damaged: the checksum of section {} differs", kind));
    switch (section.kind) {
      case SectionKind::kInfo: {
        ByteReader from(content, "section info");
        file.producer = from.text();
        file.model_name = from.text();
        from.expect_end();
        has_info = true;
        break;
      }
      case SectionKind::kPlan: {
        ByteReader from(content, "section plan");
        file.plans.push_back(load_plan(from));
        from.expect_end();
        break;
      }
      case SectionKind::kWeightIndex:
        index = content;
        break;
      case SectionKind::kWeights:
        weights = content;
        break;
      case SectionKind::kPackedIndex:
        packed_index = content;
        // The original of a packed weight is not read again.
        if (mapped) give_pages_back(weights);
        break;
      case SectionKind::kPacked:
        packed = content;
        break;
      default:
        fail(ErrorCode::kIncompatiblePlan,
             fmt::format("the engine file has a section of unknown kind {}", kind));
    }
  }
  if (!has_info || file.plans.empty() || index.empty())
    fail(ErrorCode::kIncompatiblePlan, "the engine file lacks a section");
  file.weights = load_weights(ByteReader(index, "section weight index"), weights, owner);
  if (!packed_index.empty())
    file.packed = load_packed(ByteReader(packed_index, "section packed index"), packed, owner);
  for (const Plan& plan : file.plans)
    with_context([&] { return fmt::format("the plan for {} is damaged", plan.target); },
                 [&] { check_plan(plan, file.weights); });
  return file;
}

void write_engine_file(const std::string& path, const EngineFile& file) {
  write_file_atomically(path, save(file));
}

EngineFile read_engine_file(const std::string& path, const ReadOptions& options) {
  return with_context([&] { return fmt::format("while loading engine {}", path); },
                      [&] {
                        FileBytes bytes = options.map ? map_file(path) : read_file(path);
                        return load_engine_file(bytes.bytes, bytes.owner, options.map,
                                                options.team);
                      });
}

}  // namespace anneal
