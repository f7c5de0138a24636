// An op in bytes: its name, the number of its fields, then each field's name and value. A field
// that is missing keeps its default, so adding one leaves old bytes readable.
#include <algorithm>

#include "anneal/core/dtype_kinds.h"
#include "anneal/core/fail.h"
#include "anneal/graph/op/op.h"
#include "anneal/graph/op/op_names.h"

namespace anneal {
namespace {

// A number, a boolean or an enumerator as itself; a list with its count before it; a Size as
// core/size/size.h says.
template <class T>
void save_value(ByteWriter& to, const T& value) {
  if constexpr (is_vector<T>) {
    to.number(static_cast<uint32_t>(value.size()));
    for (const auto& element : value) save_value(to, element);
  } else if constexpr (std::is_same_v<T, Program> || std::is_same_v<T, Size> ||
                       std::is_same_v<T, CustomAttribute>) {
    save(to, value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    to.text(value);
  } else if constexpr (std::is_enum_v<T> || std::is_same_v<T, bool>) {
    to.number(static_cast<uint8_t>(value));
  } else {
    to.number(value);
  }
}

void load_value(ByteReader& from, bool& value) { value = from.boolean(); }
void load_value(ByteReader& from, int64_t& value) { value = from.number<int64_t>(); }
void load_value(ByteReader& from, float& value) { value = from.number<float>(); }
void load_value(ByteReader& from, Program& value) { value = load_program(from); }
void load_value(ByteReader& from, Size& value) { value = load_size(from); }
void load_value(ByteReader& from, std::string& value) { value = from.text(); }
void load_value(ByteReader& from, CustomAttribute& value) { value = load_custom_attribute(from); }

void load_value(ByteReader& from, DataType& value) {
  const auto number = from.number<uint8_t>();
  const auto all = all_dtypes();
  const auto found = std::find(all.begin(), all.end(), static_cast<DataType>(number));
  if (found == all.end()) from.refuse("the data type " + std::to_string(number));
  value = *found;
}

template <NamedEnum E>
void load_value(ByteReader& from, E& value) {
  const auto number = from.number<uint8_t>();
  if (number >= names_of<E>().size()) from.refuse("the enumerator " + std::to_string(number));
  value = static_cast<E>(number);
}

template <class T>
void load_value(ByteReader& from, std::vector<T>& values) {
  // Bytes of an element at least; of an attribute: length of its name, kind, count.
  constexpr size_t kLeast = std::is_same_v<T, Size>              ? 5
                            : std::is_same_v<T, CustomAttribute> ? 9
                                                                 : sizeof(T);
  values.resize(from.count(kLeast));
  for (T& value : values) load_value(from, value);
}

// A text from outside, fit to be shown.
std::string shown(std::string text) {
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return "\"" + text.substr(0, 40) + "\"";
}

template <class T>
void load_fields(ByteReader& from, T& op, std::string_view op_name) {
  const size_t count = from.count(5);
  std::vector<std::string> seen;
  for (size_t i = 0; i < count; ++i) {
    const std::string field = from.text();
    if (std::find(seen.begin(), seen.end(), field) != seen.end())
      from.refuse(std::string(op_name) + " with two fields " + shown(field));
    bool found = false;
    T::fields(op, [&](const char* name, auto& value) {
      if (field != name) return;
      load_value(from, value);
      found = true;
    });
    if (!found) from.refuse(std::string(op_name) + " with the unknown field " + shown(field));
    seen.push_back(field);
  }
}

}  // namespace

void save(ByteWriter& to, const Op& op) {
  std::visit(
      [&]<class T>(const T& known) {
        if constexpr (std::is_same_v<T, std::monostate>) {
          check(false, "an erased layer is not saved");
        } else {
          to.text(to_string(op));
          uint32_t count = 0;
          T::fields(known, [&](const char*, const auto&) { ++count; });
          to.number(count);
          T::fields(known, [&](const char* field, const auto& value) {
            to.text(field);
            save_value(to, value);
          });
        }
      },
      op);
}

Op load_op(ByteReader& from) {
  const std::string op_name = from.text();
  Op op = op_named(op_name);
  std::visit(
      [&]<class T>(T& known) {
        if constexpr (std::is_same_v<T, std::monostate>) {
          from.refuse("the unknown op " + shown(op_name));
        } else {
          load_fields(from, known, op_name);
        }
      },
      op);
  return op;
}

}  // namespace anneal
