# What is installed, in three components, which are also the Debian packages: `runtime`, the libraries; `dev`,
# what programs are compiled with; `cli`, the command.
set(package ${PROJECT_BINARY_DIR}/package)
set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/anneal)

install(TARGETS anneal_engine anneal_builder EXPORT anneal-targets
  LIBRARY COMPONENT runtime NAMELINK_COMPONENT dev
  FILE_SET HEADERS COMPONENT dev)
install(TARGETS anneal_emulated LIBRARY NAMELINK_SKIP COMPONENT runtime)
install(TARGETS anneal EXPORT anneal-programs RUNTIME COMPONENT cli)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)

# annealPrograms.cmake lies beside it if the command is installed as well.
install(EXPORT anneal-targets NAMESPACE anneal:: DESTINATION ${config_folder} FILE annealTargets.cmake COMPONENT dev)
install(EXPORT anneal-programs NAMESPACE anneal:: DESTINATION ${config_folder} FILE annealPrograms.cmake COMPONENT cli)
# Not where find_package() would look when the build tree is in a search path: the targets file is
# written by the installation.
configure_package_config_file(cmake/annealConfig.cmake.in ${package}/annealConfig.cmake
  INSTALL_DESTINATION ${config_folder})
write_basic_package_version_file(${package}/annealConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${package}/annealConfig.cmake ${package}/annealConfigVersion.cmake
  DESTINATION ${config_folder} COMPONENT dev)

# pkg-config files find their prefix from where they lie, so that an installed tree may be moved.
file(RELATIVE_PATH PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" PC_PREFIX "${PC_PREFIX}")
foreach(name anneal-engine anneal-builder)
  configure_file(cmake/${name}.pc.in ${package}/${name}.pc @ONLY)
  install(FILES ${package}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
endforeach()

# The man page and the completion, from the command's own help. Programs with sanitizers need
# settings of their own to run.
if(NOT "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_DEBUG}" MATCHES "-fsanitize|--coverage")
  set(command_docs ${PROJECT_BINARY_DIR}/command_docs)
  add_custom_command(OUTPUT ${command_docs}/anneal.1 ${command_docs}/anneal.bash
    COMMAND ${PROJECT_SOURCE_DIR}/cmake/command_docs.py $<TARGET_FILE:anneal> ${command_docs}
    DEPENDS anneal cmake/command_docs.py VERBATIM)
  add_custom_target(command_docs ALL DEPENDS ${command_docs}/anneal.1 ${command_docs}/anneal.bash)
  add_dependencies(programs command_docs)
  install(FILES ${command_docs}/anneal.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT cli)
  install(FILES ${command_docs}/anneal.bash RENAME anneal
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT cli)
endif()

# `make package`: a tarball of all components, and a Debian package of each.
set(CPACK_PACKAGE_NAME anneal)
set(CPACK_PACKAGE_VENDOR Anneal)
set(CPACK_PACKAGE_CONTACT "Anneal <anneal@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Inference optimizer and engine for ONNX models")
set(CPACK_SYSTEM_NAME linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_COMPONENTS_ALL runtime dev cli)
set(CPACK_STRIP_FILES ON)
set(CPACK_ARCHIVE_THREADS 0)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libanneal${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS libdnnl2)  # opened while running
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libanneal-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_CLI_PACKAGE_NAME anneal)
set(CPACK_DEBIAN_CLI_PACKAGE_SECTION science)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "The libraries: libengine runs engines, libbuilder makes them from ONNX models.")
set(CPACK_COMPONENT_DEV_DESCRIPTION "Headers of the C++ and C interfaces, and files for CMake and pkg-config.")
set(CPACK_COMPONENT_DEV_DEPENDS runtime)
set(CPACK_COMPONENT_CLI_DESCRIPTION "The command: builds, runs, calibrates, tunes, measures and inspects engines.")
set(CPACK_COMPONENT_CLI_DEPENDS runtime)
include(CPack)
