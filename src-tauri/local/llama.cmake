# Read by llama.cpp's own build after its `project()` (see `.cargo/config.toml`): what computes is always optimised; what
# only surrounds it is a third of the time, and a debug build wants it to be there soon.
if(PROJECT_NAME STREQUAL "llama.cpp" AND "$ENV{PROFILE}" STREQUAL "debug" AND NOT MSVC
   AND CMAKE_VERSION VERSION_GREATER_EQUAL 3.19)
    # The targets are there at the end of that project, and the last word on optimising is the one that counts.
    cmake_language(DEFER CALL target_compile_options llama-common PRIVATE -O0)
    cmake_language(DEFER CALL target_compile_options cpp-httplib PRIVATE -O0)
endif()
