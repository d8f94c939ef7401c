# The DSP's code (src/device/npu/dsp) by its own compiler: npu-emulated.elf, a Linux program for qemu-hexagon, and one
# skel a generation of devices, libllada_npu-vNN.so.  Needs clang 22 and lld 22 (scripts/deps.sh hexagon), no vendor's kit.
find_program(HEXAGON_CC NAMES clang-22 REQUIRED)
find_program(HEXAGON_LD NAMES ld.lld-22 REQUIRED)
execute_process(COMMAND ${HEXAGON_CC} -print-resource-dir OUTPUT_VARIABLE HEXAGON_RESOURCES
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(HEXAGON_DIR ${CMAKE_BINARY_DIR}/hexagon)
file(MAKE_DIRECTORY ${HEXAGON_DIR})

set(HEXAGON_FLAGS --target=hexagon-unknown-linux-musl -mhvx -mhvx-length=128b -std=c11 -O2 -ffreestanding -fno-builtin
  -nostdinc -isystem ${HEXAGON_RESOURCES}/include -isystem ${PROJECT_SOURCE_DIR}/src/device/npu/dsp/hexagon/include
  -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include -ffp-contract=off
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Werror -Wno-unused-parameter)
set(DSP ${PROJECT_SOURCE_DIR}/src/device/npu/dsp)
set(HEXAGON_BOTH ${DSP}/attend.c ${DSP}/check.c ${DSP}/experts.c ${DSP}/few_rows.c ${DSP}/lanes.c ${DSP}/matmul.c
  ${DSP}/plan.c ${DSP}/rows.c ${DSP}/run.c ${DSP}/team.c ${DSP}/hexagon/runtime.c ${DSP}/hexagon/lanes_hvx.c
  ${PROJECT_SOURCE_DIR}/src/base/half.c)
file(GLOB_RECURSE HEXAGON_HEADERS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/npu/*.h)
list(APPEND HEXAGON_HEADERS ${PROJECT_SOURCE_DIR}/src/device/columns.h ${PROJECT_SOURCE_DIR}/src/base/half.h)

# output, generation, "flags", sources...
function(hexagon_link output arch flags link_flags)
  set(objects)
  foreach(src ${ARGN})
    get_filename_component(name ${src} NAME_WE)
    set(o ${HEXAGON_DIR}/${output}.${name}.o)
    add_custom_command(OUTPUT ${o} COMMAND ${HEXAGON_CC} ${HEXAGON_FLAGS} -m${arch} ${flags} -c ${src} -o ${o}
      DEPENDS ${src} ${HEXAGON_HEADERS} VERBATIM)
    list(APPEND objects ${o})
  endforeach()
  add_custom_command(OUTPUT ${HEXAGON_DIR}/${output} COMMAND ${HEXAGON_LD} ${link_flags} -o ${HEXAGON_DIR}/${output} ${objects}
    DEPENDS ${objects} VERBATIM)
endfunction()

# -mv67: what came later is unknown to the emulator, which would run it as something else.
hexagon_link(npu-emulated.elf v67 "" "" ${HEXAGON_BOTH} ${DSP}/emulate.c ${DSP}/hexagon/emulator_main.c
  ${DSP}/hexagon/emulator_threads.c)
set(HEXAGON_OUTPUTS ${HEXAGON_DIR}/npu-emulated.elf)
foreach(arch v73 v75 v79 v81)
  hexagon_link(libllada_npu-${arch}.so ${arch} "-DDSP_DEVICE;-fPIC;-fvisibility=hidden" "-shared" ${HEXAGON_BOTH}
    ${DSP}/hexagon/port_device.c ${DSP}/hexagon/queue.c ${DSP}/hexagon/skel.c)
  list(APPEND HEXAGON_OUTPUTS ${HEXAGON_DIR}/libllada_npu-${arch}.so)
endforeach()
add_custom_target(hexagon ALL DEPENDS ${HEXAGON_OUTPUTS})

if(LLADA_TESTS)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/hexagon/test_*.c)
  foreach(src ${sources})
    get_filename_component(name ${src} NAME_WE)
    llada_test_program(${name} ${src})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/unit)
    target_link_libraries(${name} PRIVATE unit_helpers)
    target_compile_definitions(${name} PRIVATE DSP_PROGRAM="${HEXAGON_DIR}/npu-emulated.elf")
    add_dependencies(${name} hexagon)
    llada_register(${name} hexagon ${name})
  endforeach()
  file(GLOB scripts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/hexagon/*.sh)
  foreach(script ${scripts})
    get_filename_component(name ${script} NAME_WE)
    llada_register(hexagon_${name} hexagon bash ${script} $<TARGET_FILE:llada_app> ${HEXAGON_DIR})
  endforeach()
endif()
