# Toolchain: 64-bit ARM from an x86-64 Debian, with Debian's cross compiler and its arm64 libraries
# (scripts/deps.sh aarch64 installs both).  Tests run in an emulator; LLADA_QEMU_CPU chooses the processor it plays.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_ASM_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig)
set(LLADA_QEMU_CPU max CACHE STRING "processor that qemu-aarch64 plays")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64;-cpu;${LLADA_QEMU_CPU})
