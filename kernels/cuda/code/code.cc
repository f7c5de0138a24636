#include "anneal/kernels/cuda/code/code.h"

#include <fmt/format.h>

#include <algorithm>

#include "anneal/core/bytes.h"
#include "anneal/core/fail.h"
#include "anneal/kernels/cuda/code/embedded_text.h"

namespace anneal::cuda {
namespace {

std::string name_of(const FunctionText& text) {
  std::string all = text.text;
  for (const std::string_view header : text.headers) all.append("\n").append(header);
  return fmt::format("{}_{:016x}", text.family, hash_bytes(std::as_bytes(std::span(all))));
}

std::string with_name(const std::string& text, const std::string& name) {
  constexpr std::string_view kPlace = "$name";
  std::string result;
  size_t from = 0;
  for (size_t at; (at = text.find(kPlace, from)) != std::string::npos; from = at + kPlace.size())
    result.append(text, from, at - from).append(name);
  return result.append(text, from);
}

std::string_view text_of(std::string_view header) {
  const auto texts = device_texts();
  const auto found = std::find_if(texts.begin(), texts.end(),
                                  [&](const auto& text) { return text.name == header; });
  check(found != texts.end(), "the library holds this header");
  return found->text;
}

}  // namespace

std::shared_ptr<const Function> Code::add(FunctionText text) {
  std::string name = name_of(text);
  const std::lock_guard lock(mutex_);
  std::weak_ptr<Function>& known = functions_[name];
  if (auto function = known.lock()) {
    check(function->text == text, "functions of one name have one text");
    return function;
  }
  auto function = std::make_shared<Function>(Function{std::move(name), std::move(text)});
  known = function;
  return function;
}

std::vector<std::shared_ptr<Function>> Code::functions() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Function>> held;
  for (const auto& [name, known] : functions_)
    if (auto function = known.lock()) held.push_back(std::move(function));
  std::sort(held.begin(), held.end(),
            [](const auto& a, const auto& b) { return a->name < b->name; });
  return held;
}

std::string program_of(const std::vector<std::shared_ptr<Function>>& functions) {
  auto sorted = functions;
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a->name < b->name; });
  // Headers may need those before them in a function's list, so lists are kept in order.
  std::vector<std::string_view> headers = {"prelude.h"};
  for (const auto& function : sorted)
    for (const std::string_view header : function->text.headers)
      if (std::find(headers.begin(), headers.end(), header) == headers.end())
        headers.push_back(header);
  std::string program;
  for (const std::string_view header : headers) program.append(text_of(header));
  for (const auto& function : sorted)
    program += fmt::format("namespace of_{} {{\n{}\n}}\n", function->name,
                           with_name(function->text.text, function->name));
  return program;
}

}  // namespace anneal::cuda
