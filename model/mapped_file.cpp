#include "model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/file_error.h"

namespace mneme::model {
namespace {

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

FileState StateOf(const struct stat& status) {
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .bytes = static_cast<uint64_t>(status.st_size),
          .modified_ns = Nanoseconds(status.st_mtim),
          .changed_ns = Nanoseconds(status.st_ctim)};
}

}  // namespace

Result<MappedFile> MappedFile::Open(const std::filesystem::path& path, uint64_t bytes_max) {
  MappedFile file;
  file.path_ = path;
  file.name_ = path.filename().string();
  // Non-blocking, so that a pipe in the folder cannot hold the start up; it is refused below.
  file.descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.descriptor_ < 0) {
    const int reason = errno;
    return Fail(FileErrorCode(reason), "{}", FileErrorText(path.string(), "opened", reason));
  }
  struct stat status = {};
  if (::fstat(file.descriptor_, &status) != 0)
    return Fail(ErrorCode::kInvalidArgument, "{}",
                FileErrorText(path.string(), "looked at", errno));
  if (!S_ISREG(status.st_mode))
    return Fail(ErrorCode::kInvalidArgument, "{}: expected a regular file, found something else",
                path.string());
  file.state_ = StateOf(status);
  const uint64_t size = file.state_.bytes;
  if (size == 0 || size > bytes_max)
    return Fail(ErrorCode::kInvalidArgument, "{}: expected 1 to {} bytes, found {}", path.string(),
                bytes_max, size);

  void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor_, 0);
  if (start == MAP_FAILED)
    return Fail(ErrorCode::kResourceExhausted, "{}: cannot map {} bytes: {}", path.string(), size,
                std::strerror(errno));
  file.bytes_ = {static_cast<const std::byte*>(start), size};
  return file;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<std::string> MappedFile::Read(uint64_t offset, uint64_t count) const {
  if (offset > bytes_.size() || count > bytes_.size() - offset)
    return Fail(ErrorCode::kCorruption, "{}: expected {} bytes at {}, found {} bytes in all", name_,
                count, offset, bytes_.size());
  std::string text(count, '\0');
  uint64_t done = 0;
  while (done < count) {
    const ssize_t got =
        ::pread(descriptor_, text.data() + done, count - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      return Fail(ErrorCode::kCorruption, "{}: expected {} bytes at {}, found {}: the file changed",
                  name_, count, offset, done);
    done += static_cast<uint64_t>(got);
  }
  return text;
}

Status MappedFile::CheckUnchanged() const {
  struct stat status = {};
  if (::fstat(descriptor_, &status) != 0)
    return Fail(ErrorCode::kCorruption, "{}", FileErrorText(path_.string(), "looked at", errno));
  // That it was renamed or linked meanwhile changes no byte.
  FileState now = StateOf(status);
  now.changed_ns = state_.changed_ns;
  if (now.bytes != state_.bytes)
    return Fail(ErrorCode::kCorruption,
                "{}: changed while it was read: expected {} bytes, found {}", path_.string(),
                state_.bytes, now.bytes);
  if (now != state_)
    return Fail(ErrorCode::kCorruption,
                "{}: changed while it was read: expected modification time {} ns, found {} ns",
                path_.string(), state_.modified_ns, now.modified_ns);
  return {};
}

void MappedFile::Swap(MappedFile& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(bytes_, other.bytes_);
  std::swap(path_, other.path_);
  std::swap(name_, other.name_);
  std::swap(state_, other.state_);
}

Status CheckModelFolder(const std::filesystem::path& path) {
  std::error_code failure;
  const auto status = std::filesystem::status(path, failure);
  if (status.type() == std::filesystem::file_type::none)
    return Fail(ErrorCode::kInvalidArgument, "model folder {}",
                FileErrorText(path.string(), "looked at", failure.value()));
  if (std::filesystem::is_directory(status)) return {};
  return Fail(ErrorCode::kNotFound,
              "model folder {}: no such folder (looked for {}); name one that holds config.json, "
              "tokenizer.json and *.safetensors, as checkpoints/demo of the repository does",
              path.string(), std::filesystem::absolute(path, failure).string());
}

Error InModelFolder(Error error, const std::filesystem::path& folder) {
  if (error.message().find(folder.string()) != std::string::npos) return error;
  return std::move(error).Within("model folder " + folder.string());
}

Result<std::string> ReadTextFile(const std::filesystem::path& path, uint64_t bytes_max) {
  auto file = MappedFile::Open(path, bytes_max);
  if (!file) return Fail(std::move(file).error());
  return file->Read(0, file->bytes().size());
}

}  // namespace mneme::model
