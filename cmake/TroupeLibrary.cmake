# SPDX-License-Identifier: Apache-2.0
# troupe_library(target kind): the library as others get it, STATIC or SHARED, from the objects of the folders.

# A program links fmt, of which the public headers make use, and CAF for its own actors (troupe/embed.h). What stands
# behind the code is left to the linker: a shared library has it already.
set(troupe_private spdlog::spdlog CAF::io ${core_private})

function(troupe_library target kind)
  set(core $<TARGET_OBJECTS:troupe_core>)
  if(TARGET troupe_core_kernels)
    list(APPEND core $<TARGET_OBJECTS:troupe_core_kernels>)
  endif()
  if(kind STREQUAL "STATIC" AND CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT TROUPE_SANITIZE)
    # The core as one object, in which what many files instantiate is there once: a quarter less to install. A program
    # takes nearly all of the core anyway, since the registries name every op.
    set(joined ${CMAKE_CURRENT_BINARY_DIR}/${target}_core.o)
    list(TRANSFORM core REPLACE "(.+)" "$<FILTER:\\1,INCLUDE,[.]o$>")  # without the precompiled header
    add_custom_command(OUTPUT ${joined}
      COMMAND ${CMAKE_CXX_COMPILER} -r -nostdlib -o ${joined} ${core}
      COMMAND ${CMAKE_STRIP} --strip-unneeded ${joined}
      DEPENDS ${core} COMMAND_EXPAND_LISTS VERBATIM COMMENT "Joining the objects of the core")
    set_source_files_properties(${joined} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    set(core ${joined})
  endif()
  add_library(${target} ${kind} ${core} $<TARGET_OBJECTS:troupe_engine>)
  add_dependencies(${target} troupe_engine)  # which writes troupe/ops.h
  set_target_properties(${target} PROPERTIES OUTPUT_NAME troupe EXPORT_NAME troupe LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
    $<BUILD_INTERFACE:${generated}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} PUBLIC fmt::fmt Threads::Threads PRIVATE ${troupe_private})
  if(kind STREQUAL "SHARED")
    # Only programs that are actors themselves need CAF.
    target_link_libraries(${target} PRIVATE CAF::core INTERFACE $<TARGET_NAME_IF_EXISTS:CAF::core>)
    target_link_options(${target} PRIVATE LINKER:--gc-sections LINKER:--exclude-libs,ALL)
    if(NOT TROUPE_SANITIZE)
      target_link_options(${target} PRIVATE LINKER:--no-undefined)
    endif()
  else()
    target_link_libraries(${target} PUBLIC CAF::core)
  endif()
endfunction()
