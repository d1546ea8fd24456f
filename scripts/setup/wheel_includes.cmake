# The ROS 2 wheels export the include directories of the machine that they were built on as well as
# their own. CMake refuses a target that names a directory which does not exist, so drop those once
# every package has been found. Used through CMAKE_PROJECT_INCLUDE.

function(drop_missing_include_directories)
  get_directory_property(targets IMPORTED_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(directories ${target} INTERFACE_INCLUDE_DIRECTORIES)
    if(NOT directories)
      continue()
    endif()
    set(present "")
    foreach(directory IN LISTS directories)
      if(directory MATCHES "^\\$<" OR EXISTS "${directory}")
        list(APPEND present "${directory}")
      endif()
    endforeach()
    set_target_properties(${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${present}")
  endforeach()
endfunction()

cmake_language(DEFER CALL drop_missing_include_directories)
