#include "base/line_stream.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace mneme {
namespace {

// What a pipe with room takes whole.
constexpr size_t kPartBytes = PIPE_BUF;

}  // namespace

bool LineStream::Write(std::string_view line) {
  bool written = !cut_ || WritePart("\n");
  if (written) cut_ = false;
  while (written && !line.empty()) {
    const std::string_view part = line.substr(0, kPartBytes);
    written = WritePart(part);
    if (!written) break;
    line.remove_prefix(part.size());
    cut_ = !line.empty();
  }
  if (!written) ++lost_;
  return written;
}

bool LineStream::WritePart(std::string_view part) {
  while (!part.empty()) {
    pollfd room{.fd = descriptor_, .events = POLLOUT, .revents = 0};
    const int ready = ::poll(&room, 1, lost_ == 0 ? wait_ms_ : 0);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0 || (room.revents & POLLOUT) == 0) return false;
    const ssize_t written = ::write(descriptor_, part.data(), part.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    part.remove_prefix(static_cast<size_t>(written));
    cut_ = true;
  }
  return true;
}

}  // namespace mneme
