# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where: the library with its CMake package and pkg-config file, headers, documentation, and
# the program.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/troupe)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/troupe-config-version.cmake COMPATIBILITY SameMinorVersion)

# The prefix as seen from the pkg-config file, so that an installed tree may be moved.
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(pc_prefix ${CMAKE_INSTALL_PREFIX})
  set(pc_libdir ${CMAKE_INSTALL_LIBDIR})
else()
  file(RELATIVE_PATH up /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  set(pc_prefix "\${pcfiledir}/${up}")
  set(pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()

# troupe_install(target kind install-options...): rules for the library of that kind and all that belongs to it. The
# options (COMPONENT ..., EXCLUDE_FROM_ALL) go to each rule.
function(troupe_install target kind)
  set(files ${CMAKE_CURRENT_BINARY_DIR}/package/${target})
  install(TARGETS ${target} EXPORT ${target}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} ${ARGN}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ${ARGN})
  install(EXPORT ${target} FILE ${target}-targets.cmake NAMESPACE troupe:: DESTINATION ${package_dir} ${ARGN})
  set(shared OFF)
  if(kind STREQUAL "SHARED")
    set(shared ON)
  endif()
  configure_package_config_file(cmake/troupe-config.cmake.in ${files}/troupe-config.cmake
    INSTALL_DESTINATION ${package_dir})
  install(FILES ${files}/troupe-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/troupe-config-version.cmake cmake/FindCAF.cmake
    DESTINATION ${package_dir} ${ARGN})

  # CAF and oneDNN have no pkg-config files.
  set(behind "-lspdlog -lprotobuf -lz -lpng -ljpeg -lre2 -licuuc -lssl -lcrypto -lcaf_io -lcaf_core -lgomp -pthread")
  if(TROUPE_CAF_ROOT)
    string(PREPEND behind "-L${TROUPE_CAF_ROOT}/lib ")
  endif()
  if(ONEDNN_FOUND)
    string(APPEND behind " -ldnnl")
  endif()
  if(TROUPE_WITH_CUDA)
    string(APPEND behind " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lrt -ldl")
  endif()
  if(shared)
    set(pc_libs "-ltroupe")
  else()
    install(FILES cmake/FindONEDNN.cmake cmake/FindRE2.cmake DESTINATION ${package_dir} ${ARGN})
    set(pc_libs "-ltroupe ${behind}")
  endif()
  configure_file(cmake/troupe.pc.in ${files}/troupe.pc @ONLY)
  install(FILES ${files}/troupe.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig ${ARGN})

  install(DIRECTORY include/troupe DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} ${ARGN})
  install(FILES ${generated}/troupe/ops.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/troupe ${ARGN})
  install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} ${ARGN})
  install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} ${ARGN})
endfunction()

troupe_install(troupe ${kind})
if(TROUPE_CLI)
  install(TARGETS troupe_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# Tests install the library of the other kind too, linked from the same objects: cmake --install --component other_kind.
if(TROUPE_TESTS AND NOT TROUPE_SANITIZE)
  set(other SHARED)
  if(BUILD_SHARED_LIBS)
    set(other STATIC)
  endif()
  troupe_library(troupe_other ${other})
  troupe_install(troupe_other ${other} COMPONENT other_kind EXCLUDE_FROM_ALL)
endif()
