# cmake -DOUT=file.cc -DFUNCTION=texts -DFILES="a.h;b.h" -P embed_text.cmake: a C++ file that defines
# anneal::cuda::texts(), the name and the text of each file: its lines without indentation and
# without comments that fill a line, which libraries need not hold.
set(rows "")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  file(READ ${file} text)
  string(REGEX REPLACE "\n[ ]+" "\n" text "\n${text}")
  string(REGEX REPLACE "\n//[^\n]*" "\n" text "${text}")
  string(SUBSTRING "${text}" 1 -1 text)
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
#include \"anneal/kernels/cuda/code/embedded_text.h\"

namespace anneal::cuda {

std::span<const EmbeddedText> ${FUNCTION}() {
  static constexpr EmbeddedText kTexts[] = {
${rows}};
  return kTexts;
}

}  // namespace anneal::cuda
")
