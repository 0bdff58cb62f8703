# Kernel files are compiled once per instruction set; cpu/dispatch.cpp chooses one at run time. The rest of the library is compiled for the
# baseline of the platform only, so that a binary never needs more than the processor has.
include(CheckCXXCompilerFlag)

set(instruction_sets baseline)
set(flags_avx2 -mavx2 -mfma -mf16c)
set(flags_avx512 -mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma -mprefer-vector-width=512)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  string(REPLACE ";" " " flags_text "${flags_avx2} ${flags_avx512}")
  check_cxx_compiler_flag("${flags_text}" TORCHPAIRWISE_COMPILER_HAS_AVX512)
  if(TORCHPAIRWISE_COMPILER_HAS_AVX512)
    list(APPEND instruction_sets avx2 avx512)
  endif()
endif()
message(STATUS "instruction sets: ${instruction_sets}")

# -fno-trapping-math and -fno-math-errno allow vector code for comparisons and square roots; neither changes a value.
set(kernel_flags -O3 -fno-math-errno -fno-trapping-math -fopenmp-simd -ffp-contract=fast)

function(add_kernel_objects target)
  if(NOT ARGN)
    return()
  endif()
  foreach(isa ${instruction_sets})
    set(objects ${target}_kernels_${isa})
    add_library(${objects} OBJECT ${ARGN})
    target_include_directories(${objects} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
    target_compile_definitions(${objects} PRIVATE TP_ISA=${isa})
    target_compile_options(${objects} PRIVATE -Wall -Wextra -Wno-psabi ${kernel_flags} ${flags_${isa}})
    # Objects of the baseline come first: where the linker must choose between copies of an inline function, it takes the first.
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
  endforeach()
  if("avx512" IN_LIST instruction_sets)
    target_compile_definitions(${target} PRIVATE TORCHPAIRWISE_X86)
  endif()
endfunction()
