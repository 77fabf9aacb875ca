# SPDX-License-Identifier: Apache-2.0
# troupe_protobuf(target protos...): compiles .proto files into the build folder and adds them to the target. The
# generated headers are included by their path from the root: "io/event.pb.h". A process keeps one list of all its
# .proto files, by name: there they begin with troupe/, so that a program may have an io/event.proto of its own.
function(troupe_protobuf target)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/proto)
  foreach(proto ${ARGN})
    file(RELATIVE_PATH relative ${CMAKE_CURRENT_SOURCE_DIR} ${proto})
    string(REGEX REPLACE "\\.proto$" "" stem ${relative})
    set(out ${folder}/troupe/${stem}.pb)
    add_custom_command(
      OUTPUT ${out}.cc ${out}.h
      COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
      COMMAND protobuf::protoc --cpp_out=${folder} --proto_path=troupe=${CMAKE_CURRENT_SOURCE_DIR} ${proto}
      DEPENDS ${proto} COMMENT "protoc ${relative}")
    target_sources(${target} PRIVATE ${out}.cc ${out}.h)
    set_source_files_properties(${out}.cc PROPERTIES COMPILE_OPTIONS -w)
  endforeach()
  target_include_directories(${target} SYSTEM PRIVATE ${folder} ${folder}/troupe)
endfunction()
