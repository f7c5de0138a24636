# A copy of nlohmann's json.hpp whose destructor does not end the process when memory runs out. The library moves the elements
# of an object or array into a vector before it destroys them; that allocates in a noexcept function (its issue 5135, open in
# 3.12). In the copy, as in the library's pull request 5239, elements that did not fit are destroyed by recursion.
# The copy lies in include/, which every target searches first.
find_path(ANNEAL_JSON_FOLDER nlohmann/json.hpp HINTS ${nlohmann_json_INCLUDE_DIRS} REQUIRED)
file(READ ${ANNEAL_JSON_FOLDER}/nlohmann/json.hpp anneal_json)
set(anneal_json_begin "                // flatten the current json_value to a heap-allocated stack\n")
set(anneal_json_end "                    // since it doesn't have any children\n                }\n")
string(FIND "${anneal_json}" "${anneal_json_begin}" anneal_json_begins)
string(FIND "${anneal_json}" "${anneal_json_end}" anneal_json_ends)
if(anneal_json_begins EQUAL -1 OR anneal_json_ends EQUAL -1)
  message(WARNING "json.hpp has another destructor than cmake/json_header.cmake expects: it is used unchanged")
  file(REMOVE ${PROJECT_BINARY_DIR}/include/nlohmann/json.hpp)
else()
  string(REPLACE "${anneal_json_begin}" "                try {\n${anneal_json_begin}" anneal_json "${anneal_json}")
  string(REPLACE "${anneal_json_end}" "${anneal_json_end}                } catch (...) {}\n" anneal_json "${anneal_json}")
  # As for the header in /usr/include, there are no warnings.
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/include/nlohmann/json.hpp CONTENT "#pragma GCC system_header\n@anneal_json@" @ONLY)
endif()
unset(anneal_json)
