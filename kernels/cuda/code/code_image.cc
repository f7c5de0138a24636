#include "anneal/kernels/cuda/code/code_image.h"

#include <algorithm>

#include "anneal/core/bytes.h"
#include "anneal/kernels/cuda/code/cubin.h"

namespace anneal::cuda {
namespace {

constexpr std::string_view kImageMagic = "ANNEALCU";
constexpr uint32_t kVersion = 1;

}  // namespace

std::vector<std::byte> code_image(std::span<const CodePart> parts) {
  ByteWriter out;
  out.raw(bytes_of(kImageMagic));
  out.number(kVersion);
  out.number(static_cast<uint32_t>(parts.size()));
  for (const CodePart& part : parts) {
    out.number(static_cast<uint32_t>(part.architecture));
    out.raw(part.digest);
    out.number(static_cast<uint32_t>(part.names.size()));
    for (const std::string& name : part.names) out.text(name);
    out.blob(part.cubin);
  }
  return out.take();
}

std::vector<CodePart> parts_of(std::span<const std::byte> image) {
  if (image.empty()) return {};
  ByteReader in(image, "device code");
  const auto magic = in.raw(kImageMagic.size());
  if (!std::equal(magic.begin(), magic.end(), bytes_of(kImageMagic).begin()))
    in.refuse("it does not begin with ANNEALCU");
  if (in.number<uint32_t>() != kVersion) in.refuse("it is of another version");
  std::vector<CodePart> parts(in.count(sizeof(uint32_t) + sizeof(Digest) + 2 * sizeof(uint32_t)));
  for (CodePart& part : parts) {
    part.architecture = static_cast<int>(in.number<uint32_t>());
    const auto digest = in.raw(sizeof(Digest));
    std::copy(digest.begin(), digest.end(), part.digest.begin());
    part.names.resize(in.count(sizeof(uint32_t)));
    for (std::string& name : part.names) name = in.text();
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
  for (const std::string& name : part.names) {
    const auto at = std::find_if(functions.begin(), functions.end(),
                                 [&](const auto& function) { return function->name == name; });
    if (at == functions.end()) return {};
    found.push_back(*at);
  }
  if (sha256(bytes_of(program_of(found))) != part.digest) return {};
  return found;
}

}  // namespace anneal::cuda
