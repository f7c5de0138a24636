#include "anneal/kernels/cuda/code/cubin.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string_view>

namespace anneal::cuda {
namespace {

bool fits(std::span<const std::byte> file, uint64_t offset, uint64_t size) {
  return offset <= file.size() && size <= file.size() - offset;
}

// `count` structs at `offset`; none if they do not all lie in the file.
template <class T>
std::vector<T> read(std::span<const std::byte> file, uint64_t offset, uint64_t count) {
  if (count > file.size() / sizeof(T) || !fits(file, offset, count * sizeof(T))) return {};
  std::vector<T> values(count);
  if (count > 0) std::memcpy(values.data(), file.data() + offset, count * sizeof(T));
  return values;
}

class Sections {
 public:
  explicit Sections(std::span<const std::byte> file) : file_(file) {
    const auto header = read<Elf64_Ehdr>(file, 0, 1).at(0);
    headers_ = read<Elf64_Shdr>(file, header.e_shoff, header.e_shnum);
    names_ = bytes(headers_.at(header.e_shstrndx));
  }
  const std::vector<Elf64_Shdr>& headers() const { return headers_; }
  std::string_view name(const Elf64_Shdr& section) const { return text(names_, section.sh_name); }
  std::span<const std::byte> bytes(const Elf64_Shdr& section) const {
    return section.sh_type == SHT_NOBITS ? std::span<const std::byte>{}
                                         : file_.subspan(section.sh_offset, section.sh_size);
  }
  // The names of symbols, by their index.
  std::vector<std::string_view> symbols() const {
    std::vector<std::string_view> found;
    for (const Elf64_Shdr& section : headers_) {
      if (section.sh_type != SHT_SYMTAB || section.sh_link >= headers_.size()) continue;
      const auto names = bytes(headers_[section.sh_link]);
      const auto all = bytes(section);
      for (const Elf64_Sym& symbol : read<Elf64_Sym>(all, 0, all.size() / sizeof(Elf64_Sym)))
        found.push_back(text(names, symbol.st_name));
    }
    return found;
  }

 private:
  static std::string_view text(std::span<const std::byte> bytes, size_t from) {
    const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (from >= all.size()) return {};
    return all.substr(from, all.substr(from).find('\0'));
  }
  std::span<const std::byte> file_;
  std::vector<Elf64_Shdr> headers_;
  std::span<const std::byte> names_;
};

// Sections .nv.info and .nv.info.FUNCTION are lists of attributes: a byte that says how it is
// written, a byte that says what it is, and two bytes of value or, written this way, of length.
constexpr int kWithBytes = 4;
enum Attribute : int { kMostThreads = 0x05, kFrameSize = 0x11, kRegisterCount = 0x2f };

void for_each_attribute(
    std::span<const std::byte> info,
    const std::function<void(int attribute, std::span<const uint32_t> words)>& body) {
  while (info.size() >= 4) {
    const int written = static_cast<int>(info[0]), attribute = static_cast<int>(info[1]);
    const auto length = read<uint16_t>(info, 2, 1)[0];
    info = info.subspan(4);
    if (written != kWithBytes) continue;
    if (length > info.size()) return;
    body(attribute, read<uint32_t>(info, 0, length / sizeof(uint32_t)));
    info = info.subspan(length);
  }
}

}  // namespace

bool is_whole_cubin(std::span<const std::byte> cubin) {
  const auto headers = read<Elf64_Ehdr>(cubin, 0, 1);
  if (headers.empty()) return false;
  const Elf64_Ehdr& header = headers[0];
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
    return false;
  if (header.e_shentsize != sizeof(Elf64_Shdr) ||
      (header.e_phnum > 0 && header.e_phentsize != sizeof(Elf64_Phdr)))
    return false;
  const auto sections = read<Elf64_Shdr>(cubin, header.e_shoff, header.e_shnum);
  const auto segments = read<Elf64_Phdr>(cubin, header.e_phoff, header.e_phnum);
  if (sections.empty() || segments.size() != header.e_phnum) return false;
  for (const Elf64_Shdr& section : sections)
    if (section.sh_type != SHT_NOBITS && !fits(cubin, section.sh_offset, section.sh_size))
      return false;
  for (const Elf64_Phdr& segment : segments)
    if (!fits(cubin, segment.p_offset, segment.p_filesz)) return false;
  return header.e_shstrndx < sections.size();
}

std::vector<FunctionResources> resources_of(std::span<const std::byte> cubin) {
  constexpr std::string_view kText = ".text.", kShared = ".nv.shared.", kInfo = ".nv.info",
                             kInfoOf = ".nv.info.", kReserved = ".nv.shared.reserved.0";
  // Where there is this section, every block's shared memory begins with 1 KiB of the system's.
  constexpr int kReservedBytes = 1024;
  const Sections sections(cubin);
  std::map<std::string, FunctionResources, std::less<>> functions;
  bool has_reserved = false;
  for (const Elf64_Shdr& section : sections.headers()) {
    const std::string_view name = sections.name(section);
    has_reserved |= name == kReserved;
    if (!name.starts_with(kText)) continue;
    const std::string function(name.substr(kText.size()));
    functions[function].name = function;
    functions[function].code_bytes = static_cast<int>(section.sh_size);
  }
  const auto find = [&](std::string_view name) -> FunctionResources* {
    const auto at = functions.find(name);
    return at == functions.end() ? nullptr : &at->second;
  };
  const auto symbols = sections.symbols();
  for (const Elf64_Shdr& section : sections.headers()) {
    const std::string_view name = sections.name(section);
    if (name.starts_with(kShared))
      if (auto* const function = find(name.substr(kShared.size())))
        function->shared_bytes =
            static_cast<int>(section.sh_size) - (has_reserved ? kReservedBytes : 0);
    if (name == kInfo)
      for_each_attribute(sections.bytes(section), [&](int attribute, auto words) {
        if (words.size() < 2 || words[0] >= symbols.size()) return;
        auto* const function = find(symbols[words[0]]);
        if (function == nullptr) return;
        if (attribute == kRegisterCount) function->registers = static_cast<int>(words[1]);
        if (attribute == kFrameSize) function->stack_bytes = static_cast<int>(words[1]);
      });
    if (name.starts_with(kInfoOf))
      if (auto* const function = find(name.substr(kInfoOf.size())))
        for_each_attribute(sections.bytes(section), [&](int attribute, auto words) {
          if (attribute == kMostThreads && words.size() == 3)
            function->most_threads = static_cast<int>(words[0] * words[1] * words[2]);
        });
  }
  std::vector<FunctionResources> found;
  for (auto& [name, function] : functions) found.push_back(std::move(function));
  return found;
}

}  // namespace anneal::cuda
