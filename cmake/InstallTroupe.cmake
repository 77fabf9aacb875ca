# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where, so that find_package(troupe) works.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
install(TARGETS troupe troupe_core EXPORT troupe ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS troupe_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/troupe DESTINATION include)
install(FILES ${generated}/troupe/ops.h DESTINATION include/troupe)
set(where ${CMAKE_INSTALL_LIBDIR}/cmake/troupe)
install(EXPORT troupe NAMESPACE troupe:: DESTINATION ${where})
configure_package_config_file(cmake/troupe-config.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/troupe-config.cmake
  INSTALL_DESTINATION ${where})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/troupe-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/troupe-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/troupe-config-version.cmake
  cmake/FindCAF.cmake cmake/FindONEDNN.cmake cmake/FindRE2.cmake DESTINATION ${where})
add_library(troupe::troupe ALIAS troupe)
