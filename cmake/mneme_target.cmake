# Functions that every folder's CMakeLists.txt is made of.
include(GoogleTest)

# mneme_warnings: an interface target linked privately, so that generated and third-party code is
# left alone.
add_library(mneme_warnings INTERFACE)
target_compile_options(mneme_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)
# GCC 12 at -O3 sees overlapping copies in plain string concatenation (its bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(mneme_warnings INTERFACE -Wno-restrict)
endif()

# Sanitizers apply to everything compiled here: MNEME_SANITIZE=address,undefined or thread.
set(MNEME_SANITIZE "" CACHE STRING "address,undefined or thread; empty for none")
if(MNEME_SANITIZE)
  add_compile_options(-fsanitize=${MNEME_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${MNEME_SANITIZE})
  if(MNEME_SANITIZE STREQUAL thread)
    add_compile_options(-Wno-tsan)  # Asio's fences, which ThreadSanitizer does not follow
  endif()
endif()

# mneme_library(<folder> SRCS ... [DEPS ...] [PRIVATE_DEPS ...])
#
# One library per folder, known as mneme::<folder>. DEPS are visible in the folder's headers,
# PRIVATE_DEPS are not. Includes are written from the repository root.
function(mneme_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SRCS;DEPS;PRIVATE_DEPS")
  add_library(mneme_${name} STATIC ${arg_SRCS})
  add_library(mneme::${name} ALIAS mneme_${name})
  target_include_directories(mneme_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(mneme_${name}
    PUBLIC ${arg_DEPS}
    PRIVATE ${arg_PRIVATE_DEPS} mneme_warnings)
endfunction()

# mneme_test(<folder> SRCS ... [DEPS ...] [LABELS ...])
#
# One test binary per folder, <folder>_tests, whose cases ctest lists one by one. LABELS defaults to
# `unit`; a case that needs a GPU lives in a binary labelled `gpu` and skips aloud without one.
function(mneme_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SRCS;DEPS;LABELS")
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  add_executable(${name}_tests ${arg_SRCS})
  target_link_libraries(${name}_tests PRIVATE ${arg_DEPS} mneme_warnings GTest::gmock GTest::gtest_main)
  target_include_directories(${name}_tests PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name}_tests PRIVATE MNEME_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${name}_tests
    DISCOVERY_TIMEOUT 120
    PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 600)
endfunction()
