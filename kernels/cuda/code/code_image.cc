#include "anneal/kernels/cuda/code/code_image.h"

#include <algorithm>

#include "anneal/core/bytes.h"
#include "anneal/kernels/cuda/code/cubin.h"

namespace anneal::cuda {
namespace {

constexpr std::string_view kImageMagic = "ANNEALCU";
constexpr uint32_t kVersion = 2;

Digest digest_of(const std::shared_ptr<Function>& function) {
  const std::string program = program_of({function});
  return sha256(std::as_bytes(std::span(program)));
}

}  // namespace

CodePart part_for(std::span<const std::shared_ptr<Function>> functions, int architecture) {
  CodePart part;
  part.architecture = architecture;
  for (const auto& function : functions) {
    part.names.push_back(function->name);
    part.digests.push_back(digest_of(function));
  }
  return part;
}

std::vector<std::byte> code_image(std::span<const CodePart> parts) {
  ByteWriter out;
  out.raw(std::as_bytes(std::span(kImageMagic)));
  out.number(kVersion);
  out.number(static_cast<uint32_t>(parts.size()));
  for (const CodePart& part : parts) {
    out.number(static_cast<uint32_t>(part.architecture));
    out.number(static_cast<uint32_t>(part.names.size()));
    for (size_t i = 0; i < part.names.size(); ++i) {
      out.text(part.names[i]);
      out.raw(part.digests[i]);
    }
    out.blob(part.cubin);
  }
  return out.take();
}

std::vector<CodePart> parts_of(std::span<const std::byte> image) {
  if (image.empty()) return {};
  ByteReader in(image, "device code");
  const auto magic = in.raw(kImageMagic.size());
  if (!std::equal(magic.begin(), magic.end(), std::as_bytes(std::span(kImageMagic)).begin()))
    in.refuse("it does not begin with ANNEALCU");
  if (in.number<uint32_t>() != kVersion) in.refuse("it is of another version");
  std::vector<CodePart> parts(in.count(2 * sizeof(uint32_t) + sizeof(uint64_t)));
  for (CodePart& part : parts) {
    part.architecture = static_cast<int>(in.number<uint32_t>());
    part.names.resize(in.count(sizeof(uint32_t) + sizeof(Digest)));
    part.digests.resize(part.names.size());
    for (size_t i = 0; i < part.names.size(); ++i) {
      part.names[i] = in.text();
      std::ranges::copy(in.raw(sizeof(Digest)), part.digests[i].begin());
    }
    const auto cubin = in.blob();
    // The driver is not told how long it is.
    if (!is_whole_cubin(cubin)) in.refuse("machine code is cut off");
    part.cubin.assign(cubin.begin(), cubin.end());
  }
  in.expect_end();
  return parts;
}

bool runs_on(int code_architecture, int device_architecture) {
  return code_architecture / 10 == device_architecture / 10 &&
         code_architecture <= device_architecture;
}

std::vector<std::shared_ptr<Function>> functions_of(
    const CodePart& part, std::span<const std::shared_ptr<Function>> functions) {
  std::vector<std::shared_ptr<Function>> found;
  for (size_t i = 0; i < part.names.size(); ++i) {
    const auto at = std::ranges::find(functions, part.names[i],
                                      [](const auto& function) { return function->name; });
    if (at != functions.end() && digest_of(*at) == part.digests[i]) found.push_back(*at);
  }
  return found;
}

}  // namespace anneal::cuda
