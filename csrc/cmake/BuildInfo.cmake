# What was built, written once: as _build_info.json beside the Python package, and as text inside the library for describe().
string(REGEX REPLACE "([^;]+)" "\"\\1\"" build_isa_json "${instruction_sets}")
string(REPLACE ";" ", " build_isa_json "${build_isa_json}")
if(TORCHPAIRWISE_CUDA)
  set(build_cuda_json "{\"toolkit\": \"${CUDAToolkit_VERSION}\", \"torch\": \"${torch_cuda_version}\", \"kernel_files\": ${cuda_kernel_files}}")
else()
  set(build_cuda_json "null")
endif()
set(build_info_json "{\"version\": \"${PROJECT_VERSION}\", \"torch\": \"${torch_version}\", \
\"compiler\": \"${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}\", \"build_type\": \"${CMAKE_BUILD_TYPE}\", \
\"instruction_sets\": [${build_isa_json}], \"cuda\": ${build_cuda_json}}")
file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/generated/_build_info.json" CONTENT "${build_info_json}\n" @ONLY)
file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/generated/build_info.inc" CONTENT "R\"json(${build_info_json})json\"\n" @ONLY)
