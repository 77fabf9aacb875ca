# SPDX-License-Identifier: Apache-2.0
# Tests of a program's command line: it explains itself, refuses what it does not know, and leaves with the statuses of
# docs/programs.md.
function(troupe_test_command_line program)
  if(NOT TROUPE_TESTS)
    return()
  endif()
  add_test(NAME "${program}: --help" COMMAND ${program} --help)
  set_tests_properties("${program}: --help" PROPERTIES PASS_REGULAR_EXPRESSION "Usage: .*--help" TIMEOUT 60)
  add_test(NAME "${program}: an unknown option" COMMAND ${program} --no-such-option)
  set_tests_properties("${program}: an unknown option" PROPERTIES
    PASS_REGULAR_EXPRESSION "not expected: --no-such-option" TIMEOUT 60)
  add_test(NAME "${program}: exit statuses" COMMAND bash -c
    "\"$0\" --no-such-option; [ $? = 2 ] && { \"$0\" --help > /dev/full; [ $? = 1 ]; } && \"$0\" --help >&-"
    $<TARGET_FILE:${program}>)
  set_tests_properties("${program}: exit statuses" PROPERTIES TIMEOUT 60)
endfunction()
