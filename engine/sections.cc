#include "anneal/engine/sections.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

#include "anneal/core/bytes.h"
#include "anneal/core/fail.h"
#include "anneal/core/integer.h"

namespace anneal {
namespace {

constexpr uint32_t kVersion = 15;
constexpr size_t kSectionAlignment = 64;
constexpr size_t kPageAlignment = 4096;
constexpr uint32_t kMaxSections = 1024;
constexpr size_t kSectionEntryBytes = 24;
constexpr size_t kHeaderBytes =
    8 + 3 * sizeof(uint32_t);  // magic, version, sections, table checksum

// The alignment of the beginning of a section: data that kernels read is mapped by separate pages.
size_t section_alignment(SectionKind kind) {
  const bool pages = kind == SectionKind::kWeights || kind == SectionKind::kPacked;
  return pages ? kPageAlignment : kSectionAlignment;
}

size_t padding_of(std::span<const std::byte> part) {
  return align_up(part.size(), kSectionAlignment) - part.size();
}

size_t section_size(const SectionBytes& section) {
  size_t size = section.bytes.size();
  for (const auto part : section.parts) size += part.size() + padding_of(part);
  return size;
}

// REQUIRES: count <= kPageAlignment
std::span<const std::byte> zeros(size_t count) {
  static constexpr std::array<std::byte, kPageAlignment> kZeros{};
  return std::span(kZeros).first(count);
}

uint32_t checksum_of(const SectionBytes& section) {
  uint32_t crc = crc32c(section.bytes);
  for (const auto part : section.parts) crc = crc32c(zeros(padding_of(part)), crc32c(part, crc));
  return crc;
}

}  // namespace

void FilePieces::add(std::span<const std::byte> piece) {
  pieces_.push_back(piece);
  size_ += piece.size();
}

void FilePieces::add_own(std::vector<std::byte> bytes) {
  own_.push_back(std::move(bytes));
  add(own_.back());
}

void FilePieces::add_zeros_to(size_t end) {
  if (end > size_) add(zeros(end - size_));
}

std::vector<std::byte> FilePieces::joined() const {
  std::vector<std::byte> bytes;
  bytes.reserve(size_);
  for (const auto piece : pieces_) bytes.insert(bytes.end(), piece.begin(), piece.end());
  return bytes;
}

FilePieces save_sections(const FileKind& file, std::vector<SectionBytes> sections) {
  ByteWriter table;
  std::vector<uint64_t> offsets;
  uint64_t end = kHeaderBytes + sections.size() * kSectionEntryBytes;
  for (const SectionBytes& section : sections) {
    offsets.push_back(align_up(end, section_alignment(section.kind)));
    end = offsets.back() + section_size(section);
    table.number(static_cast<uint32_t>(section.kind));
    table.number(checksum_of(section));
    table.number(offsets.back());
    table.number(uint64_t{section_size(section)});
  }
  const auto table_bytes = table.take();
  const auto count = static_cast<uint32_t>(sections.size());
  ByteWriter header;
  header.raw(std::as_bytes(std::span(file.magic)));
  header.number(kVersion);
  header.number(count);
  header.number(crc32c(table_bytes, count));
  header.raw(table_bytes);
  FilePieces pieces;
  pieces.add_own(header.take());
  for (size_t i = 0; i < sections.size(); ++i) {
    pieces.add_zeros_to(offsets[i]);
    pieces.add_own(std::move(sections[i].bytes));
    for (const auto part : sections[i].parts) {
      pieces.add(part);
      pieces.add_zeros_to(pieces.size() + padding_of(part));
    }
  }
  return pieces;
}

std::vector<SectionView> load_sections(const FileKind& file, std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes ||
      std::memcmp(bytes.data(), file.magic.data(), file.magic.size()) != 0)
    fail(ErrorCode::kIncompatiblePlan,
         fmt::format("this is not an {} (its first bytes differ)", file.name));
  ByteReader header(bytes.subspan(file.magic.size()), "header");
  const auto version = header.number<uint32_t>();
  if (version != kVersion)
    fail(ErrorCode::kIncompatiblePlan,
         fmt::format("the {} has format version {}, this library reads version {}: build the "
                     "engine again from its ONNX file",
                     file.name, version, kVersion));
  const auto count = header.number<uint32_t>();
  const auto crc = header.number<uint32_t>();
  if (count > kMaxSections || count * kSectionEntryBytes > header.left())
    header.refuse("its table of sections is cut off");
  const auto table = bytes.subspan(kHeaderBytes, count * kSectionEntryBytes);
  if (crc32c(table, count) != crc) header.refuse("the checksum of its table of sections differs");

  std::vector<SectionView> sections(count);
  uint64_t end = kHeaderBytes + table.size();
  for (SectionView& section : sections) {
    section.kind = static_cast<SectionKind>(header.number<uint32_t>());
    section.crc = header.number<uint32_t>();
    const auto offset = header.number<uint64_t>(), size = header.number<uint64_t>();
    if (offset != align_up(end, section_alignment(section.kind)) || offset > bytes.size() ||
        size > bytes.size() - offset)
      header.refuse("the file is cut off, or a section lies outside it");
    for (uint64_t at = end; at < offset; ++at)
      if (bytes[at] != std::byte{0}) header.refuse("padding between sections is not zero");
    section.bytes = bytes.subspan(offset, size);
    end = offset + size;
  }
  if (end != bytes.size()) header.refuse("bytes follow the last section");
  return sections;
}

void check_section(const FileKind& file, const SectionView& section, ThreadTeam* team) {
  if ((team ? crc32c(section.bytes, *team) : crc32c(section.bytes)) != section.crc)
    fail(ErrorCode::kIncompatiblePlan,
         fmt::format("the {} is damaged: the checksum of section {} differs", file.name,
                     static_cast<uint32_t>(section.kind)));
}

}  // namespace anneal
