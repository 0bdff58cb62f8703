# Where things go: everything under torchpairwise/, both in a wheel and in the source tree.
include(CMakePackageConfigHelpers)

set(package_dir torchpairwise)
set(config_dir ${package_dir}/lib/cmake/torchpairwise)
if(APPLE)
  set(origin "@loader_path")
else()
  set(origin "$ORIGIN")
endif()
# torch is found beside the package (site-packages), or where it was at build time. After `import torch` neither is needed.
set_target_properties(torchpairwise PROPERTIES
  INSTALL_RPATH "${origin}/../../torch/lib;${torch_root}/lib"
  BUILD_RPATH_USE_ORIGIN ON)

install(TARGETS torchpairwise LIBRARY DESTINATION ${package_dir}/lib)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/generated/_build_info.json" DESTINATION ${package_dir})
install(DIRECTORY api/torchpairwise DESTINATION ${package_dir}/include FILES_MATCHING PATTERN "*.h")

configure_package_config_file(cmake/torchpairwiseConfig.cmake.in generated/torchpairwiseConfig.cmake INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(generated/torchpairwiseConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/generated/torchpairwiseConfig.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/generated/torchpairwiseConfigVersion.cmake" DESTINATION ${config_dir})

if(TORCHPAIRWISE_INPLACE)
  add_custom_target(inplace ALL
    COMMAND ${CMAKE_COMMAND} --install "${CMAKE_CURRENT_BINARY_DIR}" --prefix "${CMAKE_CURRENT_SOURCE_DIR}/.."
    COMMENT "Installing into the source tree" VERBATIM)
  add_dependencies(inplace torchpairwise)
endif()
