# SPDX-License-Identifier: Apache-2.0
# TROUPE_CUDA: whether the library can use GPUs; OFF unless asked for: nvcc takes minutes for each kind of card.
# TROUPE_WITH_CUDA says what came of it. The toolkit is needed to build; a program needs the driver to run on GPUs, not
# to start.
set(TROUPE_CUDA OFF CACHE STRING "Use GPUs by CUDA: AUTO (where its toolkit is found), ON or OFF")
set_property(CACHE TROUPE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(TROUPE_CUDA_ARCHITECTURES "80-real;90-real;100-real;120" CACHE STRING "Cards that kernels are compiled for")
set(TROUPE_WITH_CUDA OFF)
set(cuda_toolkit 12.8)  # the oldest that has what is called, and these architectures
if(TROUPE_CUDA STREQUAL "AUTO")
  find_package(CUDAToolkit ${cuda_toolkit} QUIET)
elseif(TROUPE_CUDA)
  find_package(CUDAToolkit ${cuda_toolkit} REQUIRED)
endif()
if(CUDAToolkit_FOUND AND (TROUPE_CUDA OR TROUPE_CUDA STREQUAL "AUTO"))
  set(TROUPE_WITH_CUDA ON)
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
  endif()
  set(CMAKE_CUDA_ARCHITECTURES ${TROUPE_CUDA_ARCHITECTURES})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 does not know it
  endif()
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

# troupe_cuda_kernels(target file...): files of kernels, which nvcc compiles into the library.
function(troupe_cuda_kernels target)
  add_library(${target}_kernels OBJECT ${ARGN})
  set_target_properties(${target}_kernels PROPERTIES
    CUDA_STANDARD 20 CUDA_EXTENSIONS OFF UNITY_BUILD OFF
    COMPILE_OPTIONS "")  # those of the folder are g++'s
  target_compile_options(${target}_kernels PRIVATE
    --expt-relaxed-constexpr
    -DFMT_USE_CONSTEXPR=1         # fmt does without for nvcc, and then does not compile
    "SHELL:-diag-suppress 2810"   # it sees [[nodiscard]] values thrown away in assignments
    "SHELL:-Werror cross-execution-space-call"  # a function of the host in a kernel: compiled, and then not there
    -Xcompiler=-fvisibility=hidden,-fvisibility-inlines-hidden)
  target_include_directories(${target}_kernels PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${target}_kernels PRIVATE fmt::fmt spdlog::spdlog)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_kernels>)
endfunction()
