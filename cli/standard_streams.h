// Standard input, output and error, which whoever starts a program may have closed, filled or left.
#pragma once

#include <string_view>

namespace mneme::cli {

// Opens what of the three is closed on /dev/null: else the next file that is opened, one of the
// store perhaps, would get its number and all that is printed. First thing of the program.
void OpenClosedStreams();

// From here on a reader that leaves, or a file that may not grow, is an error of the one write and
// not the end of the process.
void IgnoreWriteSignals();

// Prints a line on standard error. One that cannot be written is nobody's error.
void Say(std::string_view line);

// Writes out what was printed on standard output. Where that fails, now or before, it says so and
// answers kExitFailed, else `exit_code`.
int EndOutput(int exit_code);

}  // namespace mneme::cli
