# SPDX-License-Identifier: Apache-2.0
# TROUPE_CUDA: whether the library can use GPUs; OFF unless asked for, while nothing of it has run on a card and the
# kernels are not built for it. TROUPE_WITH_CUDA says what came of it. The toolkit is needed to build,
# and a program needs the driver to run on GPUs, not to start.
set(TROUPE_CUDA OFF CACHE STRING "Use GPUs by CUDA: AUTO (where its toolkit is found), ON or OFF")
set_property(CACHE TROUPE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(TROUPE_WITH_CUDA OFF)
set(cuda_toolkit 12.5)  # the oldest that has what is called
if(TROUPE_CUDA STREQUAL "AUTO")
  find_package(CUDAToolkit ${cuda_toolkit} QUIET)
elseif(TROUPE_CUDA)
  find_package(CUDAToolkit ${cuda_toolkit} REQUIRED)
endif()
if(CUDAToolkit_FOUND AND (TROUPE_CUDA OR TROUPE_CUDA STREQUAL "AUTO"))
  set(TROUPE_WITH_CUDA ON)
  message(STATUS "GPUs: by CUDA ${CUDAToolkit_VERSION}")
else()
  message(STATUS "GPUs: none (TROUPE_CUDA is ${TROUPE_CUDA})")
endif()

# troupe_cuda_sources(target source...): sources that call CUDA, the only ones that see its headers. They are compiled
# each on its own.
function(troupe_cuda_sources target)
  target_sources(${target} PRIVATE ${ARGN})
  foreach(folder ${CUDAToolkit_INCLUDE_DIRS})
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS -isystem${folder})
  endforeach()
  target_link_libraries(${target} PRIVATE $<LINK_ONLY:CUDA::cudart_static>)
endfunction()
