# cmake -DOUT=file.cc -DFILES="a.h;b.h" -P embed_text.cmake: a C++ file that defines
# anneal::cuda::device_header(), which gives the text of each file by its name, and
# device_header_names().
set(rows "")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  file(READ ${file} text)
  # A string literal may hold 65536 characters.
  string(LENGTH "${text}" length)
  set(parts "")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${text}" ${at} 16000 part)
    string(APPEND parts "R\"~~~(${part})~~~\"\n")
    math(EXPR at "${at} + 16000")
  endwhile()
  string(APPEND rows "    {\"${name}\", ${parts}},\n")
endforeach()
file(WRITE ${OUT} "// Generated from kernels/cuda/device.
#include \"anneal/core/fail.h\"
#include \"anneal/kernels/cuda/code/code.h\"

namespace anneal::cuda {
namespace {
constexpr struct {
  std::string_view name, text;
} kHeaders[] = {
${rows}};
}  // namespace

std::string_view device_header(std::string_view name) {
  for (const auto& header : kHeaders)
    if (header.name == name) return header.text;
  check(false, \"the library holds this header\");
  return {};
}

std::vector<std::string_view> device_header_names() {
  std::vector<std::string_view> names;
  for (const auto& header : kHeaders) names.push_back(header.name);
  return names;
}

}  // namespace anneal::cuda
")
