# SPDX-License-Identifier: Apache-2.0
# Finds oneDNN without its own CMake package, which in Debian insists on OpenCL: ONEDNN::onednn.
find_path(ONEDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(ONEDNN_LIBRARY NAMES dnnl)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ONEDNN REQUIRED_VARS ONEDNN_LIBRARY ONEDNN_INCLUDE_DIR)
if(ONEDNN_FOUND AND NOT TARGET ONEDNN::onednn)
  add_library(ONEDNN::onednn UNKNOWN IMPORTED)
  set_target_properties(ONEDNN::onednn PROPERTIES IMPORTED_LOCATION ${ONEDNN_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${ONEDNN_INCLUDE_DIR})
endif()
