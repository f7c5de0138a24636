# anneal_unity(TARGET), after its last source: the files of each folder are compiled as one, because
# most of a file's compile time is its headers. File-local names are therefore distinct within a
# folder. Files that are compiled once per instruction set, or with options of their own, stay alone.
# TOGETHER names folders that make one file. LIGHT names folders without hot loops: -Os compiles them in
# four fifths of the time of -O2, to two thirds of the code of -O1. CMake's UNITY_BUILD writes absolute paths, so that checkouts could not share a compiler cache.
function(anneal_unity target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "TOGETHER;LIGHT")
  if(NOT ANNEAL_UNITY)
    return()
  endif()
  set(folders "")
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source)
    cmake_path(IS_PREFIX PROJECT_SOURCE_DIR ${source} NORMALIZE ours)
    # A generated file would be a header of its unity file, which ninja would find changed a build too late.
    cmake_path(IS_PREFIX PROJECT_BINARY_DIR ${source} NORMALIZE generated)
    if(NOT ours OR generated OR NOT EXISTS ${source})
      continue()
    endif()
    file(STRINGS ${source} per_instruction_set REGEX "foreach_target.h|-inl.h\"|define ANNEAL_AVX2 __attribute__")
    get_source_file_property(definitions ${source} TARGET_DIRECTORY ${target} COMPILE_DEFINITIONS)
    if(per_instruction_set OR definitions)
      continue()
    endif()
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    cmake_path(GET source PARENT_PATH folder)
    if(folder IN_LIST arg_TOGETHER)
      list(GET arg_TOGETHER 0 folder)
    endif()
    list(APPEND folders ${folder})
    list(APPEND sources_of_${folder} ${source})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder ${folders})
    list(TRANSFORM sources_of_${folder} REPLACE "(.+)" "#include \"anneal/\\1\"\n"
         OUTPUT_VARIABLE includes)
    string(REPLACE ";" "" includes "${includes}")
    set(unity ${PROJECT_BINARY_DIR}/unity/${target}/${folder}.cc)
    file(CONFIGURE OUTPUT ${unity} CONTENT "${includes}")
    target_sources(${target} PRIVATE ${unity})
    if(folder IN_LIST arg_LIGHT)
      set_source_files_properties(${unity} TARGET_DIRECTORY ${target}
        PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-Os>)
    endif()
    list(TRANSFORM sources_of_${folder} PREPEND ${PROJECT_SOURCE_DIR}/)
    set_source_files_properties(${sources_of_${folder}} TARGET_DIRECTORY ${target}
      PROPERTIES HEADER_FILE_ONLY ON)
  endforeach()
  # A type in an anonymous namespace may be a member of one that has none: both are in one file.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()
