# The torch that `import torch` finds, as the target torch_of_python. find_package(Torch) is not used: it searches for the compilers and
# libraries that torch itself was built with, and fails without them.
find_package(Python REQUIRED COMPONENTS Interpreter)

execute_process(
  COMMAND "${Python_EXECUTABLE}" -c "import os, torch; print(torch.__version__, int(torch._C._GLIBCXX_USE_CXX11_ABI), \
torch.version.cuda or '-', os.path.dirname(torch.__file__), sep=';')"
  WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}"
  OUTPUT_VARIABLE torch_facts ERROR_VARIABLE torch_error RESULT_VARIABLE torch_result OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT torch_result EQUAL 0)
  message(FATAL_ERROR "torch cannot be imported by ${Python_EXECUTABLE}. Install it there first (pip install torch), or choose another "
                      "interpreter with -DPython_EXECUTABLE=. Python said:\n${torch_error}")
endif()
list(GET torch_facts 0 torch_version)
list(GET torch_facts 1 torch_cxx11_abi)
list(GET torch_facts 2 torch_cuda_version)
list(GET torch_facts 3 torch_root)
message(STATUS "torch ${torch_version} in ${torch_root}")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${torch_root}/version.py" "${PROJECT_SOURCE_DIR}/../pyproject.toml")
if(torch_version VERSION_LESS 2.9)
  message(FATAL_ERROR "torch ${torch_version} is too old: torchpairwise needs torch >= 2.9. Upgrade it: pip install -U torch")
endif()

add_library(torch_of_python INTERFACE)
target_include_directories(torch_of_python SYSTEM INTERFACE "${torch_root}/include" "${torch_root}/include/torch/csrc/api/include")
target_compile_definitions(torch_of_python INTERFACE _GLIBCXX_USE_CXX11_ABI=${torch_cxx11_abi})
foreach(library torch torch_cpu c10)
  find_library(torch_library_${library} ${library} PATHS "${torch_root}/lib" NO_DEFAULT_PATH NO_CACHE REQUIRED)
  target_link_libraries(torch_of_python INTERFACE "${torch_library_${library}}")
endforeach()

# at::parallel_for is a template over OpenMP: without these flags it runs on one thread. The runtime must be the one that torch brings, so
# that there is one pool of threads in the process.
find_package(OpenMP QUIET COMPONENTS CXX)
if(OpenMP_CXX_FOUND)
  separate_arguments(openmp_flags UNIX_COMMAND "${OpenMP_CXX_FLAGS}")
  target_compile_options(torch_of_python INTERFACE ${openmp_flags})
  file(GLOB torch_openmp "${torch_root}/lib/lib*omp*.so*" "${torch_root}/../torch.libs/lib*omp*.so*" "${torch_root}/lib/libomp.dylib")
  list(FILTER torch_openmp EXCLUDE REGEX "libcomp")
  if(torch_openmp)
    list(GET torch_openmp 0 torch_openmp)
    target_link_libraries(torch_of_python INTERFACE "${torch_openmp}")
  else()
    target_link_libraries(torch_of_python INTERFACE OpenMP::OpenMP_CXX)
  endif()
endif()
