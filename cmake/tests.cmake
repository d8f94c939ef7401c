# Tests.  A file named test_*.c, check_*.c, fuzz_*.c or *.sh in its folder is a test; nothing has to be listed.  Labels:
# unit, golden, kernels, fuzz, e2e, fault.  Tests run in the source folder, so that they can name tests/fixtures/... .

pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
set(TEST_TIMEOUT 300)
if(CMAKE_CROSSCOMPILING OR LLADA_SANITIZE)
  set(TEST_TIMEOUT 1500) # an emulator or a sanitizer: up to 20 times slower
endif()

# gcc 12.2 for aarch64 fails on some sums of doubles ("internal compiler error: in vect_transform_reduction"); without
# the vectoriser it unrolls loops past the end of small arrays and warns about what it wrote itself.
set(TEST_FLAGS "")
if(CMAKE_C_COMPILER_ID STREQUAL GNU AND CMAKE_C_COMPILER_VERSION VERSION_LESS 12.3 AND
   CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(TEST_FLAGS -fno-tree-vectorize -Wno-array-bounds)
endif()

# name source...: one program.
function(llada_test_program name)
  add_executable(${name} ${ARGN})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_compile_options(${name} PRIVATE ${TEST_FLAGS})
  target_compile_definitions(${name} PRIVATE LLADA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE llada_flags llada_static PkgConfig::CMOCKA PkgConfig::JANSSON)
endfunction()

# A huge allocation must fail as it does without a sanitizer: by NULL.
set(TEST_ENVIRONMENT "ASAN_OPTIONS=allocator_may_return_null=1" "TSAN_OPTIONS=allocator_may_return_null=1"
  "UBSAN_OPTIONS=print_stacktrace=1" "CC=${CMAKE_C_COMPILER}" "LLADA_SANITIZE=${LLADA_SANITIZE}")

function(llada_register name label)
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${TEST_TIMEOUT} ENVIRONMENT "${TEST_ENVIRONMENT}")
endfunction()

foreach(kind unit golden fault)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${kind}/test_*.c)
  file(GLOB helpers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${kind}/*.c)
  list(FILTER helpers EXCLUDE REGEX "/test_[^/]*\\.c$")
  if(helpers)
    add_library(${kind}_helpers STATIC ${helpers})
    target_link_libraries(${kind}_helpers PUBLIC llada_flags llada_static PkgConfig::CMOCKA PkgConfig::JANSSON)
  endif()
  foreach(src ${sources})
    get_filename_component(name ${src} NAME_WE)
    llada_test_program(${name} ${src})
    if(helpers)
      target_link_libraries(${name} PRIVATE ${kind}_helpers)
    endif()
    if(name MATCHES "^test_app" AND TARGET llada_app_parts)
      target_link_libraries(${name} PRIVATE llada_app_parts)
    endif()
    llada_register(${name} ${kind} ${name})
  endforeach()
endforeach()

# A stand-in for the library that leads to a device's NPU, and an older one.
foreach(fake cdsprpc cdsprpc_old)
  add_library(fake_${fake} MODULE ${PROJECT_SOURCE_DIR}/tests/fake/cdsprpc.c
    ${PROJECT_SOURCE_DIR}/src/device/npu/dsp/hexagon/queue.c)
  target_link_libraries(fake_${fake} PRIVATE llada_flags llada_static)
  set_target_properties(fake_${fake} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  string(TOUPPER FAKE_${fake} name)
  target_compile_definitions(test_npu_fastrpc PRIVATE ${name}="$<TARGET_FILE:fake_${fake}>")
  add_dependencies(test_npu_fastrpc fake_${fake})
endforeach()
target_compile_definitions(fake_cdsprpc_old PRIVATE FAKE_OLD)

file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/kernels/check_*.c)
foreach(src ${sources})
  get_filename_component(name ${src} NAME_WE)
  llada_test_program(${name} ${src})
  llada_register(${name} kernels ${name})
endforeach()

# What tests/text/run.sh compares with published tokenizers; that needs npm, so it is no CTest.
if(EXISTS ${PROJECT_SOURCE_DIR}/tests/text/tok_driver.c)
  llada_test_program(tok_driver ${PROJECT_SOURCE_DIR}/tests/text/tok_driver.c)
endif()

# Fuzzers: with LLADA_FUZZ programs that search (the target "fuzzers" is all of them); else, in every normal build,
# programs that replay the saved corpus.
if(LLADA_FUZZ)
  add_custom_target(fuzzers)
endif()
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/fuzz_*.c)
foreach(src ${sources})
  get_filename_component(name ${src} NAME_WE)
  string(REGEX REPLACE "^fuzz_" "" corpus ${name})
  set(of_server FALSE)
  if(name MATCHES "^fuzz_(request|http)$")
    set(of_server TRUE)
    if(NOT TARGET llada_app_parts)
      continue()
    endif()
  endif()
  if(LLADA_FUZZ)
    llada_test_program(${name} ${src})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzzers ${name})
  else()
    llada_test_program(${name} ${src} ${PROJECT_SOURCE_DIR}/tests/fuzz/replay.c)
    llada_register(${name} fuzz ${name} tests/fuzz/corpus/${corpus})
  endif()
  if(of_server)
    target_link_libraries(${name} PRIVATE llada_app_parts)
  endif()
endforeach()

# Scripts get the program, the source folder and the build folder.  They need this machine's own program, so not in a
# cross build.
if(TARGET llada_app AND NOT CMAKE_CROSSCOMPILING)
  foreach(kind e2e fault)
    file(GLOB scripts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${kind}/*.sh)
    foreach(script ${scripts})
      get_filename_component(name ${script} NAME_WE)
      llada_register(${kind}_${name} ${kind} bash ${script} $<TARGET_FILE:llada_app> ${PROJECT_SOURCE_DIR}
        ${CMAKE_BINARY_DIR})
    endforeach()
  endforeach()
endif()
